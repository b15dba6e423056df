"""Ledgers and lists of logs as a log sees them, with all behaviour that they permit: for simulation.py.

The properties of ledgers are proved elsewhere, and are assumed here at their weakest. An entry that was sent may be in
the ledger from then on; it certainly is once it was acknowledged. A recovery fences the writer and sets the end
anywhere from the last acknowledged entry to the last one sent; all recoveries agree. A reader's LAC is late. The
metadata store loses responses to writes that were executed, and calls that were not. A writer's window is full from
some number of bytes on, and stays so a while after all was acknowledged, as some bookies respond late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from bkbox.base.ids import NO_ENTRY, EntryId, LedgerId
from bkbox.errors import (
    HandleClosedError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    RecoveryAbortedError,
    VersionConflictError,
    WindowFullError,
)
from bkbox.metadata.versioned import Versioned
from bkbox.wire.digest import VerifiedEntry
from proof.sim.world.loop import Process, Scheduler

INSTANCE_ID = "8d9c3a58-6a0c-4b52-9d0e-0a2f3c4d5e6f"


@dataclass
class SimLedger:
    """``entries``: all that were sent; the first ``acked`` of them are acknowledged, or will be. ``end``: set by a
    recovery or by closing; ``closed``: every client may know it."""

    entries: list[bytes] = field(default_factory=list)
    acked: int = 0
    fenced: bool = False
    end: int | None = None
    closed: bool = False
    deleted: bool = False
    changed: list[asyncio.Event] = field(default_factory=list)

    def update_readers(self) -> None:
        for event in self.changed:
            event.set()


class World:
    """The stored state. ``trouble``: probability that a call of the metadata store fails; ``delay_s``: mean delay of
    one way; ``window_bytes``: of writers of ledgers."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.rng = scheduler.rng
        self.ledgers: dict[int, SimLedger] = {}
        self.listed: set[int] = set()
        """Ledgers that were ever in a stored list."""
        self.next_ledger = 0
        self.lists: dict[str, Versioned[bytes]] = {}
        self.watchers: list[asyncio.Event] = []
        self.trouble = 0.0
        self.delay_s = 0.002
        self.window_bytes = 1

    async def delay(self) -> None:
        await asyncio.sleep(self.rng.expovariate(1.0) * self.delay_s)

    async def to_store(self) -> None:
        await self.delay()
        if self.rng.random() < self.trouble:
            raise MetadataUnavailableError("the metadata store does not answer")

    def ledger(self, number: int) -> SimLedger:
        found = self.ledgers.get(number)
        if found is None or found.deleted:
            raise NoSuchLedgerError(f"there is no ledger {number}")
        return found


class SimLists:
    """Replaces LogLists."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def find(self, name: str, *, linearizable: bool = False) -> Versioned[bytes] | None:
        await self._world.to_store()
        found = self._world.lists.get(name)
        await self._world.delay()
        return found

    async def write(self, name: str, data: bytes, expected_version: int | None) -> int:
        world = self._world
        await world.to_store()
        found = world.lists.get(name)
        if not self.fits(found, expected_version):
            await world.delay()
            raise VersionConflictError("another client was faster")
        version = 0 if found is None else found.version + 1
        world.lists[name] = Versioned(data, version)
        for event in world.watchers:
            event.set()
        if world.rng.random() < world.trouble:
            # The response is lost, so the write is repeated unchanged: if it is refused, the stored list decides.
            await asyncio.sleep(world.rng.expovariate(1.0))
            if world.lists[name] != Versioned(data, version):
                raise VersionConflictError("another client was faster")
        await world.to_store()  # or the caller never learns it
        return version

    def fits(self, found: Versioned[bytes] | None, expected_version: int | None) -> bool:
        return (None if found is None else found.version) == expected_version

    async def watch(self, name: str) -> AsyncIterator[Versioned[bytes] | None]:
        changed = asyncio.Event()
        self._world.watchers.append(changed)
        try:
            seen: Versioned[bytes] | None = None
            while True:
                changed.clear()
                await self._world.delay()
                found = self._world.lists.get(name)
                if found != seen or found is None:
                    seen = found
                    yield found
                await changed.wait()
        finally:
            self._world.watchers.remove(changed)

    async def names(self) -> list[str]:
        return sorted(self._world.lists)


class SimStore:
    """Replaces MetadataStore."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.logs = SimLists(world)

    async def instance_id(self) -> str:
        return INSTANCE_ID

    async def read_ledger(self, number: int, *, linearizable: bool) -> SimLedger:
        await self._world.to_store()
        return self._world.ledger(number)

    async def delete_ledger(self, number: int) -> None:
        await self._world.to_store()
        found = self._world.ledgers.get(number)
        if found is not None:
            found.deleted = True
            found.update_readers()
        await self._world.to_store()


class SimClient:
    """Replaces Client, in one process."""

    def __init__(self, world: World, process: Process, rng: random.Random) -> None:
        self.world = world
        self.process = process
        self.rng = rng
        self.store = SimStore(world)

    async def create_ledger(self, *_sizes: Any, **_options: Any) -> SimWriter:
        await self.world.to_store()
        self.world.next_ledger += 1
        number = self.world.next_ledger
        self.world.ledgers[number] = SimLedger()
        await self.world.to_store()
        return SimWriter(self.world, LedgerId(number))

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """A process is cancelled where a real one would be killed: no clean-up runs."""
        work.close()

    async def delete_ledger(self, number: int) -> None:
        await self.store.delete_ledger(number)

    async def open_ledger(
        self, number: int, _password: bytes | None = b"", *, recovery: bool = True
    ) -> SimReader:
        assert not recovery
        await self.world.to_store()
        return SimReader(self.world, LedgerId(number), self.world.ledger(number))

    async def recover(self, number: int, _password: bytes | None = None) -> None:
        world = self.world
        await world.to_store()
        ledger = world.ledger(number)
        if not ledger.closed:
            await world.delay()
            ledger.fenced = True
            await world.delay()
            if world.rng.random() < world.trouble:
                raise RecoveryAbortedError("a bookie does not answer")
            if ledger.end is None:
                ledger.end = world.rng.randint(ledger.acked, len(ledger.entries))
            await world.to_store()
            world.ledger(number)
            ledger.closed = True
            ledger.update_readers()
            await world.to_store()


class SimWriter:
    """Replaces LedgerWriter."""

    payload_bytes_max = 1_000

    def __init__(self, world: World, number: LedgerId) -> None:
        self.ledger_id = number
        self.length = 0
        self._world = world
        self._ledger = world.ledgers[number]
        self._pending: list[tuple[asyncio.Future[EntryId], int]] = []
        self._buffered_bytes = 0
        self._space = asyncio.Event()
        self._failure: Exception | None = None
        self._moving: asyncio.Task[None] | None = None
        self._was_abandoned = False

    async def append(self, payload: bytes) -> EntryId:
        await self.drain()
        return await self.append_nowait(payload)

    def append_nowait(self, payload: bytes) -> asyncio.Future[EntryId]:
        if self._failure is not None:
            raise self._failure
        if self._was_abandoned:
            raise HandleClosedError("the writer is closed")
        if self._is_full():
            raise WindowFullError(f"the writer holds {self._buffered_bytes} bytes")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[EntryId] = loop.create_future()
        self._pending.append((future, len(payload)))
        self._buffered_bytes += len(payload)
        if self._ledger.end is None:
            # It reaches some bookies, perhaps, fenced or not: a recovery decides if it finds the entry.
            self._ledger.entries.append(payload)
        self.length += len(payload)
        if self._moving is None:
            self._moving = loop.create_task(self._move())
        return future

    async def drain(self) -> None:
        while self._is_full():
            self._space.clear()
            await self._space.wait()

    def _is_full(self) -> bool:
        is_full = self._buffered_bytes >= self._world.window_bytes
        return is_full and self._failure is None and not self._was_abandoned

    def _release(self, size: int) -> None:
        """The last bookie has responded."""
        self._buffered_bytes -= size
        self._space.set()

    async def _move(self) -> None:
        """Acknowledges in order, until a fence is found."""
        ledger, world = self._ledger, self._world
        while self._pending:
            await world.delay()
            if ledger.fenced or ledger.end is not None:
                kind = LedgerClosedError if ledger.closed else LedgerFencedError
                self._fail(kind("another client recovers the ledger"))
                break
            count = world.rng.randint(1, len(self._pending))
            first = ledger.acked
            ledger.acked += count
            ledger.update_readers()
            await world.delay()
            acked, self._pending = self._pending[:count], self._pending[count:]
            for number, (future, _) in enumerate(acked):
                if not future.done():
                    future.set_result(EntryId(first + number))
            delay_s = world.rng.expovariate(1.0) * world.delay_s
            asyncio.get_running_loop().call_later(
                delay_s, self._release, sum(size for _, size in acked)
            )
        self._moving = None

    def _fail(self, error: Exception) -> None:
        self._failure = error
        pending, self._pending = self._pending, []
        for future, _ in pending:
            if not future.done():
                future.set_exception(error)
                future.exception()
        self._space.set()

    async def close(self) -> None:
        world, ledger = self._world, self._ledger
        while self._pending:
            await asyncio.sleep(0.001)
        self._was_abandoned = True
        await world.to_store()
        world.ledger(self.ledger_id)
        if ledger.fenced:
            raise LedgerFencedError("another client recovers the ledger")
        if not ledger.closed:
            ledger.end = ledger.acked
            ledger.closed = True
            ledger.update_readers()
        await world.to_store()

    async def abort(self) -> None:
        self._was_abandoned = True
        self._fail(HandleClosedError("the writer was abandoned"))


class SimReader:
    """Replaces LedgerReader."""

    def __init__(self, world: World, number: LedgerId, ledger: SimLedger) -> None:
        self.ledger_id = number
        self._world = world
        self._ledger = ledger
        self._lac = 0
        self._known_closed = ledger.closed

    @property
    def is_closed(self) -> bool:
        return self._known_closed

    async def read_explicit_last_add_confirmed(self) -> EntryId:
        await self._world.to_store()
        self._world.ledger(self.ledger_id)
        self._known_closed = self._known_closed or self._ledger.closed
        if self._known_closed:
            assert self._ledger.end is not None
            return EntryId(self._ledger.end - 1)
        hint = self._world.rng.randint(self._lac, max(self._ledger.acked, self._lac))
        await self._world.delay()
        self._lac = hint
        return EntryId(self._lac - 1)

    async def read_last_add_confirmed_and_entry(
        self, entry: int, _timeout_s: float
    ) -> tuple[EntryId, None]:
        for _ in range(20):
            lac = await self.read_explicit_last_add_confirmed()
            if lac >= entry or self.is_closed:
                break
            await asyncio.sleep(0.05)
        return lac, None

    async def read_last(self) -> VerifiedEntry | None:
        last = await self.read_explicit_last_add_confirmed()
        return None if last == NO_ENTRY else await self._read(last)

    async def read(
        self, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[VerifiedEntry, None]:
        if last is None:
            last = await self.read_explicit_last_add_confirmed()
        for entry in range(first, last + 1):
            yield await self._read(entry)

    async def tail(self, first: int = 0) -> AsyncGenerator[VerifiedEntry, None]:
        changed = asyncio.Event()
        self._ledger.changed.append(changed)
        try:
            entry = first
            while True:
                changed.clear()
                end = await self._confirmed()
                closed = self.is_closed
                while entry < end:
                    yield await self._read(entry)
                    entry += 1
                if closed:
                    return
                if not (
                    self._lac < self._ledger.acked or self._ledger.closed or self._ledger.deleted
                ):
                    await changed.wait()
                elif self._ledger.deleted:
                    self._world.ledger(self.ledger_id)
        finally:
            self._ledger.changed.remove(changed)

    async def _confirmed(self) -> int:
        while True:
            try:
                return await self.read_explicit_last_add_confirmed() + 1
            except MetadataUnavailableError:
                await asyncio.sleep(0.1)

    async def _read(self, entry: int) -> VerifiedEntry:
        if self._world.rng.random() < 0.3:
            await self._world.delay()
        ledger = self._world.ledger(self.ledger_id)
        payload = ledger.entries[entry]
        found: Any = SimpleNamespace(
            ledger_id=self.ledger_id, entry_id=EntryId(entry), payload=payload
        )
        return found  # type: ignore[no-any-return]
