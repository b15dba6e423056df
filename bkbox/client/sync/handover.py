"""Appends of other threads, handed over to a writer in the loop, in the order of the calls.

A call that waits for the loop costs two switches between threads, many times what an append costs. So a payload is
queued, the loop takes all that are queued together, and the caller has the append's future at once. It waits only while
QUEUED_BYTES_MAX are queued, which is while the window of the writer is full. Every other call on the writer waits until
what was queued before it is handed over (``passed``).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from bkbox.client.sync.loop_thread import LoopThread
from bkbox.errors import HandleClosedError, WindowFullError

T = TypeVar("T")

QUEUED_BYTES_MAX = 1 << 20
_ENTRY_BYTES = 512
"""What a queued append costs beside its payload, in bytes."""

_APPENDS_PER_TURN = 256
"""Appends between two turns of the event loop, in which they are sent and responses are handled."""


class _AppendFuture(Future[T]):
    """The result of an append, which cannot be taken back."""

    def cancel(self) -> bool:
        return False


class _Unsettled(Generic[T]):
    """Appends that were begun, in their order, which is that of their results. A callback of the first one alone
    settles all that are done: callbacks of each would cost more than the appends.
    """

    def __init__(self) -> None:
        self._appends: deque[tuple[asyncio.Future[T], Future[T]]] = deque()

    def add(self, appended: asyncio.Future[T], future: Future[T]) -> None:
        """Let ``future`` have what comes of an append."""
        self._appends.append((appended, future))
        if len(self._appends) == 1:
            appended.add_done_callback(self._settle)

    def _settle(self, _: asyncio.Future[T]) -> None:
        appends = self._appends
        while appends and appends[0][0].done():
            appended, future = appends.popleft()
            if appended.cancelled():
                future.set_exception(_closed())
            elif (error := appended.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(appended.result())
        if appends:
            appends[0][0].add_done_callback(self._settle)


Begin = Callable[[bytes], asyncio.Future[T]]
"""Begins the append of a payload, in the loop."""

_Queued = tuple[Begin[T] | None, bytes, Future[T]]
"""None: a mark, whose future is that of ``passed``."""


class Handover(Generic[T]):
    """The queue of one writer. ``wait_for_space``: returns when its window has space, or it has failed."""

    def __init__(self, thread: LoopThread, wait_for_space: Callable[[], Awaitable[None]]) -> None:
        self._thread = thread
        self._wait_for_space = wait_for_space
        self._queue: deque[_Queued[T]] = deque()
        self._unsettled: _Unsettled[T] = _Unsettled()
        self._lock = threading.Lock()  # of the callers; the loop never waits for it
        self._bytes_put = 0
        self._bytes_taken = 0
        self._task: asyncio.Task[None] | None = None
        self._times_empty = 0
        self._told_at = -1

    def put(self, begin: Begin[T], payload: bytes) -> Future[T]:
        """Queue an append. Its future cannot be cancelled, for it cannot be taken back. Raises HandleClosedError,
        ForkedError, WrongLoopError."""
        while self._bytes_put - self._bytes_taken >= QUEUED_BYTES_MAX:
            self._thread.call(self.passed, None)
        self._thread.must_take_calls()
        future: Future[T] = _AppendFuture()
        with self._lock:
            self._queue.append((begin, payload, future))
            self._bytes_put += len(payload) + _ENTRY_BYTES
        self._tell()
        return future

    def _tell(self) -> None:
        """Have the loop go on, once until it has found the queue empty.

        An append is queued before ``_times_empty`` is read, and the loop counts before it looks at the queue again: so
        either it finds the append, or the count is another one. A caller that is interrupted leaves no mark of a call
        that was not made.
        """
        times_empty = self._times_empty
        if self._told_at != times_empty:
            self._thread.call_soon(self._go_on)
            self._told_at = times_empty

    async def passed(self) -> None:
        """Returns when all that was queued before is handed over; in the loop."""
        if self._task is None and not self._queue:
            return
        mark: Future[Any] = _AppendFuture()
        self._queue.append((None, b"", mark))
        self._go_on()
        await asyncio.wrap_future(mark)

    # ---- in the loop ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._hand_over())
            self._task.add_done_callback(self._ended)

    def _take(self) -> _Queued[T] | None:
        if not self._queue:
            self._times_empty += 1
            if not self._queue:
                return None
        queued = begin, payload, _ = self._queue.popleft()
        if begin is not None:
            self._bytes_taken += len(payload) + _ENTRY_BYTES
        return queued

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            if self._queue:
                self._go_on()
            return
        while (queued := self._take()) is not None:  # the client is being closed
            queued[2].set_exception(_closed())

    async def _hand_over(self) -> None:
        count = 0
        while (queued := self._take()) is not None:
            begin, payload, future = queued
            if begin is None:
                future.set_result(None)  # type: ignore[arg-type]
                continue
            try:
                while not self._begin(begin, payload, future):
                    await self._wait_for_space()
            except asyncio.CancelledError:
                future.set_exception(_closed())
                raise
            count += 1
            if count % _APPENDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _begin(self, begin: Begin[T], payload: bytes, future: Future[T]) -> bool:
        """False if the window is full."""
        try:
            self._unsettled.add(begin(payload), future)
        except WindowFullError:
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets it
            future.set_exception(error)
        return True


def future_of(appended: asyncio.Future[T]) -> Future[T]:
    """The future of an append that was begun, for other threads. It cannot be cancelled."""
    future: Future[T] = _AppendFuture()
    unsettled: _Unsettled[T] = _Unsettled()
    unsettled.add(appended, future)
    return future


def _closed() -> HandleClosedError:
    return HandleClosedError("the client was closed meanwhile")
