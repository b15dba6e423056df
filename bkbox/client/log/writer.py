"""The one writer of a log.

- Records are acknowledged in the order of the calls, and are in the log in that order without a gap: an append that
  fails ends the writer, and with it all later ones.
- Records that wait at the same time share an entry (``batch_bytes``, ``linger_s``).
- When a ledger is full or old, the next one is created and added to the list while the present one is still written
  (rolling.py). Then the writer waits until everything sent is acknowledged, and goes on in the new ledger: nothing is
  ever sent to a ledger while a record before it is not settled. The old ledger is closed in the background.
- A record is not written again if the log holds one with its writer id and sequence number.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from itertools import repeat
from typing import NamedTuple

from bkbox.base.ids import EntryId
from bkbox.client import arguments
from bkbox.client.client import Client
from bkbox.client.closing import ClosedAtEnd
from bkbox.client.ledger.payload import payload_of
from bkbox.client.log.entry import (
    HEADER,
    RECORD_OVERHEAD_BYTES,
    WRITER_ID_BYTES_MAX,
    RawRecord,
    encode_records,
    encode_state,
)
from bkbox.client.log.log_open import OpenedLog, begin
from bkbox.client.log.options import LogOptions
from bkbox.client.log.position import Position
from bkbox.client.log.rolling import Rolling
from bkbox.client.log.stored import StoredList
from bkbox.client.loop_affinity import LoopAffinity
from bkbox.errors import (
    BkboxError,
    BugError,
    EntryTooLargeError,
    HandleClosedError,
    InvalidArgumentError,
    LedgerClosedError,
    LedgerFencedError,
    NotLeaderError,
    SequenceError,
    WindowFullError,
)

log = logging.getLogger(__name__)

STATE_EVERY_BYTES = 16 << 20
"""Bytes that are written, if there are writer ids, before their state is written again: it bounds what opening the
log reads.
"""


class _Waiting(NamedTuple):
    record: RawRecord
    size: int
    future: asyncio.Future[Position]


class LogWriter(ClosedAtEnd):
    """Writes one log; made by ``Log.open_writer``. As a context manager it closes the log's last ledger at its end."""

    def __init__(
        self, client: Client, stored: StoredList, options: LogOptions, opened: OpenedLog
    ) -> None:
        self._name = stored.name
        self._options = options
        self._epoch = opened.epoch
        self._ledger = opened.ledger
        self._sequences = opened.sequences
        self._rolling = Rolling(client, stored, options, opened.epoch, self._rolled, self._fail)
        self._entries = 1
        self._sent_bytes = 0
        self._state_entry = 0
        self._since_state = 0
        self._queue: deque[_Waiting] = deque()
        self._buffered_bytes = 0
        self._in_flight = 0
        self._submitted: dict[str, tuple[int, asyncio.Future[Position]]] = {}
        self._wake = asyncio.Event()
        self._space = asyncio.Event()
        self._resolved = asyncio.Event()
        self._was_abandoned = False
        self._failure: BaseException | None = None
        self._binding = LoopAffinity()
        self._binding.check()  # bound to this loop from now on
        self._loop = loop = asyncio.get_running_loop()
        self._roll_timer = loop.call_later(options.roll_s, self._wake.set)
        self._roll_at = loop.time() + options.roll_s
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    @property
    def name(self) -> str:
        """The log's name."""
        return self._name

    @property
    def epoch(self) -> int:
        """The number of times that the log was opened: larger than every earlier writer's, so it also serves as a
        fencing token.
        """
        return self._epoch

    @property
    def payload_bytes_max(self) -> int:
        """Size of the largest payload of ``append``, in bytes."""
        return self._entry_bytes_max - RECORD_OVERHEAD_BYTES

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the writer; None while it has not ended."""
        return self._failure

    # ---- append ---------------------------------------------------------------------------------

    async def append(self, payload: bytes, *, timestamp_ms: int | None = None) -> Position:
        """Append a record and wait until it is acknowledged; returns its position.

        If the call is cancelled, the record may still be in the log. ``timestamp_ms``: since 1970; None: now. Raises
        EntryTooLargeError, PayloadTypeError, HandleClosedError, WrongLoopError, ForkedError, and the error that ended
        the writer: NotLeaderError, AddFailedError, MetadataError.
        """
        if timestamp_ms is not None:
            arguments.integer("timestamp_ms", timestamp_ms)
        payload = payload_of(payload)
        await self.drain()
        return await self.append_nowait(payload, timestamp_ms=timestamp_ms)

    async def append_once(
        self, payload: bytes, writer_id: str, sequence: int, *, timestamp_ms: int | None = None
    ) -> Position | None:
        """Append a record that any writer may have appended before with this writer id and sequence number: it is in
        the log once. The numbers of a writer id ascend, in the order of the calls; a number that is not above the
        last is a repetition. The call does not wait for space in the window: its caller waits for the result.

        Returns None for a repetition whose position is unknown. Raises SequenceError, else as ``append``.
        """
        writer_id, sequence = _producer(writer_id, sequence)
        # No await before the record has its place: a record that another overtakes would count as repeated.
        self._binding.check()
        self._must_be_open()
        in_flight = self._submitted.get(writer_id)
        if in_flight is not None and sequence <= in_flight[0]:
            position = await asyncio.shield(in_flight[1])
            return position if sequence == in_flight[0] else None
        known = self._sequences.last(writer_id)
        if in_flight is None and known is not None and sequence <= known[0]:
            return known[1] if sequence == known[0] else None
        future = self._append(payload, timestamp_ms, writer_id, sequence)
        self._submitted[writer_id] = sequence, future
        return await asyncio.shield(future)

    def last_sequence(self, writer_id: str) -> int | None:
        """The last sequence number of this writer id, None for none: the next record continues after it."""
        arguments.instance("writer id", writer_id, str, "text")
        in_flight = self._submitted.get(writer_id)
        known = self._sequences.last(writer_id)
        return in_flight[0] if in_flight is not None else known[0] if known is not None else None

    async def append_many(
        self, payloads: Iterable[bytes], *, timestamps_ms: Iterable[int] | None = None
    ) -> list[Position]:
        """Append records without waiting in between; returns their positions once all are acknowledged.
        ``timestamps_ms``: one for each; None: now. Raises as ``append``; records before the failed one are in the
        log.
        """
        dated = _dated(payloads, timestamps_ms)
        futures: list[asyncio.Future[Position]] = []
        try:
            for payload, timestamp_ms in dated:
                await self.drain()
                futures.append(self.append_nowait(payload, timestamp_ms=timestamp_ms))
            return [await future for future in futures]
        finally:
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    future.exception()

    def append_nowait(
        self, payload: bytes, *, timestamp_ms: int | None = None
    ) -> asyncio.Future[Position]:
        """Append a record; the future gives its position when it is acknowledged. Raises WindowFullError (then
        ``await drain()``), else as ``append``, at once or by the future."""
        self._binding.check()
        if self._is_full():
            raise WindowFullError(
                f"the writer of log {self._name} holds {self._buffered_bytes} bytes that are not acknowledged"
            )
        return self._append(payload, timestamp_ms)

    async def drain(self) -> None:
        """Wait until the window has space, or the writer has failed. Raises WrongLoopError, ForkedError."""
        self._binding.check()
        while self._is_full():
            self._space.clear()
            await self._space.wait()

    async def flush(self) -> None:
        """Wait until everything appended so far is acknowledged. Raises as ``append``."""
        self._binding.check()
        while (self._queue or self._in_flight) and self._failure is None:
            self._resolved.clear()
            await self._resolved.wait()
        self._must_be_open()

    def _append(
        self, payload: bytes, timestamp_ms: int | None, writer_id: str = "", sequence: int = -1
    ) -> asyncio.Future[Position]:
        self._must_be_open()
        if timestamp_ms is None:
            timestamp_ms = arguments.integer("the time of clock_ms", self._options.clock_ms())
        else:
            timestamp_ms = arguments.integer("timestamp_ms", timestamp_ms)
        record = RawRecord(payload_of(payload), timestamp_ms, writer_id, sequence)
        size = record.size
        if size > self._entry_bytes_max:
            raise EntryTooLargeError(
                f"a record of {len(record.payload)} bytes comes to {size}, {self._entry_bytes_max} are allowed "
                f"(log {self._name})"
            )
        future: asyncio.Future[Position] = self._loop.create_future()
        self._queue.append(_Waiting(record, size, future))
        self._buffered_bytes += size
        self._wake.set()
        return future

    @property
    def _entry_bytes_max(self) -> int:
        return self._ledger.payload_bytes_max - HEADER.size

    def _is_full(self) -> bool:
        is_full = self._buffered_bytes >= self._options.window_bytes
        return is_full and self._failure is None and not self._was_abandoned

    def _must_be_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._was_abandoned:
            raise HandleClosedError(f"the writer of log {self._name} is closed")

    # ---- end ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Wait for all appends, then close the log's last ledger, so that readers need not wait for its end.
        Idempotent. Raises the error that ended the writer, MetadataError, WrongLoopError, ForkedError.
        """
        self._binding.check()
        self._was_abandoned = True
        self._space.set()
        self._wake.set()
        await asyncio.shield(asyncio.wait([self._task]))
        if self._failure is not None:
            raise self._failure
        try:
            await self._rolling.finish()
            await self._ledger.close()
        except (LedgerFencedError, LedgerClosedError) as error:
            raise self._fail(error) from error

    async def abort(self) -> None:
        """Leave the log as it is; records not acknowledged yet fail with HandleClosedError, and may be in the log.
        Raises WrongLoopError, ForkedError.
        """
        self._binding.check()
        self._was_abandoned = True
        self._task.cancel()
        await asyncio.wait([self._task])
        self._fail(HandleClosedError(f"the writer of log {self._name} was abandoned"))
        await self._rolling.abort()
        await self._ledger.abort()

    # ---- the task that writes -------------------------------------------------------------------

    async def _run(self) -> None:
        while await self._work():
            pass
        await self._all_resolved()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task has ended, for whatever reason: nothing is written any more, and no caller may wait for it."""
        self._roll_timer.cancel()
        if not task.cancelled():
            if (error := task.exception()) is not None:
                self._fail(error)
            return
        self._fail(HandleClosedError(f"the writer of log {self._name} was abandoned"))
        if not self._was_abandoned:
            text = f"the writer of log {self._name} was not closed before its event loop ended"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)  # may be an error: last

    async def _work(self) -> bool:
        """One step; True if there is another."""
        await self._wake.wait()
        self._wake.clear()
        if self._failure is not None:
            return False
        if self._rolling.next is not None:
            await self._switch()
        elif self._is_due() and not self._was_abandoned:
            self._rolling.prepare()
        linger_s = self._options.linger_s
        if (
            0 < self._buffered_bytes < self._options.batch_bytes
            and linger_s
            and not self._was_abandoned
        ):
            await asyncio.sleep(linger_s)
        while await self._may_send():
            if self._since_state >= STATE_EVERY_BYTES and len(self._sequences):
                self._send_state()
            else:
                self._send_next()
            await asyncio.sleep(0)  # let other tasks run
            if self._rolling.next is not None:
                await self._switch()
            elif self._is_due() and not self._was_abandoned:
                self._rolling.prepare()
        return not self._was_abandoned

    async def _may_send(self) -> bool:
        """True if there is anything to send, once the ledger has space for one entry. It has space for no more than
        one for certain, so each entry asks anew: an entry without space would end the writer.
        """
        await self._ledger.drain()
        return bool(self._queue) and self._failure is None

    def _cut(self) -> list[_Waiting]:
        """The records of the next entry."""
        space = min(self._options.batch_bytes, self._entry_bytes_max)
        batch: list[_Waiting] = []
        while self._queue and (not batch or self._queue[0].size <= space):
            waiting = self._queue.popleft()
            space -= waiting.size
            batch.append(waiting)
        return batch

    def _send_next(self) -> None:
        batch = self._cut()
        try:
            self._send(batch)
        except BaseException as error:
            self._fail(error)
            self._fail_all(batch)  # no longer in the queue
            raise

    def _send_state(self) -> None:
        entry = self._entries
        state = encode_state(self._sequences.encode(), entry, self._options.compression)
        self._hand_over(state, [])
        self._state_entry, self._since_state = entry, 0

    def _send(self, batch: list[_Waiting]) -> None:
        options, ledger = self._options, self._ledger
        records = [waiting.record for waiting in batch]
        for number, record in enumerate(records):
            if record.writer_id:
                # Before it is acknowledged: if it never is, this writer ends, and its state with it.
                position = Position(ledger.ledger_id, EntryId(self._entries), number)
                self._sequences.note(record.writer_id, record.sequence, position)
        entry = encode_records(records, self._state_entry, options.compression)
        self._hand_over(entry, batch)
        self._since_state += len(entry)

    def _hand_over(self, entry: bytes, batch: list[_Waiting]) -> None:
        ledger = self._ledger
        try:
            future = ledger.append_nowait(entry)
        except BkboxError as error:
            self._fail(error)
            self._fail_all(batch)
            return
        self._in_flight += 1
        self._entries += 1
        self._sent_bytes += len(entry)

        def acked(done: asyncio.Future[EntryId]) -> None:
            self._in_flight -= 1
            error = None if done.cancelled() else done.exception()
            if error is not None or done.cancelled():
                self._fail(
                    error or HandleClosedError(f"the writer of log {self._name} was abandoned")
                )
                self._fail_all(batch)
            else:
                entry_id = done.result()
                for number, waiting in enumerate(batch):
                    self._acked(waiting, Position(ledger.ledger_id, entry_id, number))
            if self._in_flight == 0:
                self._resolved.set()
            if not self._is_full():
                self._space.set()

        future.add_done_callback(acked)

    def _acked(self, waiting: _Waiting, position: Position) -> None:
        record, size, future = waiting
        self._buffered_bytes -= size
        if record.writer_id and self._submitted[record.writer_id][1] is future:
            del self._submitted[record.writer_id]
        if not future.done():
            future.set_result(position)

    async def _all_resolved(self) -> None:
        while self._in_flight:
            self._resolved.clear()
            await self._resolved.wait()

    # ---- failure --------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> BaseException:
        """Stop writing; returns the error that ended the writer."""
        if self._failure is not None:
            return self._failure
        if not isinstance(error, BkboxError):
            bug = BugError(f"the writer of log {self._name} broke: {type(error).__name__}: {error}")
            bug.__cause__ = error
            error = bug
        if isinstance(error, (LedgerFencedError, LedgerClosedError)):
            text = f"another writer has opened the log {self._name} as its writer: {error}"
            error = NotLeaderError(text)
        self._failure = error
        waiting = list(self._queue)
        self._queue.clear()
        self._fail_all(waiting)
        self._space.set()
        self._resolved.set()
        self._wake.set()
        return error

    def _fail_all(self, batch: list[_Waiting]) -> None:
        assert self._failure is not None
        for _, size, future in batch:
            self._buffered_bytes -= size
            if not future.done():
                future.set_exception(self._failure)
                future.exception()  # its caller gets it; one that is never awaited is no news

    # ---- rolling --------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        full = self._sent_bytes >= self._options.roll_bytes
        return full or (self._entries > 1 and self._loop.time() >= self._roll_at)

    def _rolled(self) -> None:
        """The next ledger is in the list."""
        self._wake.set()

    async def _switch(self) -> None:
        """Go on in the next ledger, once everything before is settled."""
        await self._all_resolved()
        if self._failure is not None:
            return
        old, self._ledger = self._ledger, self._rolling.detach()
        self._rolling.close_later(old)
        self._entries, self._sent_bytes = 1, 0
        self._state_entry, self._since_state = 0, 0
        self._roll_timer.cancel()
        self._roll_timer = self._loop.call_later(self._options.roll_s, self._wake.set)
        self._roll_at = self._loop.time() + self._options.roll_s
        await begin(self._ledger, self._sequences, self._options)


def _producer(writer_id: str, sequence: int) -> tuple[str, int]:
    """Check a writer id and a sequence number. Raises SequenceError."""
    wrong = arguments.problems(
        lambda: arguments.instance("writer id", writer_id, str, "text"),
        lambda: arguments.integer("sequence number", sequence, 0),
    )
    if not wrong and (
        not 1 <= len(writer_id.encode(errors="replace")) <= WRITER_ID_BYTES_MAX
        or not arguments.is_unicode(writer_id)
    ):
        text = f"writer id {arguments.shown(writer_id)}: an id has 1 to {WRITER_ID_BYTES_MAX} bytes of UTF-8"
        wrong.append(text)
    if wrong:
        raise SequenceError("; ".join(wrong))
    return writer_id, arguments.integer("sequence number", sequence)


def _dated(
    payloads: Iterable[bytes], timestamps_ms: Iterable[int] | None
) -> Iterator[tuple[bytes, int | None]]:
    """Each payload with its time. Raises InvalidArgumentError, at once if both have a length."""
    if timestamps_ms is None:
        return zip(arguments.iterable("payloads", payloads), repeat(None), strict=False)
    if isinstance(payloads, Sized) and isinstance(timestamps_ms, Sized):
        records, times = len(payloads), len(timestamps_ms)
        if records != times:
            raise InvalidArgumentError(
                f"timestamps_ms has {times} times for {records} records: give one for each"
            )
    return _in_step(
        arguments.iterable("payloads", payloads), arguments.iterable("timestamps_ms", timestamps_ms)
    )


def _in_step(payloads: Iterable[bytes], times: Iterator[int]) -> Iterator[tuple[bytes, int]]:
    for payload in payloads:
        try:
            yield payload, next(times)
        except StopIteration:
            text = "timestamps_ms ends before the records do: give one for each"
            raise InvalidArgumentError(text) from None
