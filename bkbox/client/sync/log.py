"""Logs for programs without an event loop; part of bkbox.client.sync.client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Generic, Self, TypeVar

from bkbox.client import arguments
from bkbox.client.ledger.payload import payload_of
from bkbox.client.ledger.writer import LedgerWriter as AsyncWriter
from bkbox.client.log.log import Log as AsyncLog
from bkbox.client.log.log import LogInfo, LostLedger
from bkbox.client.log.options import LogOptions
from bkbox.client.log.position import Position
from bkbox.client.log.reader import Record
from bkbox.client.log.writer import LogWriter as AsyncLogWriter
from bkbox.client.sync.handover import Begin, Handover, future_of
from bkbox.client.sync.loop_thread import LoopThread

T = TypeVar("T")
P = TypeVar("P")
W = TypeVar("W", bound=AsyncWriter | AsyncLogWriter)


async def begun(
    append: Callable[[], asyncio.Future[T]], wait_for_space: Callable[[], Awaitable[None]]
) -> Future[T]:
    """The future of an append, for other threads; returned once the window had space for it."""
    await wait_for_space()
    return future_of(append())


class BlockingWriter(Generic[W, P]):
    """The common part of the writers of ledgers and of logs; ``P``: what an append gives."""

    def __init__(self, thread: LoopThread, writer: W) -> None:
        self._thread = thread
        self._writer = writer
        self._handover: Handover[P] = Handover(thread, writer.drain)
        self._is_ended = False

    @property
    def failure(self) -> BaseException | None:
        return self._writer.failure

    def abort(self, *, timeout_s: float | None = None) -> None:
        self._is_ended = True
        self._thread.call(self._writer.abort, timeout_s)

    def _call(self, work: Callable[[], Awaitable[T]], timeout_s: float | None) -> T:
        """The result of a call to the writer, after the appends that were handed over before it."""

        async def after() -> T:
            await self._handover.passed()
            return await work()

        return self._thread.call(after, timeout_s)

    def _hand_over(self, begin: Begin[P], payload: bytes) -> Future[P]:
        """Begin an append. What would be refused at once is, as far as it is known."""
        if self._is_ended or self.failure is not None or len(payload) > self.payload_bytes_max:
            return self._call(lambda: begun(lambda: begin(payload), self._writer.drain), None)
        return self._handover.put(begin, payload)

    @property
    def payload_bytes_max(self) -> int:
        return self._writer.payload_bytes_max

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not self._thread.is_current_thread:
            return
        self._is_ended = True
        call = self._call if error is None else self._thread.call
        call(lambda: self._writer.__aexit__(kind, error, traceback), None)


class Log:
    """See bkbox.client.log.Log."""

    def __init__(self, thread: LoopThread, log: AsyncLog) -> None:
        self._thread = thread
        self._log = log

    @property
    def name(self) -> str:
        return self._log.name

    def open_writer(
        self, options: LogOptions | None = None, *, timeout_s: float | None = None
    ) -> LogWriter:
        return LogWriter(
            self._thread, self._thread.call(lambda: self._log.open_writer(options), timeout_s)
        )

    def read(self, start: Position | None = None, end: Position | None = None) -> Iterator[Record]:
        return self._thread.iterate(self._log.read(start, end))

    def __iter__(self) -> Iterator[Record]:
        return self.read()

    def tail(self, start: Position | None = None) -> Iterator[Record]:
        return self._thread.iterate(self._log.tail(start))

    def last(self, count: int, *, timeout_s: float | None = None) -> list[Record]:
        return self._thread.call(lambda: self._log.last(count), timeout_s)

    def end(self, *, timeout_s: float | None = None) -> Position:
        return self._thread.call(self._log.end, timeout_s)

    def info(self, *, timeout_s: float | None = None) -> LogInfo:
        return self._thread.call(self._log.info, timeout_s)

    def truncate(self, before: Position, *, timeout_s: float | None = None) -> LogInfo:
        return self._thread.call(lambda: self._log.truncate(before), timeout_s)

    def delete(self, *, timeout_s: float | None = None) -> None:
        self._thread.call(self._log.delete, timeout_s)

    def lost(self, *, timeout_s: float | None = None) -> list[LostLedger]:
        return self._thread.call(self._log.lost, timeout_s)

    def forget(self, ledger: int, *, timeout_s: float | None = None) -> LostLedger:
        return self._thread.call(lambda: self._log.forget(ledger), timeout_s)


class LogWriter(BlockingWriter[AsyncLogWriter, Position]):
    """See bkbox.client.log.LogWriter."""

    @property
    def name(self) -> str:
        return self._writer.name

    @property
    def epoch(self) -> int:
        return self._writer.epoch

    def append(
        self,
        payload: bytes,
        *,
        timestamp_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        return self._call(
            lambda: self._writer.append(payload, timestamp_ms=timestamp_ms), timeout_s
        )

    def append_once(
        self,
        payload: bytes,
        writer_id: str,
        sequence: int,
        *,
        timestamp_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> Position | None:
        return self._call(
            lambda: self._writer.append_once(
                payload, writer_id, sequence, timestamp_ms=timestamp_ms
            ),
            timeout_s,
        )

    def append_many(
        self,
        payloads: Iterable[bytes],
        *,
        timestamps_ms: Iterable[int] | None = None,
        timeout_s: float | None = None,
    ) -> list[Position]:
        return self._call(
            lambda: self._writer.append_many(payloads, timestamps_ms=timestamps_ms), timeout_s
        )

    def append_nowait(self, payload: bytes, *, timestamp_ms: int | None = None) -> Future[Position]:
        """Append a record; blocks only while the window is full. The future gives the position, and cannot be
        cancelled.
        """
        begin = self._writer.append_nowait
        if timestamp_ms is not None:
            begin = partial(begin, timestamp_ms=arguments.integer("timestamp_ms", timestamp_ms))
        return self._hand_over(begin, payload_of(payload))

    def last_sequence(self, writer_id: str) -> int | None:
        async def ask() -> int | None:
            return self._writer.last_sequence(writer_id)

        return self._call(ask, None)

    def flush(self, *, timeout_s: float | None = None) -> None:
        self._call(self._writer.flush, timeout_s)

    def close(self, *, timeout_s: float | None = None) -> None:
        self._is_ended = True
        self._call(self._writer.close, timeout_s)
