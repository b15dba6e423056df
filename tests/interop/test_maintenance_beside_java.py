"""A bookie that rests, beside Apache's auditor, which knows nothing of that but the delay."""

from __future__ import annotations

import asyncio
import time

from tests.harness.processes import bkbox
from tests.harness.waiting import wait_for
from tests.interop.conftest import MakeCluster
from tests.interop.javaclient import JavaClient
from tests.interop.javaparts import JavaAutoRecovery
from tests.interop.test_autorecovery import is_marked
from tests.interop.test_rereplication import write
from tests.repair.copies import hands


def test_apache_s_auditor_waits_until_the_rest_is_over(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("resting", java=2, bkbox=1)
    client = cluster.client("java-v3")
    assert isinstance(client, JavaClient)
    ledgers = [write(client), write(cluster.client("bkbox-v2"))]
    [resting] = cluster.of_kind("bkbox")
    # Its look at all ledgers, which heeds no delay, comes once a day.
    cluster.autorecovery = JavaAutoRecovery(
        cluster.root,
        cluster.uri,
        auditorPeriodicBookieCheckInterval="86400",
        auditorPeriodicCheckInterval="0",
        lostBookieRecoveryDelay="1",
    ).start()
    wait_for(client.auditor, "an auditor")
    here = ["--config", str(resting.root / "bookie.toml")]
    said = bkbox("maintenance", "on", "--for", "30m", *here).stderr
    assert "Java's auditors wait 1800 s" in said
    resting.kill()

    async def gone() -> None:
        async with hands(cluster.uri) as our, asyncio.timeout(60):
            while resting.bookie_id in await our.store.bookies():
                await asyncio.sleep(0.2)

    asyncio.run(gone())
    time.sleep(5.0)
    assert not is_marked(cluster, ledgers), "the bookie rests"
    bkbox("maintenance", "off", *here)
    wait_for(
        lambda: is_marked(cluster, ledgers), "Apache's auditor to mark them", timeout=60, pause=0.5
    )
    cluster.stop_autorecovery()
