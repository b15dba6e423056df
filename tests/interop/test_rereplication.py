"""What is lost comes back: a bkbox bookie that lost its disk is refilled from Apache's bookies, and
Apache's auditor and replication worker copy from and to bkbox's."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.harness.cluster import empty, pretend_a_failed_sync
from tests.harness.processes import bkbox
from tests.harness.waiting import wait_for
from tests.interop.clients import Client, Metadata, numbered, pattern
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import BkboxBookie, Bookie, InteropCluster
from tests.interop.scenarios import all_copies_there, copies_of
from tests.repair.copies import hands

ENTRIES = 60
REPAIR_TIMEOUT_S = 90.0


def write(client: Client, *, close: bool = True) -> int:
    """A ledger with a copy of each entry on three bookies."""
    writer = client.create(3, 3, 2, password=b"secret")
    writer.append_async(ENTRIES, 300)
    if close:
        writer.close()
    return writer.ledger


def read(client: Client, ledger: int) -> None:
    reader = client.open(ledger, password=b"secret")
    everything = numbered([pattern(n, 300) for n in range(ENTRIES)])
    assert reader.read(0, ENTRIES - 1) == everything


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> InteropCluster:
    """Two of Apache's bookies, and one of bkbox's that acknowledges before it syncs."""
    return make_cluster("lossy", java=2, bkbox=1, ack_after="write")


@pytest.mark.parametrize("is_disk_lost", [False, True], ids=["host-crash", "disk-lost"])
def test_a_lost_bkbox_bookie_is_refilled_by_java(
    cluster: InteropCluster, is_disk_lost: bool
) -> None:
    """The host of the bkbox bookie is lost, with or without its disk."""
    client = cluster.client("java-v3")
    ledgers = [write(client), write(cluster.client("bkbox-v2")), write(client, close=False)]
    (lost,) = cluster.of_kind("bkbox")
    assert isinstance(lost, BkboxBookie)
    lost.kill()
    if is_disk_lost:
        empty(lost.disks[0])
        bkbox("cookie", "repair", "--config", str(lost.config), "--yes")
    else:
        pretend_a_failed_sync(lost.disks)
    lost.start()
    wait_for(
        lambda: lost.status()["limbo"]["ledgers"] == 0,
        "limbo to be empty",
        timeout=REPAIR_TIMEOUT_S,
        pause=0.3,
    )
    for ledger in ledgers:
        metadata = client.metadata(ledger)
        assert (metadata.state, metadata.last) == ("CLOSED", ENTRIES - 1)
        assert_copies_agree(cluster, metadata)
        read(client, ledger)


def test_java_replicates_from_and_to_bkbox(cluster: InteropCluster) -> None:
    """A bookie of each kind is lost for good, one after the other, and a new one of the other kind
    takes its place."""
    clients = [cluster.client("java-v3"), cluster.client("bkbox-v2")]
    ledgers = [write(client, close=close) for client in clients for close in (True, False)]
    cluster.start_autorecovery()

    replaced = cluster.of_kind("java")[0]
    newcomer: Bookie = cluster.add_bkbox(ack_after="write").start()
    cluster.lose(replaced)
    wait_replaced(cluster, ledgers, newcomer)

    replaced = cluster.of_kind("bkbox")[0]
    newcomer = cluster.add_java().start()
    cluster.lose(replaced)
    wait_replaced(cluster, ledgers, newcomer)

    for client in clients:
        for ledger in ledgers:
            read(client, ledger)
    wait_unmarked(cluster)
    cluster.stop_autorecovery()


def wait_unmarked(cluster: InteropCluster) -> None:
    """Until no mark is left, which is then what Apache's shell, a JVM for each look, says as well."""

    async def marked() -> int:
        async with hands(cluster.uri) as our:
            return await our.store.under_replication.count()

    wait_for(lambda: not asyncio.run(marked()), "no mark to be left", timeout=60, pause=0.5)
    ((_, text),) = cluster.shell(["listunderreplicated"])
    assert re.search(r"count(=|: )0\b", text)


def wait_replaced(cluster: InteropCluster, ledgers: list[int], newcomer: Bookie) -> None:
    """Until each ledger is on the bookies that are left, and each of these has every entry."""
    client = cluster.client("java-v3")
    members = {bookie.bookie_id for bookie in cluster.bookies}
    assert newcomer.bookie_id in members
    for ledger in ledgers:
        metadata = wait_for(
            lambda ledger=ledger: on_members(client.metadata(ledger), members),
            f"ledger {ledger} to be on {members} alone",
            timeout=REPAIR_TIMEOUT_S,
            pause=0.2,
        )
        assert metadata.members == members
        assert_copies_agree(cluster, metadata)


def on_members(metadata: Metadata, members: set[str]) -> Metadata | None:
    """The metadata, once the ledger is closed and nobody else holds a part of it."""
    is_settled = metadata.state == "CLOSED" and metadata.members <= members
    return metadata if is_settled and all_copies_there(metadata) else None


def assert_copies_agree(cluster: InteropCluster, metadata: Metadata) -> None:
    """Every holder has every entry, with the same payload. (LAC and digest of a copy may differ:
    Apache's worker packs entries anew.)"""
    for entry in range(ENTRIES):
        copies = copies_of(cluster, metadata, entry)
        for holder in metadata.holders(entry):
            copy = copies[holder]
            assert copy is not None, f"entry {entry} of ledger {metadata.ledger} on {holder}"
            assert copy.endswith(pattern(entry, 300))
