"""Carries out the effects of a state machine of bkbox/protocol, and feeds it the responses.

Requests go out at once. Responses are queued and handled by the caller that awaits ``step``, so that the machine's
errors are raised there. Adds that were handed over are sent even after ``stop``: an entry acknowledged by its ack
quorum still gets the rest of its copies.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from bkbox.client.connection.adds import Add, AddFrames, AddPacker
from bkbox.client.connection.pool import BookiePool, Reply
from bkbox.client.loop_affinity import LoopAffinity
from bkbox.client.options import ClientOptions
from bkbox.client.placement.placement import Placer
from bkbox.errors import DigestError, MetadataError, VersionConflictError
from bkbox.metadata.base import MetadataStore
from bkbox.protocol.effects import (
    Effect,
    Failed,
    Outcome,
    PickReplacements,
    ReadMetadata,
    SendAdds,
    SendForce,
    SendPoll,
    SendRead,
    SendReadLac,
    WriteMetadata,
)
from bkbox.protocol.events import (
    AddsCompleted,
    Event,
    ForceCompleted,
    LacCompleted,
    MetadataConflict,
    MetadataFailed,
    MetadataRead,
    MetadataWritten,
    NoResponse,
    PollCompleted,
    ReadCompleted,
    ReplacementsPicked,
    RequestStatus,
    SpeculativeRead,
)
from bkbox.wire import v3
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager, VerifiedEntry

ADD_OVERHEAD_BYTES = 4_096
"""Bytes that an outstanding add counts for beside its payload: far more than it takes here. It bounds the number of
small entries in flight, and their latency.
"""


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """The common parameters of every operation on one ledger. ``synced``: LedgerMetadata.synced."""

    binding: LoopAffinity
    ledger_id: LedgerId
    digests: DigestManager
    master_key: bytes
    store: MetadataStore
    pool: BookiePool
    options: ClientOptions
    rng: random.Random
    placer: Placer
    write_quorum: int
    synced: bool


class Driver:
    """Runs one machine: ``send`` and ``post`` take events, ``step`` returns outcomes."""

    def __init__(
        self,
        handle: Callable[[Any], Sequence[Effect]],
        access: LedgerAccess,
        wait_until: float = 0.0,
    ) -> None:
        """``wait_until``: event-loop time up to which bookies may delay the response to a long poll."""
        self.in_flight_bytes = 0
        """Bytes of all adds handed over and without a response, each copy counted, plus ADD_OVERHEAD_BYTES each."""
        self._last_adds: dict[BookieId, tuple[SendAdds, EntryId]] = {}
        self._packer: AddPacker | None = None
        self._handle = handle
        self._access = access
        self._wait_until = wait_until
        self._events: deque[Event] = deque()
        self._outcomes: list[Outcome] = []
        self._wake = asyncio.Event()
        self._reads: dict[asyncio.Future[Reply], BookieId | None] = {}
        self._tasks: set[asyncio.Task[Event]] = set()
        self._crash: BaseException | None = None

    def send(self, event: Event) -> None:
        """Have the machine handle an event now. Raises what the machine raises."""
        self.execute(self._handle(event))

    def post(self, event: Event) -> None:
        """Have the machine handle an event in the next ``step``."""
        self._events.append(event)
        self._wake.set()

    def execute(self, effects: Iterable[Effect]) -> None:
        """Send the requests among these effects, keep the outcomes for ``step``."""
        for effect in effects:
            match effect:
                case SendAdds():
                    self._send_adds(effect)
                case SendForce():
                    for token, bookie in effect.targets:
                        reply = self._access.pool.force(bookie, self._access.ledger_id)
                        reply.add_done_callback(partial(self._on_force_response, token))
                case SendRead():
                    self._send_read(effect)
                case SendReadLac():
                    self._on_reply(
                        self._access.pool.read_lac(effect.bookie, self._access.ledger_id),
                        partial(self._lac_event, effect),
                    )
                case SendPoll():
                    self._send_poll(effect)
                case ReadMetadata() | WriteMetadata() | PickReplacements():
                    task = asyncio.get_running_loop().create_task(self._ask_store(effect))
                    self._tasks.add(task)
                    task.add_done_callback(self._on_store_result)
                case _:
                    self._outcomes.append(effect)
                    self._wake.set()

    def crash(self, error: BaseException) -> None:
        """Record an unexpected error: ``step`` raises it."""
        self._crash = self._crash or error
        self._wake.set()

    async def step(self) -> list[Outcome]:
        """Wait for an event, handle it, and return the outcomes."""
        while not (self._events or self._outcomes or self._crash):
            self._wake.clear()
            await self._wake.wait()
        if self._crash is not None:
            raise self._crash
        while self._events:
            self.send(self._events.popleft())
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def note_slow(self) -> None:
        """Mark the bookies as slow with a read of an entry in flight."""
        for bookie in self._reads.values():
            if bookie is not None:
                self._access.pool.health.slow(bookie)

    def stop(self) -> None:
        """Abandon everything outstanding except adds."""
        for reply in tuple(self._reads):
            reply.cancel()
        for task in tuple(self._tasks):
            task.cancel()

    # ---- bookies --------------------------------------------------------------------------------

    def _send_adds(self, effect: SendAdds) -> None:
        run = self._packer_for(effect).pack(effect)
        for token, bookie, entries in effect.targets:
            self._last_adds[bookie] = effect, EntryId(entries[-1])
            frames = run.of(entries)
            self.in_flight_bytes += _buffered_bytes(frames, 0, len(entries) - 1)
            self._access.pool.add_run(
                bookie,
                frames,
                partial(self._on_adds_complete, token, bookie, frames),
                needs_v3=effect.deferred_sync or self._access.synced,
            )

    def _packer_for(self, effect: SendAdds) -> AddPacker:
        if self._packer is None:
            self._packer = self._access.pool.packer(
                self._access.digests,
                self._access.master_key,
                recovery=effect.recovery,
                deferred_sync=effect.deferred_sync,
                synced=self._access.synced,
            )
        return self._packer

    def last_add(self, bookie: BookieId) -> Add | None:
        """The last add sent to this bookie, as it was sent."""
        last = self._last_adds.get(bookie)
        return None if last is None else self._packer_for(last[0]).single(*last)

    def _on_adds_complete(
        self,
        token: int,
        bookie: BookieId,
        frames: AddFrames,
        first: int,
        last: int,
        status: RequestStatus,
        connection: int,
    ) -> None:
        if status is not Code.EOK:
            self._access.pool.health.failed(bookie, status)
        self.in_flight_bytes -= _buffered_bytes(frames, first, last)
        entries = frames.entries
        self.post(
            AddsCompleted(
                token, EntryId(entries[first]), EntryId(entries[last]), status, connection
            )
        )

    def _on_force_response(self, token: int, reply: asyncio.Future[Reply]) -> None:
        if not reply.cancelled():
            status, _, connection, _ = reply.result()
            self.post(ForceCompleted(token, status, connection))

    def _send_read(self, effect: SendRead) -> None:
        fence_key = self._access.master_key if effect.fence else None
        reply = self._access.pool.read(
            effect.bookie, self._access.ledger_id, effect.entry_id, fence_key
        )
        self._on_reply(reply, partial(self._read_event, effect), effect.bookie)

    def _read_event(self, effect: SendRead, reply: Reply) -> Event:
        status, data, _, _ = reply
        if status is Code.EOK or (data is not None and effect.entry_id != NO_ENTRY):
            entry = self._verified(data, effect.entry_id)
            if entry is not None:
                # Also if a bookie in limbo sends the entry beside a code that says it cannot tell.
                return ReadCompleted(effect.token, Code.EOK, entry)
            if status is Code.EOK:
                status = NoResponse.BAD_DIGEST
        self._access.pool.health.failed(effect.bookie, status)
        return ReadCompleted(effect.token, status)

    def _lac_event(self, effect: SendReadLac, reply: Reply) -> Event:
        """Fields that its digest covers are valid, even beside a failure code. One invalid part makes the
        response unknown.
        """
        status = reply.status
        if not isinstance(reply.response, v3.ReadLacResponse):
            return LacCompleted(effect.token, status)
        lacs: list[EntryId] = []
        try:
            if reply.response.lac_body is not None:
                lacs.append(self._access.digests.verify_lac(reply.response.lac_body))
            if reply.response.last_entry is not None:
                lacs.append(self._access.digests.verify(reply.response.last_entry, None).lac)
        except DigestError:
            status = NoResponse.BAD_DIGEST
        return LacCompleted(effect.token, status, max(lacs, default=None))

    def _send_poll(self, effect: SendPoll) -> None:
        left_s = max(self._wait_until - asyncio.get_running_loop().time(), 0.0)
        reply = self._access.pool.long_poll(
            effect.bookie,
            self._access.ledger_id,
            effect.previous_lac,
            left_s if effect.wait else 0.0,
        )
        self._on_reply(reply, partial(self._poll_event, effect))

    def _poll_event(self, effect: SendPoll, reply: Reply) -> Event:
        if reply.status is not Code.EOK or not isinstance(reply.response, v3.ReadResponse):
            return PollCompleted(effect.token, reply.status)
        lac = EntryId(reply.response.max_lac if reply.response.max_lac is not None else NO_ENTRY)
        entry = None
        if reply.entry is not None:
            entry = self._verified(reply.entry, effect.previous_lac + 1)
            if entry is None:
                return PollCompleted(effect.token, NoResponse.BAD_DIGEST)
        return PollCompleted(effect.token, Code.EOK, lac, entry)

    def _verified(self, data: memoryview | None, entry_id: int) -> VerifiedEntry | None:
        """The entry; None if it is invalid. -1: any entry of the ledger."""
        try:
            return self._access.digests.verify(
                data if data is not None else b"", None if entry_id == NO_ENTRY else entry_id
            )
        except DigestError:
            return None

    def _on_reply(
        self,
        reply: asyncio.Future[Reply],
        event: Callable[[Reply], Event],
        read_of: BookieId | None = None,
    ) -> None:
        """Post the event of the reply, unless ``stop`` comes first. ``read_of``: the bookie, for a read of an entry."""

        def replied(done: asyncio.Future[Reply]) -> None:
            del self._reads[done]
            if done.cancelled():
                return
            try:
                self.post(event(done.result()))
            except Exception as error:
                self.crash(error)  # the machine waits for this event and would hear of nothing else
                raise

        self._reads[reply] = read_of
        reply.add_done_callback(replied)

    # ---- metadata store -------------------------------------------------------------------------

    async def _ask_store(self, effect: ReadMetadata | WriteMetadata | PickReplacements) -> Event:
        store = self._access.store
        token = effect.token
        if isinstance(effect, PickReplacements):
            picked: tuple[BookieId, ...] = ()
            with suppress(MetadataError):  # it goes on without one, and tries again
                picked = await self._access.placer.replacements(
                    effect.failed, effect.ensemble, self._access.write_quorum
                )
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

    def _on_store_result(self, task: asyncio.Task[Event]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.post(task.result())
        else:
            self.crash(error)


def _buffered_bytes(frames: AddFrames, first: int, last: int) -> int:
    """Size of the adds with these indices."""
    count = last - first + 1
    return frames.offsets[last + 1] - frames.offsets[first] + count * ADD_OVERHEAD_BYTES


class Machine(Protocol):
    """A machine that ends with its first outcome."""

    def start(self) -> Sequence[Effect]: ...

    def handle(self, event: Any) -> Sequence[Effect]: ...


async def run(
    machine: Machine,
    access: LedgerAccess,
    *,
    speculate_s: float | None = None,
    wait_s: float = 0.0,
) -> Outcome:
    """Run a machine to its outcome, and until all its adds have a response. Raises the error of a Failed.

    ``speculate_s``: tell the machine whenever no response came for so many seconds. ``wait_s``: seconds for which
    bookies may delay the responses to long polls.
    """
    loop = asyncio.get_running_loop()
    driver = Driver(machine.handle, access, loop.time() + wait_s)
    timer: asyncio.TimerHandle | None = None

    def slow(pause_s: float) -> None:
        nonlocal timer
        driver.note_slow()
        driver.post(SpeculativeRead())
        timer = loop.call_later(pause_s, slow, pause_s)

    if speculate_s is not None:
        timer = loop.call_later(speculate_s, slow, speculate_s)
    try:
        driver.execute(machine.start())
        outcomes: list[Outcome] = []
        while not outcomes:
            outcomes = await driver.step()
        if isinstance(outcomes[0], Failed):
            raise outcomes[0].error
        while driver.in_flight_bytes:
            await driver.step()
        return outcomes[0]
    finally:
        driver.stop()
        if timer is not None:
            timer.cancel()
