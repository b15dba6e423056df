"""What a worker makes of marks: dropped, worked off in place, left alone, quarantined. One cluster of three bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.errors import JobCancelledError
from bkbox.metadata import maintenance
from bkbox.wire.metadata.ledger import Fragment
from tests.harness.processes import BookieProcess
from tests.jobs.works import FreeWork
from tests.repair.copies import Cluster, Hands, hands

NOBODY = BookieId("127.0.0.1:1")


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("marks"))
    found.start(3)
    yield found
    found.close()


class Scene:
    """A test's coroutine with the hands on the cluster; everything is unmarked and enabled before and after."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def run(self, scenario: Any) -> None:
        async def go() -> None:
            async with hands(self.cluster.uri) as our:
                tree = our.store.under_replication
                try:
                    await scenario(our, *self.cluster.bookies)
                    assert not await tree.locked()
                finally:
                    await tree.set_enabled(True)
                    async for ledger in tree.ledgers():
                        task = await tree.acquire(ledger, "cleaner")
                        assert task is not None
                        await tree.finish(task)

        asyncio.run(go())


@pytest.fixture
def scene(bookies: Cluster) -> Scene:
    return Scene(bookies)


def test_marks_that_are_stale_are_dropped(scene: Scene) -> None:
    """The bookie is back; the ledger was deleted; everything is there. Nothing is copied."""

    async def scenario(our: Hands, a: BookieProcess, *_: BookieProcess) -> None:
        ledger, deleted = await our.closed(20), await our.closed(20)
        still_open = await our.write(10)
        before = await our.store.read_ledger(ledger)
        await our.mark(a, ledger, deleted, still_open.ledger_id)
        await our.store.delete_ledger(deleted)
        work = FreeWork()
        assert await our.worker(work).round()
        assert await our.store.under_replication.count() == 0
        assert await our.store.read_ledger(ledger) == before
        assert work.done["entries"] == 0
        assert work.done["ledgers"] == 3
        await our.append(still_open, 1)

    scene.run(scenario)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 1, 1)])
def test_what_a_bookie_lacks_is_put_back_in_its_place(scene: Scene, sizes: tuple[int, ...]) -> None:
    """No other bookie is needed for that, and the metadata stay as they are."""

    async def scenario(our: Hands, *there: BookieProcess) -> None:
        ledger = await our.closed(40, *sizes)
        members = (await our.metadata(ledger)).bookies()
        (spare,) = (each for each in there if each.bookie_id not in members)
        old = next(each for each in there if each.bookie_id in members)
        await our.rename(ledger, old, spare.bookie_id)
        before = await our.store.read_ledger(ledger)
        await our.mark(spare, ledger)
        if sizes[1] == 1:
            work = FreeWork()
            assert not await our.worker(work).round()
            assert list(work.blockers) == [ledger], "the bookie that has them is not named any more"
            assert "no other bookie holds it" in work.blockers[ledger][0]
            return
        assert await our.worker().round()
        assert await our.store.read_ledger(ledger) == before
        await our.assert_whole(ledger, 40)

    scene.run(scenario)


def test_the_switch_stops_the_worker(scene: Scene) -> None:
    async def scenario(our: Hands, a: BookieProcess, *_: BookieProcess) -> None:
        await our.mark(a, await our.closed(5))
        work = FreeWork()
        worker = our.worker(work)
        await our.store.under_replication.set_enabled(False)
        assert not await worker.round()
        assert await our.store.under_replication.count() == 1
        assert "bkbox autorecovery enable" in work.steps[-1]
        await our.store.under_replication.set_enabled(True)
        assert await worker.round()

    scene.run(scenario)


def test_the_hopeless_is_quarantined_until_something_changes(scene: Scene) -> None:
    async def scenario(our: Hands, *there: BookieProcess) -> None:
        ledger = await our.closed(10, 1, 1, 1)
        found = await our.store.read_ledger(ledger)
        kept = found.value.fragments
        gone = replace(found.value, fragments=(Fragment(EntryId(0), (NOBODY,)),))
        written = await our.store.write_ledger(gone, found.version)
        tree = our.store.under_replication
        await tree.mark(ledger, [NOBODY], 1)
        work = FreeWork()
        worker = our.worker(work, retry_max_s=3600.0)
        assert not await worker.round()
        reason, advice = work.blockers[ledger]
        assert "entry 0" in reason
        assert str(NOBODY) in reason
        assert "bring back" in advice
        copied = work.steps.count(f"copying ledger {ledger}, entries from 0 on")
        for _ in range(5):
            assert not await worker.round()
            await asyncio.sleep(0.05)
        assert work.steps.count(f"copying ledger {ledger}, entries from 0 on") == copied
        assert "quarantined" in work.steps[-1]
        assert not await tree.locked()
        # Somebody names the bookie that has it after all.
        back = replace(written.value, fragments=kept)
        await our.store.write_ledger(back, written.version)
        assert await worker.round()
        assert work.blockers == {}
        assert await tree.count() == 0

    scene.run(scenario)


def test_where_there_is_nobody_to_copy_to_it_waits_for_a_bookie(scene: Scene) -> None:
    async def scenario(our: Hands, a: BookieProcess, *_: BookieProcess) -> None:
        ledger = await our.closed(10, 3, 3, 2)
        found = await our.store.read_ledger(ledger)
        (fragment,) = found.value.fragments
        ensemble = tuple(NOBODY if name == a.bookie_id else name for name in fragment.ensemble)
        await our.store.write_ledger(
            replace(found.value, fragments=(replace(fragment, ensemble=ensemble),)), found.version
        )
        # Its one writable spare is the bookie that was named before.
        await our.store.under_replication.mark(ledger, [NOBODY], 1)
        await our.work_off(our.worker())
        assert a.bookie_id in (await our.assert_whole(ledger, 10)).bookies()

        five = await our.closed(10, 3, 3, 2)
        await our.rename(five, a, NOBODY)
        registered = await our.store.bookies()
        await our.store.under_replication.mark(five, [NOBODY], 1)
        work = FreeWork()
        worker = our.worker(work)

        async def without_a() -> Any:
            return {name: each for name, each in registered.items() if name != a.bookie_id}

        real = our.store.bookies
        our.store.bookies = without_a  # type: ignore[method-assign]
        try:
            for _ in range(3):
                assert not await worker.round()
            assert "no writable bookie" in work.blockers[five][0]
            assert "start another bookie" in work.blockers[five][1]
        finally:
            our.store.bookies = real  # type: ignore[method-assign]
        await our.work_off(worker)
        assert work.blockers == {}
        await our.assert_whole(five, 10)

    scene.run(scenario)


def test_a_bookie_that_rests_is_waited_for(scene: Scene) -> None:
    """Whoever marked it: nothing is copied, and no writer is fenced."""

    async def scenario(our: Hands, a: BookieProcess, *_: BookieProcess) -> None:
        ledger = await our.closed(10, 3, 3, 2)
        await our.rename(ledger, a, NOBODY)
        before = await our.store.read_ledger(ledger)
        await our.store.under_replication.mark(ledger, [NOBODY], 1)
        now_ms = 10**15
        await our.store.maintenance_windows.put(NOBODY, maintenance.MaintenanceWindow(now_ms))
        work = FreeWork()
        worker = our.worker(work)
        for _ in range(3):
            assert not await worker.round()
        assert await our.store.read_ledger(ledger) == before
        assert "does not say what it has" in work.blockers[ledger][0]
        await our.store.maintenance_windows.remove(NOBODY)
        await our.work_off(worker)
        await our.assert_whole(ledger, 10)

    scene.run(scenario)


def test_marks_without_bookies_are_java_s(scene: Scene) -> None:
    async def scenario(our: Hands, *_: BookieProcess) -> None:
        ledger = await our.closed(5)
        await our.store.under_replication.mark(ledger, [], 1)
        worker = our.worker()
        for _ in range(2):
            assert not await worker.round()
        assert await our.store.under_replication.count() == 1

    scene.run(scenario)


def test_workers_share_the_work(scene: Scene) -> None:
    async def scenario(our: Hands, a: BookieProcess, *_: BookieProcess) -> None:
        ledgers = [await our.closed(5, 3, 3, 2) for _ in range(12)]
        for ledger in ledgers:
            await our.rename(ledger, a, NOBODY)
            await our.store.under_replication.mark(ledger, [NOBODY], 1)
        async with hands(scene.cluster.uri) as other:
            works = [FreeWork(), FreeWork()]
            await asyncio.gather(
                our.work_off(our.worker(works[0])), other.work_off(other.worker(works[1]))
            )
        assert sum(work.done["ledgers"] for work in works) == len(ledgers)
        for ledger in ledgers:
            await our.assert_whole(ledger, 5)

    scene.run(scenario)


def test_what_somebody_else_has_changed_meanwhile_stays(scene: Scene) -> None:
    """The new bookie is named by compare-and-set on the metadata by which it was chosen."""

    class Meddled(FreeWork):
        """Somebody changes the ledger just before a copy is sent."""

        def __init__(self, our: Hands, ledger: LedgerId) -> None:
            super().__init__()
            self._our, self._ledger = our, ledger
            self.changed = 0

        async def checkpoint(self, **costs: int) -> int:
            if costs.get("network_bytes") and not self.changed:
                self.changed += 1
                found = await self._our.store.read_ledger(self._ledger)
                theirs = replace(found.value, custom=(("meanwhile", b"1"),))
                await self._our.store.write_ledger(theirs, found.version)
            return await super().checkpoint(**costs)

    async def scenario(our: Hands, a: BookieProcess, *_: BookieProcess) -> None:
        ledger = await our.closed(30, 2, 2, 2)
        taken = (await our.metadata(ledger)).fragments[0].ensemble[0]
        old = next(each for each in scene.cluster.bookies if each.bookie_id == taken)
        await our.rename(ledger, old, NOBODY)
        await our.store.under_replication.mark(ledger, [NOBODY], 1)
        work = Meddled(our, ledger)
        await our.work_off(our.worker(work))
        assert work.changed == 1
        metadata = await our.assert_whole(ledger, 30)
        assert NOBODY not in metadata.bookies()
        assert dict(metadata.custom)["meanwhile"] == b"1"

    scene.run(scenario)


def test_cancelled_at_any_turn_nothing_is_half_done(scene: Scene) -> None:
    """The lock is given back, the mark stays, and the next worker ends it."""

    async def scenario(our: Hands, a: BookieProcess, *_: BookieProcess) -> None:
        for turn in range(1, 12):
            ledger = await our.closed(30, 3, 3, 2)
            await our.rename(ledger, a, NOBODY)
            await our.store.under_replication.mark(ledger, [NOBODY], 1)
            worker = our.worker(FreeWork(cancel_at=turn))
            try:
                await our.work_off(worker)
            except JobCancelledError:
                assert not await our.store.under_replication.locked()
                assert await our.store.under_replication.find(ledger) is not None
                await our.work_off(our.worker())
            await our.assert_whole(ledger, 30)

    scene.run(scenario)
