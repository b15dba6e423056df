"""A ledger moves between two disks, and somebody dies: at every change of every file, on either disk, process or host.

Whatever happens, the ledger has one home in the end, and everything that clients were promised is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bkbox.errors import ConnectionLostError, LedgerNotMovedError
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.migration import (
    CommitImport,
    GetLedger,
    ImportEntries,
    LedgerInfo,
    ListMigrations,
    MigrationList,
    SealExport,
    StartImport,
)
from bkbox.storage.log.records import AckAfter
from tests.bookie.bench import poll3, polled, process, put_into_limbo, read3
from tests.harness import raw3
from tests.supervisor.disks.twodisks import LEDGER, HostLostError, Pair, Side

MODES = [AckAfter.SYNC, AckAfter.WRITE]


async def story(pair: Pair) -> None:
    """What a drain job does with one ledger, while clients write, fence and recover it."""
    await pair.begin()
    await pair.copy(whole=True)
    pair.add(20, 21, 3)
    await pair.copy(whole=False)
    pair.add(22)
    pair.fence()
    pair.put_lac(11)
    pair.add(23)
    await pair.move()
    pair.add(24, 25)


def prepared(folder: Path, mode: AckAfter = AckAfter.SYNC) -> Pair:
    pair = Pair(folder, mode)
    pair.add(*range(20))
    pair.put_lac(5)
    return pair


def run(told: Coroutine[object, object, None]) -> None:
    asyncio.run(told)


async def survived(pair: Pair) -> None:
    """What a supervisor does about whatever has died, and then the ledger moves for good."""
    for side in pair.sides:
        assert side.child is not None
        if not side.child.running:
            side.revive()
            await pair.resolve()
    await pair.resolve()
    pair.check()
    pair.add(30)
    await finish(pair)


async def finish(pair: Pair) -> None:
    if pair.home is pair.source:
        await pair.begin()
        await pair.copy(whole=True)
        assert await pair.move()
    pair.add(31)
    pair.check()
    pair.check_nothing_left()
    assert len(pair.promised.entries) >= 21


def test_a_ledger_moves_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        await story(pair)
        assert pair.home is pair.target
        pair.check()
        pair.check_nothing_left()
        assert pair.promised.fenced
        assert pair.promised.lac == 11
        assert sorted(pair.promised.entries) == list(range(26))
        pair.close()

    run(told())


def crash_points(folder: Path, side: int) -> int:
    """How many changes of files the story makes on a disk."""
    counted = 0

    async def told() -> None:
        nonlocal counted
        pair = prepared(folder)
        before = pair.sides[side].files.calls
        await story(pair)
        counted = pair.sides[side].files.calls - before
        pair.close()

    run(told())
    return counted


@pytest.mark.parametrize(
    ("side", "mode"),
    [
        pytest.param(
            side,
            mode,
            marks=[] if side == number % 2 else pytest.mark.slow,
            id=f"{'target' if side else 'source'}-{mode}",
        )
        for number, mode in enumerate(MODES)
        for side in (0, 1)
    ],
)
def test_a_worker_dies_at_any_change(tmp_path: Path, side: int, mode: AckAfter) -> None:
    points = crash_points(tmp_path / "count", side)
    assert points > 10

    async def told(point: int) -> None:
        pair = prepared(tmp_path / str(point), mode)
        pair.sides[side].files.crash_at(point)
        with contextlib.suppress(ConnectionLostError, LedgerNotMovedError):
            await story(pair)  # the job gives up this try
        await survived(pair)
        pair.close()

    for point in range(1, points + 1):
        run(told(point))


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_the_host_dies_at_any_change(tmp_path: Path, side: int) -> None:
    """With ``ack_after = sync`` nothing that was promised may be missing, and no disk may be suspected."""
    points = crash_points(tmp_path / "count", side)

    async def told(point: int) -> None:
        pair = prepared(tmp_path / str(point))
        for each in pair.sides:
            each.dies_with_host = True
        pair.sides[side].files.crash_at(point)
        try:
            await story(pair)
        except HostLostError:
            pair.front.held, died = False, True
        except (ConnectionLostError, LedgerNotMovedError):
            died = True
        else:
            died = False
        assert died
        for each in pair.sides:
            each.end()
            each.dies_with_host = False
            each.revive_after_host()
            assert not each.may_have_lost
        await pair.resolve()
        # The next front-end asks both disks for their lists.
        [pair.front.home] = [each.uuid for each in pair.sides if LEDGER in each.assigned()]
        pair.check()
        await finish(pair)
        pair.close()

    for point in range(1, points + 1):
        run(told(point))


# ---- whoever asks, answers late, or does not answer -------------------------------------------------


def test_the_answer_to_the_commit_is_lost(tmp_path: Path) -> None:
    """The target has the ledger, and nobody knows: it is found out, before anything is said about it."""

    async def told() -> None:
        pair = prepared(tmp_path)
        real = pair.target.call

        async def lost(
            message: Message, timeout_s: float | None = None, fds: tuple[int, ...] = ()
        ) -> Message:
            answer = await real(message, timeout_s, fds)
            if isinstance(message, CommitImport) and message.commit:
                pair.target.end()
                raise ConnectionLostError("the worker is gone")
            return answer

        pair.target.call = lost  # type: ignore[method-assign]
        await pair.begin()
        await pair.copy(whole=True)
        assert not await pair.move()
        assert pair.front.held, "requests must not be answered from a copy that may be old"
        assert pair.source.placement_unknown
        await pair.resolve()
        assert pair.source.placement_unknown, "the target cannot be asked"
        assert pair.front.held
        pair.target.revive()
        await pair.resolve()
        assert not pair.source.placement_unknown
        assert pair.home is pair.target
        pair.check()
        pair.check_nothing_left()
        pair.close()

    run(told())


def test_a_target_that_may_have_lost_something_puts_the_source_in_doubt(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        await pair.source.call(SealExport(ledger=LEDGER, target=pair.target.uuid))
        pair.target.end()
        pair.target.revive()
        pair.target.may_have_lost = True
        await pair.resolve()
        assert pair.migrator.unresolved == {LEDGER}
        leaving = await pair.source.call(ListMigrations())
        assert isinstance(leaving, MigrationList)
        assert leaving.leaving, "until phase one is durable a crash must come to the same end"
        await pair.migrator.clear_unresolved(pair.sides)
        pair.check()
        pair.check_nothing_left()
        pair.close()

    run(told())


def test_a_target_that_is_no_disk_any_more_puts_the_source_in_doubt(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.source.call(SealExport(ledger=LEDGER, target="a lost disk"))
        await pair.resolve()
        assert pair.migrator.unresolved == {LEDGER}
        pair.close()

    run(told())


def test_a_ledger_in_limbo_is_one_when_it_arrives(tmp_path: Path) -> None:
    """Also one that came into limbo after the copying began: no 'no such entry' of what it may have lost."""

    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        put_into_limbo(pair.source.bookie, LEDGER)
        moved = await pair.migrator.move(LEDGER, pair.source, pair.target, pair.since)
        assert (moved.moved, moved.why) == (True, "")
        pair.promised.fenced = True
        pair.check()
        assert pair.home is pair.target
        state = pair.target.store.ledger_state(LEDGER)
        assert state is not None
        assert state.limbo
        assert pair.target.ask(read3(LEDGER, 10_000)) == [raw3.EUNKNOWN]
        pair.target.end()
        pair.target.revive()
        state = pair.target.store.ledger_state(LEDGER)
        assert state is not None
        assert state.limbo, "over a restart, too"
        pair.close()

    run(told())


def test_a_ledger_that_was_deleted_meanwhile_is_not_brought_back(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        pair.source.bookie.forget(LEDGER)
        assert await pair.move(), "nothing is left to move"
        assert [side.assigned() for side in pair.sides] == [set(), set()]
        assert pair.target.store.entries(LEDGER) == []
        pair.close()

    run(told())


def test_what_arrives_is_not_seen_and_a_late_commit_is_refused(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        assert LEDGER not in pair.target.assigned()
        known = await pair.target.call(GetLedger(ledger=LEDGER))
        assert isinstance(known, LedgerInfo)
        assert not known.known
        await pair.target.call(CommitImport(ledger=LEDGER, commit=False))
        with pytest.raises(LedgerNotMovedError, match="not arriving here any more"):
            await pair.target.call(CommitImport(ledger=LEDGER, commit=True, state="04"))
        with pytest.raises(LedgerNotMovedError):
            await pair.target.call(ImportEntries(ledger=LEDGER, size=0), fds=(0,))
        pair.check()
        pair.close()

    run(told())


def test_a_ledger_cannot_come_to_where_it_is(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        assert await pair.move()
        state = await pair.target.call(GetLedger(ledger=LEDGER))
        assert isinstance(state, LedgerInfo)
        with pytest.raises(LedgerNotMovedError, match="is on the disk"):
            await pair.target.call(StartImport(ledger=LEDGER, state=state.state))
        pair.check()
        pair.close()

    run(told())


def test_a_ledger_may_come_back(tmp_path: Path) -> None:
    """What the first disk remembered of it is not what it says afterwards."""

    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        assert await pair.move()
        pair.add(20, 21)
        pair.fence()
        pair.source, pair.target = pair.target, pair.source
        await pair.begin()
        await pair.copy(whole=True)
        assert await pair.move()
        pair.check()
        pair.check_nothing_left()
        pair.add(22)
        pair.check()
        pair.close()

    run(told())


def test_long_polls_end_when_the_ledger_leaves(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        assert process(pair.source.bookie, poll3(LEDGER, 100, 60_000)) == []
        assert polled(pair.source.bookie) == []
        await pair.source.call(SealExport(ledger=LEDGER, target=pair.target.uuid))
        [(_connection, answer)] = polled(pair.source.bookie)
        assert answer.status == 0
        pair.close()

    run(told())


def test_an_entry_that_cannot_be_read_keeps_its_ledger_where_it_is(tmp_path: Path) -> None:
    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        pair.add(40)
        pair.source.files.fail_read = True
        assert not await pair.move()
        pair.source.files.fail_read = False
        pair.check()
        assert pair.home is pair.source
        await pair.copy(whole=True)
        assert await pair.move()
        pair.check()
        pair.close()

    run(told())


def test_too_much_for_a_short_wait_is_left_to_another_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bkbox.supervisor.disks.ledger_migration._FINAL_COPY_BYTES", 100)

    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        pair.add(20, 21, 22)
        assert not await pair.move()
        pair.check()
        assert pair.home is pair.source
        await pair.copy(whole=False)
        assert await pair.move(), "what had arrived was kept"
        pair.check()
        pair.check_nothing_left()
        pair.close()

    run(told())


def test_a_slow_host_migrates_a_ledger_whose_rest_was_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bkbox.supervisor.disks.ledger_migration._FINAL_COPY_S", -1.0)

    async def told() -> None:
        pair = prepared(tmp_path)
        await pair.begin()
        await pair.copy(whole=True)
        pair.add(20, 21, 22)
        assert await pair.move()
        pair.check()
        pair.check_nothing_left()
        pair.close()

    run(told())


# ---- any order of things ----------------------------------------------------------------------------

STEPS = ["begin", "whole", "again", "add", "fence", "lac", "move", "kill source", "kill target"]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=25),
    crash=st.tuples(st.integers(0, 1), st.integers(1, 60)),
)
def test_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], crash: tuple[int, int]
) -> None:
    folder = tmp_path_factory.mktemp("any")

    async def told() -> None:
        pair = prepared(folder)
        side, point = crash
        pair.sides[side].files.crash_at(point)
        entries = iter(range(20, 1_000))
        acts: dict[str, Callable[[], object]] = {
            "begin": pair.begin,
            "whole": lambda: pair.copy(whole=True),
            "again": lambda: pair.copy(whole=False),
            "add": lambda: pair.add(next(entries), next(entries)),
            "fence": pair.fence,
            "lac": lambda: pair.put_lac(next(entries)),
            "move": pair.move,
            "kill source": lambda: die(pair.source),
            "kill target": lambda: die(pair.target),
        }
        for step in steps:
            try:
                done = acts[step]()
                if asyncio.iscoroutine(done):
                    await done
            except (ConnectionLostError, LedgerNotMovedError):
                pass
        pair.sides[side].files.crash_at(1 << 40)
        await survived(pair)
        pair.close()

    run(told())


def die(side: Side) -> None:
    assert side.child is not None
    if side.child.running:
        side.end()
