"""A bkbox bookie that was killed under load brings back what it missed, also from one of Apache's bookies."""

from __future__ import annotations

import os

from bkbox.api.admin import client as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import Copies
from bkbox.config import load
from tests.harness.waiting import wait_for
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import BkboxBookie
from tests.interop.scenarios import all_copies_there

ENTRIES = 60
WAIT_S = 120.0


def test_copies_are_fetched_from_java(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("short", java=1, bkbox=2)
    victim = cluster.of_kind("bkbox")[0]
    assert isinstance(victim, BkboxBookie)
    socket = admin_socket_path(load.load(victim.config, os.environ))
    writers = [cluster.client("bkbox-v2").create(3, 3, 2, password=b"secret") for _ in range(4)]
    for writer in writers:
        writer.append_async(ENTRIES, 300)
    victim.kill()
    for writer in writers:
        writer.append_async(ENTRIES, 300)
    closed, *open_ones = writers
    closed.close()
    victim.start()

    def complete() -> Copies | None:
        found = admin.fetch_status(socket, WAIT_S).copies
        return found if found.checked_ms and not found.checking and not found.short else None

    found = wait_for(complete, "a complete check", timeout=WAIT_S, pause=0.2)
    assert found.mended >= ENTRIES
    for writer in open_ones:
        writer.append_async(ENTRIES, 300)
        writer.close()
    client = cluster.client("java-v3")
    for writer in writers:
        wait_for(
            lambda writer=writer: all_copies_there(client.metadata(writer.ledger)),
            f"all copies of ledger {writer.ledger}",
            timeout=WAIT_S,
            pause=0.2,
        )
