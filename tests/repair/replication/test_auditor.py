"""The auditor: who is lost, what is marked, and what is not."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from bkbox.base.ids import BookieId
from bkbox.errors import JobCancelledError
from bkbox.metadata import maintenance
from bkbox.repair.replication import auditor
from bkbox.repair.replication.auditor import Auditor
from tests.jobs.works import FreeWork
from tests.repair.copies import Cluster, Hands, hands


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """An auditor looks around all the time."""
    monkeypatch.setattr(auditor, "POLL_INTERVAL_S", 0.1)


class Clock:
    """The monotonic clock, and so many seconds more as a test has let pass."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.passed_s


async def looks(work: FreeWork) -> None:
    """The auditor has looked around twice from here on."""
    said = len(work.steps)
    await until(lambda: len(work.steps) >= said + 5)


class Running:
    """An auditor at work, cancelled at the end as an operator does it."""

    def __init__(self, auditor: Auditor, work: FreeWork) -> None:
        self._auditor = auditor
        self._work = work

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._auditor.run())

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel_at = 0
        with suppress(JobCancelledError):
            await asyncio.wait_for(self._task, 10)


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.1)


async def marks(our: Hands) -> dict[int, tuple[str, ...]]:
    tree = our.store.under_replication
    found = {}
    async for ledger in tree.ledgers():
        mark = await tree.find(ledger)
        found[int(ledger)] = mark.replicas if mark is not None else ()
    return found


DELAY_S = 600


def test_a_bookie_that_is_lost_and_one_that_rests(cluster: Cluster) -> None:
    async def scenario() -> None:
        a, b, _ = cluster.start(3)
        async with hands(cluster.uri) as our:
            ledgers = [await our.closed(5), (await our.write(5)).ledger_id]
            tree = our.store.under_replication
            work = FreeWork()
            clock = Clock()
            running = our.auditor(work, clock, lost_bookie_delay_s=DELAY_S)
            async with Running(running, work):
                await until(lambda: any("this is the auditor" in each for each in work.steps))
                assert await tree.auditor() == "auditor:1"
                delay = await tree.recovery_delay()
                assert delay is not None
                assert delay.seconds == DELAY_S, "said for every auditor of the cluster"

                # Away for less than that: nothing happens.
                a.kill()
                await until(lambda: f"lost: {a.bookie_id}" in work.steps[-1])
                a.start()
                await until(lambda: "lost: none" in work.steps[-1])
                clock.passed_s += 2 * DELAY_S
                await looks(work)
                assert await marks(our) == {}

                # Under maintenance: nothing happens, however long.
                await our.store.maintenance_windows.put(
                    BookieId(a.bookie_id), maintenance.MaintenanceWindow(10**15)
                )
                a.kill()
                await our.wait_gone(a)
                await looks(work)
                clock.passed_s += 2 * DELAY_S
                await looks(work)
                assert await marks(our) == {}

                # Lost: its ledgers are marked, when its time is over.
                await our.store.maintenance_windows.remove(BookieId(a.bookie_id))
                await until(
                    lambda: len(work.steps) > 0 and f"lost: {a.bookie_id}" in work.steps[-1]
                )
                await looks(work)
                assert await marks(our) == {}
                clock.passed_s += DELAY_S
                await until(lambda: all_marked(our, ledgers, a.bookie_id))

                # A second one is lost while the switch is off; its time begins when it is on.
                await tree.set_enabled(False)
                await until(lambda: "disabled" in work.steps[-1])
                b.kill()
                await our.wait_gone(b)
                await looks(work)
                assert all(b.bookie_id not in each for each in (await marks(our)).values())
                await tree.set_enabled(True)
                await until(lambda: b.bookie_id in work.steps[-1])
                clock.passed_s += DELAY_S
                await until(lambda: all_marked(our, ledgers, b.bookie_id))
            assert await tree.auditor() is None

    async def all_marked(our: Hands, ledgers: list[int], bookie: str) -> bool:
        found = await marks(our)
        return all(bookie in found.get(ledger, ()) for ledger in ledgers)

    asyncio.run(scenario())


def test_the_signal_does_not_wait(cluster: Cluster) -> None:
    """Writing the delay anew, unchanged, is what BookKeeper's `triggeraudit` does."""

    async def scenario() -> None:
        a, *_ = cluster.start(3)
        async with hands(cluster.uri) as our:
            ledger = await our.closed(5)
            tree = our.store.under_replication
            work = FreeWork()
            async with Running(our.auditor(work, lost_bookie_delay_s=600), work):
                await until(lambda: any("this is the auditor" in each for each in work.steps))
                a.kill()
                await until(lambda: f"lost: {a.bookie_id}" in work.steps[-1])
                await tree.set_recovery_delay_s(500)
                await looks(work)
                assert await marks(our) == {}
                await tree.set_recovery_delay_s(500)
                await until(lambda: tree.find(ledger))

    asyncio.run(scenario())


def test_the_full_check_marks_what_is_missing_and_never_who_is_silent(cluster: Cluster) -> None:
    async def scenario() -> None:
        a, b, c = cluster.start(3)
        async with hands(cluster.uri, read_timeout_s=1.0) as our:
            whole, striped = await our.closed(30), await our.closed(30, 3, 2, 2)
            lacking = await our.closed(30, 2, 2, 2)
            members = (await our.metadata(lacking)).bookies()
            (spare,) = (each for each in (a, b, c) if each.bookie_id not in members)
            old = next(each for each in (a, b, c) if each.bookie_id in members)
            await our.rename(lacking, old, spare.bookie_id)
            # A ledger that names somebody who is nowhere is the other check's business.
            nobody = await our.closed(5, 1, 1, 1)
            await our.misname(nobody, "127.0.0.1:1")
            open_ = await our.write(10)
            await our.store.delete_ledger(await our.closed(1))
            auditor = our.auditor()
            assert await auditor.check_all_ledgers() == 1
            assert await marks(our) == {lacking: (spare.bookie_id,)}
            assert await our.store.under_replication.last_full_check_ms() is not None
            assert await auditor.check_all_ledgers() == 1, "marked again is marked once"
            await our.work_off(our.worker())
            assert await auditor.check_all_ledgers() == 0
            await our.assert_whole(lacking, 30)

            # One that hangs says nothing: nothing is missing, and nothing is copied.
            for process in (*a.children(),):
                process.suspend()
            try:
                assert await auditor.check_all_ledgers() == 0
            finally:
                for process in (*a.children(),):
                    process.resume()
            assert await marks(our) == {}
            for ledger in (whole, striped):
                await our.assert_whole(ledger, 30)
            await our.append(open_, 1)

    asyncio.run(scenario())


def test_metadata_that_cannot_be_read_stop_nothing_else(cluster: Cluster) -> None:
    async def scenario() -> None:
        a, *_ = cluster.start(3)
        async with hands(cluster.uri) as our:
            broken, ledger = await our.closed(5), await our.closed(5)
            with closing(sqlite3.connect(cluster.root / "metadata.db")) as other, other:
                other.execute("UPDATE ledger SET metadata = x'00' WHERE ledger_id = ?", (broken,))
            a.kill()
            await our.wait_gone(a)
            work = FreeWork()
            assert await our.bookie_check(our.auditor(work)) == 1
            assert list(await marks(our)) == [ledger]
            assert list(work.blockers) == [broken]

    asyncio.run(scenario())


def test_one_auditor_of_two_and_the_other_after_it(cluster: Cluster) -> None:
    async def scenario() -> None:
        cluster.start(3)
        async with hands(cluster.uri) as our:
            ledger = await our.closed(5)
            works = [FreeWork(), FreeWork()]
            first = Running(our.auditor(works[0], name="one:1"), works[0])
            second = Running(our.auditor(works[1], name="two:2"), works[1])
            async with second:
                async with first:
                    await until(lambda: any("this is" in x for w in works for x in w.steps))
                    await until(lambda: any("standing by" in x for w in works for x in w.steps))
                assert await our.store.under_replication.auditor() in ("two:2", None)
                await until(lambda: "this is the auditor" in works[1].steps[-1])
                # A bookie that nobody has ever seen is found at the beginning of a term.
                await our.misname(ledger, "x:1")
            work = FreeWork()
            async with Running(our.auditor(work, lost_bookie_delay_s=600), work):
                await until(lambda: our.store.under_replication.find(ledger))
            assert (await marks(our))[ledger] == ("x:1",)

    asyncio.run(scenario())
