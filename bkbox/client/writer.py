"""The handle of the one writer of a ledger.

- Entries get their ids in the order of the calls, and are acknowledged in that order.
- The window bounds, in bytes, what is appended and not acknowledged, and likewise per copy what
  bookies have not answered: it is full from ``window_bytes`` on, so that one entry fits always.
  A bookie that lags holds the writer up only when it is that far behind.
- While members of the ensemble are failed and were not replaced, each is tried again after a
  pause, with the last add it was sent. Only if it takes that does the machine hear of it: a bookie
  that lost its host fences its open ledgers when it starts, and must not end the writer by that.
  (A recovery by another client fences the others too, and they will say so.)
- With deferred sync an append is acknowledged before it is on disk; ``force`` and ``close`` see to it
  that it is (bkbox/protocol/force.py).
- The explicit LAC is for readers of a writer that pauses: no later entry has told the bookies. It is
  sent as often as the options say, if it has moved, to the bookies of the entry that it names, and
  again until an ack quorum of them has it. That it fails harms nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from bkbox.client.driver import ADD_OVERHEAD_BYTES, Driver, LedgerAccess
from bkbox.client.durable import must_be_durable
from bkbox.client.options import Backoff
from bkbox.client.pool import ADD_FRAME_OVERHEAD_BYTES
from bkbox.errors import (
    BkboxError,
    EntryTooLargeError,
    HandleClosedError,
    WindowFullError,
)
from bkbox.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from bkbox.protocol import writer
from bkbox.protocol.effects import Acked, Closed, CloseFailed, Failed, Forced, Outcome
from bkbox.protocol.events import Append, BookieBack, Close, Force
from bkbox.wire.codes import Code
from bkbox.wire.digest import HEADER_BYTES
from bkbox.wire.ledger import LedgerMetadata
from bkbox.wire.write_set import write_set

_APPENDS_PER_TURN = 256
"""Appends of append_many between two turns of the event loop, where they are sent and answers are
taken in."""


class LedgerWriter:
    """Writes one ledger; made by ``Client.create_ledger``. As a context manager it closes the
    ledger at its end."""

    def __init__(
        self,
        access: LedgerAccess,
        machine: writer.LedgerWriter,
        on_end: Callable[[LedgerWriter], None],
    ) -> None:
        options = access.options
        self._access = access
        self._machine = machine
        self._on_end = on_end
        self._driver = Driver(machine.handle, access)
        self._gathered: list[bytes] = []
        self._next_entry = 0
        self._pending: deque[tuple[int, int, asyncio.Future[EntryId]]] = deque()
        self._pending_bytes = 0
        self._forces: deque[asyncio.Future[EntryId]] = deque()
        self._room = asyncio.Event()
        self._closing: asyncio.Future[LedgerMetadata] | None = None
        self._is_closed = False
        self._was_left = False
        self._end: BaseException | None = None
        self._mending: asyncio.Task[None] | None = None
        needs_v3 = machine.deferred_sync or access.synced
        overhead = ADD_FRAME_OVERHEAD_BYTES["v3" if needs_v3 else options.protocol]
        self._payload_bytes_max = (
            options.frame_bytes_max - overhead - HEADER_BYTES - access.digests.digest_size
        )
        self._window_bytes = options.window_bytes
        self._unanswered_bytes_max = options.window_bytes * access.write_quorum
        self._loop = loop = asyncio.get_running_loop()
        self._telling: asyncio.Task[None] | None = None
        if access.options.explicit_lac_interval_s > 0:
            self._telling = loop.create_task(self._tell_lac())
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    @property
    def ledger_id(self) -> LedgerId:
        return self._access.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this writer knows it."""
        return self._machine.metadata

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry acknowledged, with deferred sync the last one forced; -1 for none."""
        return self._machine.last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes of the entries up to the last one confirmed."""
        return self._machine.length

    @property
    def deferred_sync(self) -> bool:
        return self._machine.deferred_sync

    # ---- append ---------------------------------------------------------------------------------

    async def append(self, payload: bytes) -> EntryId:
        """Append an entry and wait until it is acknowledged; returns its id.

        Cancelled, the entry may be in the ledger all the same. Raises EntryTooLargeError,
        HandleClosedError, and what ended the writer: LedgerFencedError, LedgerClosedError,
        AddFailedError, UnauthorizedError, MetadataError.
        """
        if self._is_full():
            await self.drain()
        return await self.append_nowait(payload)

    async def append_many(self, payloads: Iterable[bytes]) -> list[EntryId]:
        """Append entries without waiting in between; returns their ids once all are acknowledged.

        Raises as ``append``; those before the one that failed are in the ledger.
        """
        first_to_come = self._next_entry
        entries: list[EntryId] = []
        futures: list[asyncio.Future[EntryId]] = []
        held = 0
        try:
            for payload in payloads:
                if self._is_full() or self._next_entry - first_to_come >= _APPENDS_PER_TURN:
                    if held:
                        futures.append(self._promise(held))
                    held = 0
                    await asyncio.sleep(0)
                    await self.drain()
                    first_to_come = self._next_entry
                entries.append(EntryId(self._next_entry))
                held += self._gather(payload)
            if held:
                futures.append(self._promise(held))
            held = 0
            for future in futures:
                await future
            return entries
        finally:
            if held:
                futures.append(self._promise(held))
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    future.exception()

    def append_nowait(self, payload: bytes) -> asyncio.Future[EntryId]:
        """Append an entry; the future gives its id when it is acknowledged.

        Entries of one turn of the event loop are sent together at its end. Raises WindowFullError
        (then ``await drain()``), else as ``append``, at once or by the future.
        """
        if self._is_full():
            raise WindowFullError(
                f"the writer of ledger {self.ledger_id} holds {self._pending_bytes} bytes that "
                f"are not acknowledged"
            )
        return self._promise(self._gather(payload))

    def _gather(self, payload: bytes) -> int:
        """Append an entry; returns what it counts for in the window, of which a promise follows
        before anything else happens."""
        if self._machine.failure is not None or self._was_left:
            self._must_be_open()
        size = len(payload)
        if size > self._payload_bytes_max:
            frame_bytes_max = self._access.options.frame_bytes_max
            raise EntryTooLargeError(
                f"an entry of {size} bytes makes a frame of "
                f"{size - self._payload_bytes_max + frame_bytes_max}, "
                f"{frame_bytes_max} are allowed (ledger {self.ledger_id})"
            )
        if not self._gathered:
            self._access.pool.turn_end.gather(self._hand_over)
        self._gathered.append(bytes(payload))
        self._next_entry += 1
        held = ADD_OVERHEAD_BYTES + size
        self._pending_bytes += held
        return held

    def _promise(self, held: int) -> asyncio.Future[EntryId]:
        """The future of the last entry, and of all since the promise before, which count for so
        much."""
        future: asyncio.Future[EntryId] = self._loop.create_future()
        self._pending.append((self._next_entry - 1, held, future))
        return future

    def _hand_over(self) -> None:
        """Have what was appended sent."""
        gathered, self._gathered = self._gathered, []
        if gathered and self._machine.failure is None:
            self._driver.feed(Append(gathered))

    def _must_be_open(self) -> None:
        if self._machine.failure is not None:
            raise self._machine.failure
        if self._was_left:
            raise self._end or HandleClosedError(f"the writer of ledger {self.ledger_id} is closed")

    async def force(self) -> EntryId:
        """Have every entry acknowledged so far on the disks of its bookies; returns the LAC, which
        is then the last of them.

        Without deferred sync that is what being acknowledged means already. Raises as ``append``:
        a bookie that cannot be forced, or that was disconnected since it answered an add and may
        have lost it, ends the writer with AddFailedError.
        """
        self._must_be_open()
        future: asyncio.Future[EntryId] = asyncio.get_running_loop().create_future()
        self._forces.append(future)
        self._hand_over()
        self._driver.feed(Force())
        return await future

    async def drain(self) -> None:
        """Wait until the window has room, or the writer has failed."""
        while self._is_full():
            self._room.clear()
            await self._room.wait()

    def _is_full(self) -> bool:
        if (
            self._pending_bytes < self._window_bytes
            and self._driver.unanswered_bytes < self._unanswered_bytes_max
        ):
            return False
        return self._machine.failure is None and not self._was_left

    # ---- end ------------------------------------------------------------------------------------

    async def close(self, *, durable: bool = False) -> LedgerMetadata:
        """Close the ledger at its last acknowledged entry; returns the metadata.

        ``durable``: only once every entry is on the disks of an ack quorum of bookies, which are made
        to sync it; raises NotDurableError, with the ledger not closed, where that is not certain. It
        may be tried again, or closed without.

        Waits for all appends, and then until each copy was written or failed (add time-out). With
        deferred sync it forces what is acknowledged first; Java's client closes at the last force
        and cuts off the rest. Doing so twice is allowed.

        Raises LedgerFencedError, LedgerClosedError or MetadataError if the ledger could not be
        closed: what was confirmed is in it all the same.
        """
        if self._end is not None:
            raise self._end
        self._was_left = True
        self._room.set()
        if durable and not self._is_closed and self._closing is None:
            self._hand_over()
            if self._pending:
                await asyncio.wait([self._pending[-1][2]])
            if not self.deferred_sync:  # which forces before it closes
                await must_be_durable(self._access, self.metadata, self.last_add_confirmed)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            self._hand_over()
            self._driver.feed(Close())
        return await asyncio.shield(self._closing)

    async def abort(self) -> None:
        """Leave the ledger as it is, not closed; what is not acknowledged yet fails with
        HandleClosedError, and may be in the ledger."""
        self._was_left = True
        self._task.cancel()
        await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the ledger. An append that failed is raised here if nothing else is."""
        try:
            await self.close()
        except BkboxError as close_error:
            if error is None:
                raise
            error.add_note(f"closing the ledger failed as well: {close_error}")
        finally:
            await self.abort()
        if error is None and self._machine.failure is not None:
            raise self._machine.failure

    @property
    def was_left(self) -> bool:
        """Whether somebody has closed or abandoned it: no more appends are taken."""
        return self._was_left

    # ---- the task that drives the machine -------------------------------------------------------

    async def _run(self) -> None:
        while not (self._is_closed and self._driver.unanswered_bytes == 0):
            for outcome in await self._driver.step():
                self._take(outcome)
            if not self._is_full():
                self._room.set()
            if self._needs_mending() and self._mending is None:
                self._mending = asyncio.get_running_loop().create_task(self._mend())

    def _take(self, outcome: Outcome) -> None:
        match outcome:
            case Acked(_, last):
                pending = self._pending
                while pending and pending[0][0] <= last:
                    entry, size, future = pending.popleft()
                    self._pending_bytes -= size
                    if not future.done():
                        future.set_result(EntryId(entry))
            case Forced(lac):
                forced = self._forces.popleft()
                if not forced.done():
                    forced.set_result(lac)
            case Failed(error):
                self._fail_pending(error)
            case Closed():
                self._is_closed = True
            case CloseFailed(error):
                self._end_close(error)

    def _fail_pending(self, error: BaseException) -> None:
        futures = [*(future for _, _, future in self._pending), *self._forces]
        self._gathered.clear()
        self._pending.clear()
        self._forces.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error)
        self._pending_bytes = 0
        self._room.set()

    def _end_close(self, error: BaseException) -> None:
        closing, self._closing = self._closing, None
        if closing is not None and not closing.done():
            closing.set_exception(error)
            closing.exception()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._driver.stop()
        for helper in (self._mending, self._telling):
            if helper is not None:
                helper.cancel()
        self._was_left = True
        if self._is_closed:
            if self._closing is not None and not self._closing.done():
                self._closing.set_result(self._machine.metadata)
        else:
            crash = None if task.cancelled() else task.exception()
            self._end = crash or HandleClosedError(
                f"the writer of ledger {self.ledger_id} was abandoned"
            )
            self._fail_pending(self._end)
            self._end_close(self._end)
        self._on_end(self)

    # ---- bookies that failed and were not replaced ----------------------------------------------

    def _needs_mending(self) -> bool:
        machine = self._machine
        return bool(machine.failed_bookies) and machine.failure is None and not self._is_closed

    async def _mend(self) -> None:
        backoff = Backoff(self._access.options, self._access.rng)
        while self._needs_mending():
            await asyncio.sleep(backoff.next_s())
            for bookie in sorted(self._machine.failed_bookies):
                if await self._takes_adds(BookieId(bookie)):
                    self._driver.post(BookieBack(BookieId(bookie)))
            ensemble = self._machine.metadata.last_fragment.ensemble
            failed = [bookie for bookie in ensemble if bookie in self._machine.failed_bookies]
            for spare in await self._access.placer.replacements(
                failed[:1], ensemble, self._access.write_quorum
            ):
                self._driver.post(BookieBack(spare))
        self._mending = None

    async def _takes_adds(self, bookie: BookieId) -> bool:
        """Send the bookie once more what it was sent last."""
        last = self._driver.last_add(bookie)
        if last is None:
            return False
        reply = await self._access.pool.add(bookie, last)
        return reply.answer is Code.EOK

    # ---- readers that would know no better ------------------------------------------------------

    async def _tell_lac(self) -> None:
        told = NO_ENTRY
        while True:
            await asyncio.sleep(self._access.options.explicit_lac_interval_s)
            lac = self.last_add_confirmed
            if lac > told and await self._written(lac):
                told = lac

    async def _written(self, lac: EntryId) -> bool:
        """Whether an ack quorum of bookies took this as the explicit LAC."""
        metadata = self._machine.metadata
        ensemble = metadata.last_fragment.ensemble
        packet = self._access.digests.package_lac(lac)
        positions = write_set(lac, metadata.ensemble_size, metadata.write_quorum)
        replies = await asyncio.gather(
            *(
                self._access.pool.write_lac(
                    ensemble[position], self.ledger_id, lac, self._access.master_key, packet
                )
                for position in positions
            )
        )
        stored = sum(reply.answer is Code.EOK for reply in replies)
        return stored >= metadata.ack_quorum
