"""Carries out what a machine of bkbox/protocol asks for, and hands it the answers.

Requests go out at once. Answers are queued and handled by whoever awaits ``step``, so that what a
machine raises is raised there. Adds that were handed over are sent even after ``stop``: an entry
acknowledged by its ack quorum still gets the rest of its copies.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bkbox.client.options import ClientOptions
from bkbox.client.placement import choose_replacements
from bkbox.client.transport import BookiePool, Reply, add_frame
from bkbox.errors import DigestError, MetadataError, VersionConflictError
from bkbox.ids import NO_ENTRY, BookieId, LedgerId
from bkbox.metadata.base import MetadataStore
from bkbox.protocol.effects import (
    Effect,
    Failed,
    Outcome,
    PickReplacements,
    ReadMetadata,
    SendAdd,
    SendRead,
    WriteMetadata,
)
from bkbox.protocol.events import (
    AddAnswered,
    Event,
    MetadataConflict,
    MetadataFailed,
    MetadataRead,
    MetadataWritten,
    NoAnswer,
    ReadAnswered,
    ReplacementsPicked,
    Speculate,
)
from bkbox.wire.digest import DigestManager

ADD_OVERHEAD_BYTES = 4_096
"""What an outstanding add takes here beside its payload, about: what bounds small entries."""


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """What every operation on one ledger works with."""

    ledger_id: LedgerId
    digests: DigestManager
    master_key: bytes
    store: MetadataStore
    pool: BookiePool
    options: ClientOptions
    rng: random.Random

    async def replacements(self, count: int, ensemble: Iterable[BookieId]) -> tuple[BookieId, ...]:
        """Up to ``count`` bookies outside the ensemble; none if the store cannot say."""
        try:
            bookies = await self.store.bookies()
        except MetadataError:
            return ()
        return choose_replacements(
            bookies, count, frozenset(ensemble), self.rng, self.pool.suspects()
        )


class Driver:
    """Runs one machine: ``feed`` and ``post`` take events, ``step`` gives outcomes."""

    def __init__(self, handle: Callable[[Any], Sequence[Effect]], access: LedgerAccess) -> None:
        self.unanswered_bytes = 0
        """Size of all adds handed over and not answered yet, each copy counted, reckoned with
        ADD_OVERHEAD_BYTES each."""
        self.last_add: dict[BookieId, SendAdd] = {}
        """The last add sent to each bookie."""
        self._handle = handle
        self._access = access
        self._events: deque[Event] = deque()
        self._outcomes: list[Outcome] = []
        self._wake = asyncio.Event()
        self._reads: set[asyncio.Future[Reply]] = set()
        self._tasks: set[asyncio.Task[Event]] = set()
        self._crash: BaseException | None = None

    def feed(self, event: Event) -> None:
        """Have the machine handle an event now. Raises what the machine raises."""
        self.carry_out(self._handle(event))

    def post(self, event: Event) -> None:
        """Have the machine handle an event in the next ``step``."""
        self._events.append(event)
        self._wake.set()

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Send out the requests among these, keep the outcomes for ``step``."""
        for effect in effects:
            match effect:
                case SendAdd():
                    self._send_add(effect)
                case SendRead():
                    self._send_read(effect)
                case ReadMetadata() | WriteMetadata() | PickReplacements():
                    task = asyncio.get_running_loop().create_task(self._ask_store(effect))
                    self._tasks.add(task)
                    task.add_done_callback(self._store_answered)
                case _:
                    self._outcomes.append(effect)
                    self._wake.set()

    async def step(self) -> list[Outcome]:
        """Wait for something to handle, handle it, and return the outcomes that there are."""
        while not (self._events or self._outcomes or self._crash):
            self._wake.clear()
            await self._wake.wait()
        if self._crash is not None:
            raise self._crash
        while self._events:
            self.feed(self._events.popleft())
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def stop(self) -> None:
        """Give up what is outstanding, but for adds."""
        for reply in tuple(self._reads):
            reply.cancel()
        for task in tuple(self._tasks):
            task.cancel()

    # ---- bookies --------------------------------------------------------------------------------

    def _send_add(self, effect: SendAdd) -> None:
        frame = self.frame_of(effect)
        size = len(effect.payload) + ADD_OVERHEAD_BYTES
        self.unanswered_bytes += size * len(effect.targets)
        for token, bookie in effect.targets:
            self.last_add[bookie] = effect
            reply = self._access.pool.add(bookie, self._access.ledger_id, effect.entry_id, frame)
            reply.add_done_callback(partial(self._add_answered, token, size))

    def frame_of(self, effect: SendAdd) -> bytes:
        """The frame of an add; the same bytes each time."""
        entry = self._access.digests.package(
            effect.entry_id, effect.lac, effect.length, effect.payload
        )
        return add_frame(self._access.master_key, entry, recovery=effect.recovery)

    def _add_answered(self, token: int, size: int, reply: asyncio.Future[Reply]) -> None:
        self.unanswered_bytes -= size
        self.post(AddAnswered(token, reply.result().answer))

    def _send_read(self, effect: SendRead) -> None:
        reply = self._access.pool.read(
            effect.bookie,
            self._access.ledger_id,
            effect.entry_id,
            self._access.master_key if effect.fence else None,
        )
        self._reads.add(reply)
        reply.add_done_callback(partial(self._read_answered, effect))

    def _read_answered(self, effect: SendRead, reply: asyncio.Future[Reply]) -> None:
        self._reads.discard(reply)
        if reply.cancelled():
            return
        answer, data = reply.result()
        if data is None:
            self.post(ReadAnswered(effect.token, answer))
            return
        try:
            entry = self._access.digests.verify(
                data, None if effect.entry_id == NO_ENTRY else effect.entry_id
            )
        except DigestError:
            self.post(ReadAnswered(effect.token, NoAnswer.BAD_DIGEST))
        else:
            self.post(ReadAnswered(effect.token, answer, entry))

    # ---- metadata store -------------------------------------------------------------------------

    async def _ask_store(self, effect: ReadMetadata | WriteMetadata | PickReplacements) -> Event:
        store = self._access.store
        token = effect.token
        if isinstance(effect, PickReplacements):
            picked = await self._access.replacements(len(effect.failed), effect.ensemble)
            return ReplacementsPicked(token, picked)
        try:
            if isinstance(effect, ReadMetadata):
                found = await store.read_ledger(self._access.ledger_id)
                return MetadataRead(token, found.value, found.version)
            written = await store.write_ledger(effect.metadata, effect.expected_version)
            return MetadataWritten(token, written.version)
        except VersionConflictError:
            return MetadataConflict(token)
        except MetadataError as error:
            return MetadataFailed(token, error)

    def _store_answered(self, task: asyncio.Task[Event]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        self._crash = task.exception()
        if self._crash is None:
            self.post(task.result())
        else:
            self._wake.set()


class Machine(Protocol):
    """A machine that ends with its first outcome."""

    def start(self) -> Sequence[Effect]: ...

    def handle(self, event: Any) -> Sequence[Effect]: ...


async def run(machine: Machine, access: LedgerAccess, *, speculate: bool = False) -> Outcome:
    """Run a machine to its outcome, and until all its adds were answered. Raises the error of a
    Failed.

    ``speculate``: tell it whenever an answer is slow.
    """
    driver = Driver(machine.handle, access)
    pause_s = access.options.speculative_read_s
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def slow() -> None:
        nonlocal timer
        driver.post(Speculate())
        timer = loop.call_later(pause_s, slow)

    if speculate:
        timer = loop.call_later(pause_s, slow)
    try:
        driver.carry_out(machine.start())
        outcomes: list[Outcome] = []
        while not outcomes:
            outcomes = await driver.step()
        if isinstance(outcomes[0], Failed):
            raise outcomes[0].error
        while driver.unanswered_bytes:
            await driver.step()
        return outcomes[0]
    finally:
        driver.stop()
        if timer is not None:
            timer.cancel()
