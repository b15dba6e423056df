"""The drain job over real disks, without processes: what moves, what stays and why, what a cancelled job leaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bkbox.errors import DiskChangeError, JobCancelledError
from bkbox.ipc.messages.disk import ListLedgers
from bkbox.ipc.messages.items import LEDGER_ITEM, LIMBO
from bkbox.ipc.messages.message import Done, Message, Page
from bkbox.ipc.messages.migration import (
    DiskSpaceReply,
    FindDisk,
    GetLedger,
    LedgerInfo,
    MoveLedger,
    StartImport,
)
from bkbox.ipc.messages.repair import Draining
from bkbox.repair.context import Environment
from bkbox.repair.drain import drain
from bkbox.supervisor.children.child_group import ChildGroup
from bkbox.supervisor.disks.ledger_migration import LedgerMigrator
from tests.bookie.bench import add3, put_into_limbo
from tests.harness import raw3
from tests.jobs.works import FreeWork
from tests.supervisor.disks.twodisks import Side

LEDGERS = range(1, 7)


class Channel:
    """What the job asks a disk worker by."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.closed = False

    async def call(
        self, message: Message, fds: Sequence[int] = (), timeout_s: float | None = None
    ) -> Message:
        if isinstance(message, ListLedgers):
            found = self.side.moves.assigned_ledgers(message.after)
            items = [(ledger, LIMBO * state.limbo) for ledger, state in found]
            payload = b"".join(LEDGER_ITEM.pack(*item) for item in items)
            return Page(payload=payload)
        return await self.side.call(message, timeout_s, tuple(fds))


class Bookie:
    """The supervisor, as the job sees it: ``room`` says whether any disk takes more."""

    def __init__(self, folder: Path) -> None:
        self.sides = [Side(number, folder / str(number)) for number in (1, 2)]
        self.moving = LedgerMigrator(ChildGroup())
        self.room = True
        self.draining: list[bool] = []
        self.asked = 0
        for ledger in LEDGERS:
            frames = [add3(ledger, entry, b"x" * 100) for entry in range(5)]
            assert set(self.sides[0].ask(*frames)) == {raw3.EOK}

    async def call(self, message: Message) -> Message:
        self.asked += 1
        match message:
            case Draining():
                self.draining.append(message.wanted)
                return Done()
            case FindDisk():
                why = "" if self.room else "full"
                return DiskSpaceReply(disk=self.sides[1].uuid if self.room else "", why=why)
            case MoveLedger():
                source, target = self.sides
                return await self.moving.move(message.ledger, source, target, message.since)
            case _:
                raise AssertionError(message)

    def environment(self) -> Environment:
        order: Any = Done()
        order.retry_initial_s = order.retry_max_s = 0.01
        nothing: Any = None
        disks: Any = {side.uuid: Channel(side) for side in self.sides}
        return Environment(
            me=nothing,
            store=nothing,
            client=nothing,
            disks=disks,
            order=order,
            rng=random.Random(1),
            wall_ms=lambda: 0,
            monotonic_s=asyncio.get_running_loop().time,
            supervisor=self,  # type: ignore[arg-type]
        )

    async def drain(self, work: FreeWork) -> None:
        await drain(work, self.environment(), {"disk": self.sides[0].uuid})

    def homes(self) -> list[set[int]]:
        return [side.assigned() for side in self.sides]

    def close(self) -> None:
        for side in self.sides:
            assert not side.moves._arriving
            assert not side.moves._leaving
            side.end()


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    return Bookie(tmp_path)


async def until(work: FreeWork, ledger: int, reason: str) -> None:
    async with asyncio.timeout(20):
        while not any(
            number == ledger and reason in why for number, (why, _todo) in work.blockers.items()
        ):
            await asyncio.sleep(0.01)


def test_everything_moves(bookie: Bookie) -> None:
    async def story() -> None:
        work = FreeWork()
        await bookie.drain(work)
        assert bookie.homes() == [set(), set(LEDGERS)]
        assert bookie.draining == [True], "it stays closed until it is removed"
        assert work.blockers == {}

    asyncio.run(story())
    bookie.close()


def test_a_ledger_in_limbo_moves_last_and_stays_in_limbo(bookie: Bookie) -> None:
    async def story() -> None:
        put_into_limbo(bookie.sides[0].bookie, 3)
        work = FreeWork()
        await bookie.drain(work)
        assert bookie.homes() == [set(), set(LEDGERS)]
        assert work.blockers == {}
        moves = [step for step in work.steps if step.startswith("moves ledger")]
        assert moves[-1] == "moves ledger 3"
        states = {ledger: state.limbo for ledger, state in bookie.sides[1].moves.assigned_ledgers()}
        assert states == {ledger: ledger == 3 for ledger in LEDGERS}

    asyncio.run(story())
    bookie.close()


def test_entries_that_cannot_be_read_are_named(bookie: Bookie) -> None:
    async def story() -> None:
        work = FreeWork()
        bookie.sides[0].files.fail_read = True
        job = asyncio.ensure_future(bookie.drain(work))
        await until(work, 1, "entries 0, 1, 2, 3, 4 cannot be read")
        bookie.sides[0].files.fail_read = False
        await asyncio.wait_for(job, 20)
        assert bookie.homes() == [set(), set(LEDGERS)]

    asyncio.run(story())
    bookie.close()


def test_a_drain_without_room_waits_and_is_given_up(bookie: Bookie) -> None:
    async def story() -> None:
        bookie.room = False
        work = FreeWork()
        job = asyncio.ensure_future(bookie.drain(work))
        await until(work, 1, "full")
        assert set(work.blockers) == {1}, "nobody else is tried"
        work.cancel_at = 0
        with pytest.raises(JobCancelledError):
            await asyncio.wait_for(job, 20)
        assert bookie.homes() == [set(LEDGERS), set()]
        assert bookie.draining == [True, False], "it takes new ledgers again"

    asyncio.run(story())
    bookie.close()


@pytest.mark.parametrize("turns", range(1, 14))
def test_a_drain_cancelled_at_any_turn_leaves_nothing_half_done(tmp_path: Path, turns: int) -> None:
    bookie = Bookie(tmp_path)

    async def story() -> None:
        with pytest.raises(JobCancelledError):
            await bookie.drain(FreeWork(cancel_at=turns))
        one, other = bookie.homes()
        assert one | other == set(LEDGERS)
        assert one & other == set()
        assert one
        for ledger in one:
            assert bookie.sides[1].store.ledger_state(ledger) is None
            assert bookie.sides[1].store.entries(ledger) == []
        assert bookie.draining[-1] is False

    asyncio.run(story())
    bookie.close()


def test_copies_of_an_earlier_run_are_dropped(bookie: Bookie) -> None:
    async def story() -> None:
        source, target = bookie.sides
        known = await source.call(GetLedger(ledger=2))
        assert isinstance(known, LedgerInfo)
        await target.call(StartImport(ledger=2, state=known.state))
        await bookie.drain(FreeWork())
        assert bookie.homes() == [set(), set(LEDGERS)]

    asyncio.run(story())
    bookie.close()


def test_a_target_that_dies_is_waited_for(bookie: Bookie) -> None:
    async def story() -> None:
        work = FreeWork()
        target = bookie.sides[1]
        target.files.crash_at(5)
        job = asyncio.ensure_future(bookie.drain(work))
        async with asyncio.timeout(20):
            while target.child is not None and target.child.running:
                await asyncio.sleep(0.01)
        await until(work, 1, "gone")
        target.revive()
        await asyncio.wait_for(job, 20)
        assert bookie.homes() == [set(), set(LEDGERS)]

    asyncio.run(story())
    bookie.close()


def test_a_refusal_is_the_jobs_error(bookie: Bookie) -> None:
    async def story() -> None:
        async def refuses(_message: Message) -> Message:
            raise DiskChangeError("the last disk")

        bookie.call = refuses  # type: ignore[method-assign]
        with pytest.raises(DiskChangeError, match="the last disk"):
            await bookie.drain(FreeWork())

    asyncio.run(story())
    bookie.close()
