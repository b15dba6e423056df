"""Logs under duelling writers, crashes, truncations, ledgers deleted by hand and a metadata store that loses responses.

The real code of bkbox/client/log runs on simulated time over fake_ledgers.py. ``python -m proof.sim.logs --seeds N``
runs N seeds and reports violations; ``--break NAME`` removes one safeguard, which must be detected. The properties are
in log_checks.py.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client.client import Client
from bkbox.client.log import ledger_list, log_open, rolling, writer
from bkbox.client.log.ledger_list import LedgerList
from bkbox.client.log.log import Log
from bkbox.client.log.options import LogOptions
from bkbox.client.log.position import Position
from bkbox.client.log.sequences import Sequences
from bkbox.errors import BkboxError, LogLedgerLostError, LogTruncatedError, NotLeaderError
from proof.sim.logs.fake_ledgers import SimClient, SimLists, SimReader, World
from proof.sim.logs.log_checks import PRODUCERS, History, check
from proof.sim.patching import replaced
from proof.sim.world.loop import Process, Scheduler

NAME = "log"
TROUBLE_S = (5.0, 20.0)
"""Durations of the phase with faults, in seconds; one of them is drawn."""
QUIESCENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``problem``: the violated property, None if all hold; the other fields count events."""

    problem: str | None
    openings: int
    records: int
    ledgers: int
    crashes: int
    truncations: int
    events: int


class _Run:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.scheduler = scheduler = Scheduler(seed, traced=False)
        self.rng = rng = scheduler.rng
        self.world = World(scheduler)
        self.world.trouble = rng.choice((0.0, 0.01, 0.05))
        self.world.delay_s = rng.choice((0.002, 0.02, 0.1))
        self.world.window_bytes = rng.choice((1, 300, 5_000))
        self.state_every_bytes = rng.choice((1, 200, writer.STATE_EVERY_BYTES))
        self.history = History()
        self._trouble_s = rng.choice(TROUBLE_S)
        self.crashes = self.truncations = 0
        self._options = LogOptions(
            roll_bytes=rng.choice((150, 400, 2_000)),
            roll_s=rng.choice((0.5, 5.0, 1e6)),
            batch_bytes=rng.choice((1, 60, 400)),
            window_bytes=rng.choice((200, 2_000)),
            clock_ms=lambda: int(scheduler.now * 1000),
        )

    # ---- actors -----------------------------------------------------------------------------------

    def start(self, name: str, act: Callable[[Log, Process], Any]) -> None:
        """Starts an actor in a process of its own, which may die, and is restarted."""
        process = Process(self.scheduler, name)
        client = SimClient(self.world, process, self.rng)
        log = Log(cast(Client, client), NAME)
        process.run_task(act(log, process)).add_done_callback(asyncio.Task.result)  # raises
        if self.rng.random() < 0.5:
            life_s = self.rng.uniform(0.05, self._trouble_s)
            process.after(life_s, self._kill, process, act)

    def _kill(self, process: Process, act: Callable[[Log, Process], Any]) -> None:
        if self.scheduler.now < self._trouble_s:
            self.crashes += 1
            process.die("a crash")
            idle = self.scheduler.processes[0]
            idle.after(self.rng.uniform(0.0, 1.0), self.start, process.name, act)

    async def lead(self, log: Log, process: Process) -> None:
        rng = self.rng
        while self.scheduler.now < self._trouble_s:
            await asyncio.sleep(rng.expovariate(1.0) * rng.choice((0.05, 3.0)))
            try:
                async with await log.open_writer(self._options) as opened:
                    await self._write(opened)
            except BkboxError as error:
                self.history.ends.append(error)

    async def _write(self, opened: writer.LogWriter) -> None:
        rng, history = self.rng, self.history
        assert opened.epoch not in history.appended, "two openings have one epoch"
        mine = history.appended.setdefault(opened.epoch, [])
        tasks: list[asyncio.Task[None]] = []
        for _ in range(rng.randint(0, 40)):
            if rng.random() < 0.2:
                await asyncio.sleep(rng.expovariate(1.0) * 0.3)
            if rng.random() < 0.4:
                tasks.append(asyncio.ensure_future(self._append_once(opened)))
                continue
            payload = b"%d/%d" % (opened.epoch, len(mine))
            await opened.drain()
            future = opened.append_nowait(payload)
            mine.append(payload)
            future.add_done_callback(partial(self._acked, payload))
        for task in tasks:
            await task

    def _acked(self, payload: bytes, done: asyncio.Future[Position]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.history.acked[done.result()] = payload

    async def _append_once(self, opened: writer.LogWriter) -> None:
        """Repeats the append until it is acknowledged, in this opening or another."""
        producer = self.rng.randrange(PRODUCERS)
        sequence = self.history.sequences[producer]
        payload = b"once %d %d" % (producer, sequence)
        position = await opened.append_once(payload, f"producer-{producer}", sequence)
        if position is not None:
            self.history.acked[position] = payload
        self.history.sequences[producer] = max(self.history.sequences[producer], sequence + 1)

    async def follow(self, log: Log, process: Process) -> None:
        seen: list[tuple[Position, bytes]] = []
        self.history.read.append(seen)
        at: Position | None = None
        while True:
            try:
                records = log.tail(at) if self.rng.random() < 0.7 else log.read(at)
                async with aclosing(records):
                    async for record in records:
                        seen.append((record.position, record.payload))
                        at = record.position.after
                        if self.rng.random() < 0.05:
                            break
            except LogTruncatedError:
                seen = []
                self.history.read.append(seen)
                at = None
            except LogLedgerLostError as error:
                if error.next_ledger is not None:
                    at = Position(LedgerId(error.next_ledger), EntryId(0))
            except BkboxError:
                pass
            await asyncio.sleep(self.rng.expovariate(1.0) * 0.5)

    async def cut(self, log: Log, process: Process) -> None:
        while self.scheduler.now < self._trouble_s:
            await asyncio.sleep(self.rng.expovariate(1.0) * 4.0)
            if self.history.acked:
                position = self.rng.choice(list(self.history.acked))
                try:
                    await log.truncate(position)
                    self.truncations += 1
                except BkboxError:
                    continue

    async def spoil(self, log: Log, process: Process) -> None:
        """Deletes ledgers by hand; an operator takes them out later."""
        rng, world = self.rng, self.world
        while self.scheduler.now < self._trouble_s:
            await asyncio.sleep(rng.expovariate(1.0) * 2.0)
            try:
                await self._forget(log)
                await asyncio.sleep(rng.expovariate(1.0) * 2.0)
                stored = (
                    ledger_list.decode(world.lists[NAME].value) if NAME in world.lists else None
                )
                if stored is not None and stored.ledgers:
                    number = rng.choice(stored.ledgers)
                    if rng.random() < 0.3:
                        await log.forget(number)  # a ledger that exists
                        continue
                    self.history.lost.add(number)
                    world.ledgers[number].deleted = True
                    world.ledgers[number].update_readers()
            except BkboxError:
                continue

    async def _forget(self, log: Log) -> None:
        """Takes out ledgers that were deleted by hand, and none that are missing for another reason."""
        for lost in await log.lost() if self.history.lost else ():
            if lost.ledger_id in self.history.lost:
                await log.forget(lost.ledger_id)

    # ---- the run ----------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        scheduler = self.scheduler
        Process(scheduler, "nobody")
        try:
            for number in range(self.rng.randint(1, 3)):
                self.start(f"leader {number}", self.lead)
            for number in range(self.rng.randint(1, 2)):
                self.start(f"reader {number}", self.follow)
            if self.rng.random() < 0.6:
                self.start("truncation", self.cut)
            if self._seed % 4 == 0:
                self.start("hand", self.spoil)
            scheduler.run(self._trouble_s)
            problem = scheduler.failures[0] if scheduler.failures else self._check()
        finally:
            scheduler.discard()
        return Verdict(
            problem,
            len(self.history.appended),
            len(self.history.acked),
            len(self.world.ledgers),
            self.crashes,
            self.truncations,
            scheduler.events,
        )

    def _check(self) -> str | None:
        scheduler, world = self.scheduler, self.world
        world.trouble = 0.0
        for process in scheduler.processes:
            if process.name.startswith(("leader", "truncation", "hand")):
                process.die("it is not needed any more")
        checker = Process(scheduler, "judge")
        log = Log(cast(Client, SimClient(world, checker, self.rng)), NAME)
        left: list[tuple[Position, bytes]] = []

        async def close_and_read() -> None:
            await self._forget(log)
            async with await log.open_writer(self._options) as opened:
                assert opened.epoch not in self.history.appended, "two openings have one epoch"
            left.extend([(each.position, each.payload) async for each in log.read()])

        task = checker.run_task(close_and_read())
        scheduler.run(scheduler.now + QUIESCENCE_S, task.done)
        if not task.done():
            return "an end: the log cannot be opened and read when the trouble is over"
        if (error := task.exception()) is not None:
            return f"an end: {type(error).__name__}: {error}"
        found = world.lists[NAME]
        return check(world, self.history, left, ledger_list.decode(found.value))


# ---- removed safeguards -------------------------------------------------------------------------------


async def _nothing(*_: object) -> None:
    """Replaces a wait."""


async def _at_once(*_: object) -> bool:
    return True


async def _never(*_: object) -> bool:
    return False


async def _regardless(opened: Any) -> bool:
    return bool(opened._queue) and opened._failure is None


async def _added_by_anybody(stored: Any, _epoch: int, ledger: LedgerId) -> None:
    def change(present: LedgerList) -> LedgerList:
        if ledger in present.ledgers:
            return present
        if not present.accepts(ledger):
            raise NotLeaderError("its id is too low by now")
        return present.rolled(ledger)

    await stored.change(change)


def _goes_on(_opened: Any, _error: BaseException) -> BaseException:
    return NotLeaderError("an append failed")


def _only_these_fail(opened: Any, batch: list[Any]) -> None:
    for _, size, future in batch:
        opened._buffered_bytes -= size
        if not future.done():
            future.set_exception(NotLeaderError("an append failed"))
            future.exception()


async def _discarded(client: Any, _stored: Any, discarded: Any) -> None:
    await discarded.abort()
    await client.delete_ledger(discarded.ledger_id)


BREAKS: dict[str, tuple[tuple[object, str, object], ...]] = {
    "nobody-is-fenced": ((LedgerList, "may_be_open", property(lambda _: ())),),
    "only-the-last-is-fenced": ((LedgerList, "may_be_open", property(lambda s: s.ledgers[-1:])),),
    "list-is-overwritten": ((SimLists, "fits", lambda *_: True),),
    "roll-does-not-wait": ((writer.LogWriter, "_all_resolved", _nothing),),
    "old-ledger-is-never-closed": ((rolling.Rolling, "_is_closed", _at_once),),
    "state-is-forgotten": ((Sequences, "decode", classmethod(lambda cls, _: cls())),),
    "lost-answer-counts-as-no": ((log_open, "discard", _discarded),),
    "what-is-there-is-forgotten": ((Log, "_exists", _never),),
    "epoch-is-not-asked": ((rolling, "add", _added_by_anybody),),
    "failed-append-ends-nothing": (
        (writer.LogWriter, "_fail", _goes_on),
        (writer.LogWriter, "_fail_all", _only_these_fail),
    ),
    "reader-goes-on-too-early": ((SimReader, "is_closed", property(lambda _: True)),),
    "room-is-not-waited-for": ((writer.LogWriter, "_may_send", _regardless),),
}
"""The patches of each safeguard: the owner, the name, and the replacement."""


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Applies one of BREAKS inside the context."""
    with replaced(*(BREAKS[name] if name is not None else ())):
        yield


def run(seed: int, *, without: str | None = None) -> Verdict:
    """Runs one world. ``without``: one of BREAKS."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()  # permanent objects need no collection after every run
    with warnings.catch_warnings(), broken(without):
        warnings.simplefilter("ignore")
        world = _Run(seed)
        with replaced((writer, "STATE_EVERY_BYTES", world.state_every_bytes)):
            return world.verdict()


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all properties hold, or if the removed safeguard was detected."""
    parser = argparse.ArgumentParser(
        prog="python -m proof.sim.logs", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=100, help="so many")
    parser.add_argument("--break", dest="without", choices=BREAKS, help="take this safeguard away")
    given = parser.parse_args(arguments)
    begin, totals = time.process_time(), [0] * 6
    for seed in range(given.seed, given.seed + given.seeds):
        verdict = run(seed, without=given.without)
        figures = (
            verdict.openings,
            verdict.records,
            verdict.ledgers,
            verdict.crashes,
            verdict.truncations,
            verdict.events,
        )
        totals = [total + figure for total, figure in zip(totals, figures, strict=True)]
        if verdict.problem is not None:
            print(f"seed {seed}: {verdict.problem}")  # noqa: T201
            return 0 if given.without else 1
    names = ("openings", "records acknowledged", "ledgers", "crashes", "truncations", "events")
    summary = ", ".join(f"{total:,} {name}" for total, name in zip(totals, names, strict=True))
    print(f"{given.seeds:,} seeds in {time.process_time() - begin:.1f} s of CPU: {summary}")  # noqa: T201
    return 1 if given.without else 0
