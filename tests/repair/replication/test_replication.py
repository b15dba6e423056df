"""The replication worker against real bookies: what a lost bookie had comes back, whatever state a ledger is in."""

from __future__ import annotations

import asyncio

from bkbox.wire.metadata.ledger import DigestType, LedgerState
from tests.jobs.works import FreeWork
from tests.repair.copies import Cluster, hands


def test_all_copies_come_back(cluster: Cluster) -> None:
    """Closed, open, in recovery; striped; with ensemble changes; with every digest; empty."""

    async def scenario() -> None:
        lost = cluster.start(3)[0]
        async with hands(cluster.uri) as our:
            ledgers = {await our.closed(1_500): 1_500}
            for digest in DigestType:
                ledgers[await our.closed(20, digest=digest)] = 20
            ledgers |= {await our.closed(61, 3, 2, 2): 61, await our.closed(30, 2, 2, 2): 30}
            ledgers |= {await our.closed(0): 0, await our.closed(1): 1}
            abandoned = await our.write(40)
            await abandoned.abort()
            ledgers |= {abandoned.ledger_id: 40, await our.in_recovery(33): 33}
            # Their ensembles change when the bookie is lost under them.
            changing = [await our.write(25), await our.write(25, 3, 2, 2)]
            (newcomer,) = cluster.start(1)
            lost.kill()
            await our.wait_gone(lost)
            for writer in changing:
                await our.append(writer, 25)
            await changing[0].close()
            ledgers[changing[0].ledger_id] = 50

            work = FreeWork()
            assert await our.bookie_check(our.auditor()) >= len(ledgers)
            await our.work_off(our.worker(work))
            for ledger, entries in ledgers.items():
                metadata = await our.assert_whole(ledger, entries)
                assert lost.bookie_id not in metadata.bookies()
            there = await our.metadata(changing[1].ledger_id)
            assert there.state is LedgerState.OPEN, "a writer that replaced the bookie is let alone"
            assert lost.bookie_id not in there.bookies()
            await our.assert_copies(there, range(there.last_fragment.first_entry))
            assert newcomer.bookie_id in (await our.metadata(abandoned.ledger_id)).bookies()
            assert work.done["ledgers"] >= len(ledgers)
            assert work.blockers == {}
            assert not await our.store.under_replication.locked()

            await our.append(changing[1], 5)
            await changing[1].close()
            await our.assert_whole(changing[1].ledger_id, 55)

    asyncio.run(scenario())


def test_two_bookies_of_one_fragment_are_replaced(cluster: Cluster) -> None:
    async def scenario() -> None:
        bookies = cluster.start(3)
        async with hands(cluster.uri) as our:
            ledgers = [await our.closed(50), await our.closed(50, 3, 3, 3)]
            cluster.start(2)
            for bookie in bookies[:2]:
                bookie.kill()
                await our.wait_gone(bookie)
            await our.bookie_check(our.auditor())
            await our.work_off(our.worker())
            for ledger in ledgers:
                metadata = await our.assert_whole(ledger, 50)
                assert len(metadata.bookies()) == 3

    asyncio.run(scenario())


def test_the_writer_of_an_open_ledger_gets_its_time(cluster: Cluster) -> None:
    """Nothing is done to the ledger before the grace period is over; then the writer is fenced, and nothing that was
    acknowledged is lost."""

    async def scenario() -> None:
        lost = cluster.start(3)[0]
        async with hands(cluster.uri) as our:
            idle = await our.write(30)
            cluster.start(1)
            lost.kill()
            await our.wait_gone(lost)
            await our.bookie_check(our.auditor())
            before = await our.store.read_ledger(idle.ledger_id)
            patient = our.worker(grace_s=3.0)
            for _ in range(3):
                assert not await patient.round()
            assert await our.store.read_ledger(idle.ledger_id) == before
            assert not await our.store.under_replication.locked()
            await asyncio.sleep(3.2)
            await our.work_off(patient)
            await our.assert_whole(idle.ledger_id, 30)

    asyncio.run(scenario())


def test_risky_ledgers_come_first(cluster: Cluster) -> None:
    async def scenario() -> None:
        lost = cluster.start(3)[0]
        async with hands(cluster.uri) as our:
            safe = [await our.closed(3) for _ in range(6)]
            risky = [await our.closed(3, 3, 2, 2) for _ in range(6)]
            cluster.start(1)
            lost.kill()
            await our.wait_gone(lost)
            await our.bookie_check(our.auditor())
            work = FreeWork()
            await our.work_off(our.worker(work, ledgers_at_once=1))
            order: list[int] = []
            for step in work.steps:
                if step.startswith("copying ledger"):
                    ledger = int(step.split()[2].rstrip(","))
                    order += [ledger] if ledger not in order else []
            assert set(order[:6]) == set(risky)
            assert set(order) == {*safe, *risky}

    asyncio.run(scenario())
