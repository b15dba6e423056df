"""A cluster whose Java processes reach their metadata by Pulsar's driver, ``metadata-store:``: bookies of both kinds in
one ensemble, both clients, and the auditor of each.

In ZooKeeper, and in Oxia: there Java's side is Pulsar's driver with Oxia's own client, and the servers are a stand-in
(tests/harness/oxia_server.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.oxia import Oxia
from tests.harness.zookeeper import ZooKeeper
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.javaclient import Driver
from tests.interop.test_autorecovery import check, ledgers_of
from tests.interop.test_rereplication import read, write
from tests.repair.copies import hands

URI = "metadata-store:"


@pytest.fixture(scope="module")
def driver(interop_root: Path) -> Iterator[Driver]:
    driver = Driver(interop_root, "pulsar-driver", URI).start()
    yield driver
    driver.kill()


@pytest.fixture(scope="module", params=["zookeeper", "oxia"])
def cluster(
    request: pytest.FixtureRequest, make_cluster: MakeCluster, oxia: Oxia
) -> InteropCluster:
    """Initialised by Java."""
    uri = oxia.uri(oxia.new_namespace()) if request.param == "oxia" else None
    return make_cluster("pulsar", "metadata-store", uri, java=1, bkbox=2)


def test_each_client_reads_what_the_other_wrote(cluster: InteropCluster) -> None:
    clients = [cluster.client("java-v3"), cluster.client("bkbox-v2")]
    for writer in clients:
        for close in (True, False):
            ledger = write(writer, close=close)
            for reader in clients:
                read(reader, ledger)
    ((status, text),) = cluster.shell(["listbookies", "-rw"])
    assert status == 0
    assert all(bookie.bookie_id in text for bookie in cluster.bookies)


def test_the_office_of_the_auditor_is_one(cluster: InteropCluster) -> None:
    """Apache's auditor is in office; ours waits, takes its place, and is the one that Apache's shell names."""
    cluster.start_autorecovery()

    async def scenario() -> None:
        async with hands(cluster.uri) as our:
            candidacy = our.store.under_replication.candidacy("127.0.0.1:4321")
            assert not await candidacy.is_elected()
            assert await our.store.under_replication.auditor() not in (None, "127.0.0.1:4321")
            await asyncio.to_thread(cluster.stop_autorecovery)
            async with asyncio.timeout(60):
                while not await candidacy.is_elected():
                    await candidacy.changed(5.0)
            ((status, text),) = await asyncio.to_thread(cluster.shell, ["whoisauditor"])
            assert status == 0
            assert "4321" in text
            await candidacy.close()

    asyncio.run(scenario())


def test_apache_s_worker_ends_what_our_auditor_marked(cluster: InteropCluster) -> None:
    clients, ledgers = ledgers_of(cluster)
    newcomer = cluster.add_java().start()
    lost = cluster.of_kind("bkbox")[0]
    cluster.lose(lost)

    async def audit() -> None:
        async with hands(cluster.uri) as our:
            async with asyncio.timeout(60):
                while lost.bookie_id in await our.store.bookies():
                    await asyncio.sleep(0.2)
            assert await our.bookie_check(our.auditor()) >= len(ledgers)

    asyncio.run(audit())
    cluster.start_autorecovery()
    check(cluster, clients, ledgers, newcomer)


def test_apache_s_auditor_marks_and_our_worker_copies(cluster: InteropCluster) -> None:
    """Apache's auditor is in office; its worker and ours share the marks."""
    clients, ledgers = ledgers_of(cluster)
    newcomer = cluster.add_bkbox().start()
    cluster.lose(cluster.of_kind("java")[0])

    async def scenario() -> None:
        async with hands(cluster.uri) as our:
            async with asyncio.timeout(60):
                while not await our.store.under_replication.count():
                    await asyncio.sleep(0.2)
            await our.work_off(our.worker(), timeout_s=100)

    asyncio.run(scenario())
    check(cluster, clients, ledgers, newcomer)
    cluster.stop_autorecovery()


def test_a_cluster_that_bkbox_initialised(make_cluster: MakeCluster, zookeeper: ZooKeeper) -> None:
    """Apache's bookie joins it, and keeps what it needs where bkbox keeps it."""
    cluster = make_cluster("pulsar-ours", "metadata-store", bkbox=2)
    java = cluster.add_java().start()
    ledger = write(cluster.client("java-v3"))
    read(cluster.client("bkbox-v3"), ledger)
    root = f"{cluster.uri.partition('/')[2]}/ledgers"
    assert f"/cookies/{java.bookie_id}" in zookeeper.tree(f"/{root}")


def test_a_cluster_in_oxia_that_bkbox_initialised(make_cluster: MakeCluster, oxia: Oxia) -> None:
    namespace = oxia.new_namespace()
    cluster = make_cluster("oxia-ours", "metadata-store", oxia.uri(namespace), bkbox=2)
    java = cluster.add_java().start()
    ledger = write(cluster.client("java-v3"))
    read(cluster.client("bkbox-v3"), ledger)
    found = oxia.records(namespace)
    assert f"/ledgers/cookies/{java.bookie_id}" in found
    for bookie in cluster.bookies:
        assert found[f"/ledgers/available/{bookie.bookie_id}"][1], "ephemeral"
    parents = {key.rpartition("/")[0] for key in found if key.count("/") > 1}
    assert parents <= set(found), "no record without its parents"
