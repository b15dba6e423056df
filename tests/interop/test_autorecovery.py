"""bkbox's auditor and worker beside Apache's, on the tree of one cluster: each ends what the other began."""

from __future__ import annotations

import asyncio
import random

import pytest

from bkbox.base.ids import LedgerId
from tests.harness.waiting import wait_for
from tests.interop.clients import Client
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import Bookie, InteropCluster
from tests.interop.test_rereplication import read, wait_replaced, wait_unmarked, write
from tests.repair.copies import hands


def ledgers_of(cluster: InteropCluster) -> tuple[list[Client], list[int]]:
    """Closed and open ones of both clients, on all bookies that are there."""
    clients: list[Client] = [cluster.client("java-v3"), cluster.client("bkbox-v2")]
    return clients, [write(client, close=close) for client in clients for close in (True, False)]


def is_marked(cluster: InteropCluster, ledgers: list[int]) -> bool:
    async def look() -> bool:
        async with hands(cluster.uri) as our:
            return set(ledgers) <= await our.store.underreplicated()

    return asyncio.run(look())


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> InteropCluster:
    return make_cluster("shared", java=2, bkbox=1)


def check(
    cluster: InteropCluster, clients: list[Client], ledgers: list[int], newcomer: Bookie
) -> None:
    wait_replaced(cluster, ledgers, newcomer)
    for client in clients:
        for ledger in ledgers:
            read(client, ledger)
    wait_unmarked(cluster)


def test_apache_s_worker_ends_what_our_auditor_marked(cluster: InteropCluster) -> None:
    """A bkbox bookie is lost, and one of Apache's takes its place."""
    clients, ledgers = ledgers_of(cluster)
    newcomer = cluster.add_java().start()
    lost = cluster.of_kind("bkbox")[0]
    cluster.lose(lost)

    async def audit() -> None:
        async with hands(cluster.uri) as our:
            async with asyncio.timeout(60):
                while lost.bookie_id in await our.store.bookies():
                    await asyncio.sleep(0.2)
            assert await our.bookie_check(our.auditor()) == len(ledgers)

    asyncio.run(audit())
    ((status, text),) = cluster.shell(["listunderreplicated", "-pmr"])
    assert status == 0
    assert all(str(ledger) in text for ledger in ledgers)
    assert lost.bookie_id in text
    cluster.start_autorecovery()
    check(cluster, clients, ledgers, newcomer)
    cluster.stop_autorecovery()


def test_our_worker_ends_what_apache_s_auditor_marked(cluster: InteropCluster) -> None:
    """One of Apache's bookies is lost, and one of bkbox's takes its place. Apache's worker is kept off by our locks
    until its process is gone."""
    clients, ledgers = ledgers_of(cluster)
    newcomer = cluster.add_bkbox().start()
    lost = cluster.of_kind("java")[0]

    async def scenario() -> None:
        async with hands(cluster.uri) as our:
            tree = our.store.under_replication
            locks = [await tree.lock(LedgerId(ledger), "test") for ledger in ledgers]
            await asyncio.to_thread(cluster.start_autorecovery)
            cluster.lose(lost)
            await asyncio.to_thread(
                wait_for,
                lambda: is_marked(cluster, ledgers),
                "Apache's auditor to mark them",
                60.0,
                0.5,
            )
            cluster.stop_autorecovery()
            for lock in locks:
                assert lock is not None, "nobody else has it"
                await tree.unlock(lock)
            await our.work_off(our.worker(), timeout_s=100)

    asyncio.run(scenario())
    check(cluster, clients, ledgers, newcomer)


def test_both_at_once(cluster: InteropCluster) -> None:
    """Two workers of bkbox and one of Apache's share the marks; one auditor is in office, whoever it is."""
    clients, ledgers = ledgers_of(cluster)
    more = [write(client) for client in clients for _ in range(8)]
    newcomer = cluster.add_bkbox().start()
    lost = cluster.of_kind("java")[0]
    cluster.start_autorecovery()

    async def scenario() -> None:
        async with hands(cluster.uri) as our, hands(cluster.uri) as other:
            lock = await our.store.under_replication.lock(LedgerId(ledgers[0]), "test")
            assert lock is not None, "so that its mark is there to be seen"
            cluster.lose(lost)
            await asyncio.to_thread(
                wait_for, lambda: is_marked(cluster, ledgers[:1]), "the first marks", 60.0, 0.2
            )
            await our.store.under_replication.unlock(lock)
            rng = random.Random(1)
            workers = [our.worker(grace_s=1.0), other.worker(grace_s=1.0)]
            async with asyncio.timeout(120):
                while await our.store.under_replication.count():
                    await asyncio.gather(*(worker.round() for worker in workers))
                    await asyncio.sleep(rng.uniform(0.1, 0.4))

    asyncio.run(scenario())
    check(cluster, clients, ledgers + more, newcomer)
    cluster.stop_autorecovery()


def test_the_office_passes_from_apache_s_auditor_to_ours(cluster: InteropCluster) -> None:
    cluster.start_autorecovery()

    async def scenario() -> None:
        async with hands(cluster.uri) as our:
            candidacy = our.store.under_replication.candidacy("127.0.0.1:4321")
            assert not await candidacy.is_elected()
            java = await our.store.under_replication.auditor()
            assert java is not None
            assert java != "127.0.0.1:4321"
            await asyncio.to_thread(cluster.stop_autorecovery)
            async with asyncio.timeout(60):
                while not await candidacy.is_elected():
                    await candidacy.changed(5.0)
            ((status, text),) = await asyncio.to_thread(cluster.shell, ["whoisauditor"])
            assert status == 0
            assert "4321" in text
            await candidacy.close()

    asyncio.run(scenario())
