"""The handle of the one writer of a ledger.

- Entries get their ids in the order of the calls, or come with ids of the caller's own; either way they are
  acknowledged in the order of their ids.
- The window bounds, in bytes, the unacknowledged entries, and separately, per copy, the adds that bookies have not
  answered. It is full from ``window_bytes`` on, so that one entry always fits. A slow bookie delays the writer only
  when it is that far behind.
- With deferred sync an append is acknowledged before it is on disk; ``force`` and ``close`` make it durable
  (bkbox/protocol/force.py).
"""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import Callable, Iterable

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client import arguments
from bkbox.client.closing import ClosedAtEnd
from bkbox.client.connection.pool import ADD_FRAME_OVERHEAD_BYTES
from bkbox.client.ledger.append_queue import Pending
from bkbox.client.ledger.driver import Driver, LedgerAccess
from bkbox.client.ledger.durable_copies import must_be_durable
from bkbox.client.ledger.payload import payload_of
from bkbox.client.ledger.writer_background import WriterBackground
from bkbox.errors import (
    BkboxError,
    BugError,
    EntryTooLargeError,
    HandleClosedError,
    WindowFullError,
)
from bkbox.protocol import writer
from bkbox.protocol.effects import Acked, Closed, CloseFailed, Failed, Forced, Outcome
from bkbox.protocol.events import Append, Close, Force
from bkbox.wire.digest import HEADER_BYTES
from bkbox.wire.metadata.ledger import LedgerMetadata

_APPENDS_PER_TURN = 256
"""Appends of append_many between two turns of the event loop, in which they are sent and responses are handled."""


class LedgerWriter(ClosedAtEnd):
    """Writes one ledger; made by ``Client.create_ledger``. As a context manager it closes the ledger at its end."""

    def __init__(
        self,
        access: LedgerAccess,
        machine: writer.LedgerWriter,
        on_end: Callable[[LedgerWriter], None],
        explicit_lac_interval_s: float = 0.0,
    ) -> None:
        options = access.options
        self._access = access
        self._machine = machine
        self._on_end = on_end
        self._driver = Driver(machine.handle, access)
        self._forces: deque[asyncio.Future[EntryId]] = deque()
        self._space = asyncio.Event()
        self._closing: asyncio.Future[LedgerMetadata] | None = None
        self._is_closed = False
        self._was_abandoned = False
        self._end: BaseException | None = None
        needs_v3 = machine.deferred_sync or access.synced
        overhead = ADD_FRAME_OVERHEAD_BYTES["v3" if needs_v3 else options.protocol]
        self._payload_bytes_max = (
            options.frame_bytes_max - overhead - HEADER_BYTES - access.digests.digest_size
        )
        self._window_bytes = options.window_bytes
        self._in_flight_bytes_max = options.window_bytes * access.write_quorum
        loop = asyncio.get_running_loop()
        self._pending = Pending(access.ledger_id, loop)
        self._background = WriterBackground(access, machine, self._driver, explicit_lac_interval_s)
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger's id."""
        return self._access.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata that this writer has seen."""
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
        """True if entries are acknowledged before they are on disk."""
        return self._machine.deferred_sync

    @property
    def payload_bytes_max(self) -> int:
        """Size of the largest payload, in bytes."""
        return self._payload_bytes_max

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the writer; None while it has not ended."""
        return self._machine.failure

    # ---- append ---------------------------------------------------------------------------------

    async def append(self, payload: bytes, *, entry_id: int | None = None) -> EntryId:
        """Append an entry and wait until it is acknowledged; returns its id.

        ``entry_id``: an id chosen by the caller (Java's LedgerHandleAdv). Such entries may be appended in any order;
        an entry is sent, and acknowledged, when all before it were appended. The window holds the same number of
        bytes again of early entries. Either all entries of a ledger come with an id or none does.

        If the call is cancelled, the entry may still be in the ledger. Raises EntryTooLargeError, PayloadTypeError,
        HandleClosedError, EntryIdError (the id was appended before), and the error that ended the writer:
        LedgerFencedError, LedgerClosedError, AddFailedError, UnauthorizedError, MetadataError.
        """
        if self._is_full() or entry_id is not None:
            payload = self._checked(payload)
            await self.drain(entry_id=entry_id)
        return await self.append_nowait(payload, entry_id=entry_id)

    async def append_many(self, payloads: Iterable[bytes]) -> list[EntryId]:
        """Append entries without waiting in between; returns their ids once all are acknowledged.

        Raises as ``append``; entries before the failed one are in the ledger.
        """
        pending = self._pending
        pending.must_have_no_ids()
        first_to_come = pending.next_entry
        entries: list[EntryId] = []
        futures: list[asyncio.Future[EntryId]] = []
        size = 0
        try:
            for payload in arguments.iterable("payloads", payloads):
                if self._is_full() or pending.next_entry - first_to_come >= _APPENDS_PER_TURN:
                    if size:
                        futures.append(pending.new_future(size))
                    size = 0
                    await asyncio.sleep(0)
                    await self.drain()
                    first_to_come = pending.next_entry
                entries.append(EntryId(pending.next_entry))
                size += self._enqueue(payload)
            if size:
                futures.append(pending.new_future(size))
            size = 0
            for future in futures:
                await future
            return entries
        finally:
            if size:
                futures.append(pending.new_future(size))
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    future.exception()

    def append_nowait(
        self, payload: bytes, *, entry_id: int | None = None
    ) -> asyncio.Future[EntryId]:
        """Append an entry; the future gives its id when it is acknowledged.

        Entries of one event-loop turn are sent together at its end. Raises WindowFullError (then ``await drain()``),
        else as ``append``, at once or by the future.
        """
        pending = self._pending
        if entry_id is not None:
            return self._append_as(entry_id, payload)
        if pending.has_own_ids:
            pending.must_have_no_ids()
        if self._is_full():
            raise self._window_is_full()
        return pending.new_future(self._enqueue(payload))

    def _append_as(self, entry_id: int, payload: bytes) -> asyncio.Future[EntryId]:
        self._access.binding.check()
        self._must_be_open()
        pending = self._pending
        is_early = not pending.is_next(entry_id)
        if self._is_full(is_early=is_early):
            raise self._window_is_full()
        if is_early:
            return pending.put_out_of_order(entry_id, self._checked(payload))
        future = pending.new_future(self._enqueue(payload))
        pending.follow()
        self._space.set()  # one fewer is early
        return future

    def _enqueue(self, payload: bytes) -> int:
        """Queue an entry; returns its bytes in the window, for which ``new_future`` follows before anything else
        happens.
        """
        if self._machine.failure is not None or self._was_abandoned:
            self._must_be_open()
        if not self._pending.gathered:
            self._access.binding.check()
            self._access.pool.flush_batcher.gather(self._submit)
        if type(payload) is not bytes or len(payload) > self._payload_bytes_max:
            payload = self._checked(payload)
        return self._pending.put(payload)

    def _checked(self, payload: bytes) -> bytes:
        payload = payload_of(payload)
        size = len(payload)
        if size > self._payload_bytes_max:
            frame_bytes_max = self._access.options.frame_bytes_max
            raise EntryTooLargeError(
                f"an entry of {size} bytes makes a frame of "
                f"{size - self._payload_bytes_max + frame_bytes_max}, "
                f"{frame_bytes_max} are allowed (ledger {self.ledger_id})"
            )
        return payload

    def _submit(self) -> None:
        """Send the queued entries."""
        queued = self._pending.pop_all()
        if queued and self._machine.failure is None:
            self._send(Append(queued))

    def _send(self, event: Append | Force | Close) -> None:
        """Have the machine handle an event. An error ends the task, and fails every waiting caller."""
        try:
            self._driver.send(event)
        except Exception as error:  # noqa: BLE001 - the task raises it
            self._driver.crash(error)

    def _must_be_open(self) -> None:
        if self._machine.failure is not None:
            raise self._machine.failure
        if self._was_abandoned:
            raise self._end or HandleClosedError(f"the writer of ledger {self.ledger_id} is closed")

    async def force(self) -> EntryId:
        """Have every entry acknowledged so far on the disks of its bookies; returns the LAC, which is then the last
        of them.

        Without deferred sync acknowledged entries are on disk already. Raises as ``append``: a bookie that cannot be
        forced, or that was disconnected since it acknowledged an add and may have lost it, ends the writer with
        AddFailedError.
        """
        self._access.binding.check()
        self._must_be_open()
        future: asyncio.Future[EntryId] = asyncio.get_running_loop().create_future()
        self._forces.append(future)
        self._submit()
        self._send(Force())
        return await future

    async def drain(self, *, entry_id: int | None = None) -> None:
        """Wait until the window has space, for the entry with this id if it is given, or the writer has failed."""
        if entry_id is not None:
            arguments.entry(entry_id)
        self._access.binding.check_loop()
        while self._is_full(is_early=entry_id is not None and entry_id > self._pending.next_entry):
            self._space.clear()
            await self._space.wait()

    def _is_full(self, *, is_early: bool = False) -> bool:
        """True if the window is full for an entry that can be sent, or for an early one. Early entries do not count
        for the others: they may be waiting for exactly those.
        """
        pending = self._pending
        if (
            pending.buffered_bytes < self._window_bytes
            and self._driver.in_flight_bytes < self._in_flight_bytes_max
            and not (is_early and pending.early_bytes >= self._window_bytes)
        ):
            return False
        return self._machine.failure is None and not self._was_abandoned

    def _window_is_full(self) -> WindowFullError:
        return WindowFullError(
            f"the writer of ledger {self.ledger_id} holds "
            f"{self._pending.buffered_bytes + self._pending.early_bytes} bytes that are not acknowledged"
        )

    # ---- end ------------------------------------------------------------------------------------

    async def close(self, *, durable: bool = False) -> LedgerMetadata:
        """Close the ledger at its last acknowledged entry; returns the metadata.

        ``durable``: only once every entry is on the disks of an ack quorum of bookies, which are asked to sync;
        raises NotDurableError, with the ledger not closed, if that is not certain. The call may be retried, with
        ``durable`` or without.

        Waits for all appends, and then until each copy was written or failed (add time-out). With deferred sync it
        forces what is acknowledged first; Java's client closes at the last force and cuts off the rest. Idempotent.

        Raises LedgerFencedError, LedgerClosedError or MetadataError if the ledger could not be closed: confirmed
        entries are in it all the same; ForkedError, WrongLoopError.
        """
        arguments.flag("durable", durable)
        self._access.binding.check_loop()
        if self._end is not None:
            raise self._end
        self._was_abandoned = True
        self._space.set()
        self._pending.closed()
        if durable and not self._is_closed and self._closing is None:
            self._submit()
            if self._pending.last is not None:
                await asyncio.wait([self._pending.last])
            if not self.deferred_sync:  # with it, the machine forces before it closes
                await must_be_durable(self._access, self.metadata, self.last_add_confirmed)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            self._submit()
            self._send(Close())
        return await asyncio.shield(self._closing)

    async def abort(self) -> None:
        """Leave the ledger open. Entries not acknowledged yet fail with HandleClosedError, and may be in the ledger.
        Raises ForkedError, WrongLoopError.
        """
        if self._task.done():
            self._was_abandoned = True
            return  # from any loop or process: nothing is left to be ended
        self._access.binding.check_loop()
        self._was_abandoned = True
        self._task.cancel()
        await asyncio.wait([self._task])

    @property
    def was_abandoned(self) -> bool:
        """True if the writer was closed or abandoned: it accepts no more appends."""
        return self._was_abandoned

    # ---- the task that drives the machine -------------------------------------------------------

    async def _run(self) -> None:
        while not (self._is_closed and self._driver.in_flight_bytes == 0):
            for outcome in await self._driver.step():
                self._on_outcome(outcome)
            if not self._is_full():
                self._space.set()
            self._background.start_retries()

    def _on_outcome(self, outcome: Outcome) -> None:
        match outcome:
            case Acked(_, last):
                self._pending.acked(last)
            case Forced(lac):
                forced = self._forces.popleft()
                if not forced.done():
                    forced.set_result(lac)
            case Failed(error):
                self._fail_pending(error)
            case Closed():
                self._is_closed = True
                self._background.stop()
            case CloseFailed(error):
                self._end_close(error)

    def _fail_pending(self, error: BaseException) -> None:
        self._pending.failed(error)
        while self._forces:
            forced = self._forces.popleft()
            if not forced.done():
                forced.set_exception(error)
        self._space.set()

    def _end_close(self, error: BaseException) -> None:
        closing, self._closing = self._closing, None
        if closing is not None and not closing.done():
            closing.set_exception(error)
            closing.exception()

    def _ended(self, task: asyncio.Task[None]) -> None:
        was_lost = task.cancelled() and not self._was_abandoned
        self._driver.stop()
        self._background.stop()
        self._was_abandoned = True
        if self._is_closed:
            if self._closing is not None and not self._closing.done():
                self._closing.set_result(self._machine.metadata)
        else:
            self._end = self._end_reason(task)
            self._fail_pending(self._end)
            self._end_close(self._end)
        self._on_end(self)
        if was_lost:
            text = (
                f"the writer of ledger {self.ledger_id} was not closed before its event loop ended"
            )
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)  # may be an error: last

    def _end_reason(self, task: asyncio.Task[None]) -> BaseException:
        crash = None if task.cancelled() else task.exception()
        if crash is None:
            return HandleClosedError(f"the writer of ledger {self.ledger_id} was abandoned")
        if isinstance(crash, BkboxError):
            return crash
        text = f"the writer of ledger {self.ledger_id} broke: {type(crash).__name__}: {crash}"
        bug = BugError(text)
        bug.__cause__ = crash
        return bug
