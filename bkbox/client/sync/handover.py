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
from typing import Any, Generic, NamedTuple, TypeVar

from bkbox.client.sync.loop_thread import LoopThread
from bkbox.errors import HandleClosedError, WindowFullError

T = TypeVar("T")

QUEUED_BYTES_MAX = 1 << 20
_ENTRY_BYTES = 512
"""What a queued append costs beside its payload, in bytes."""

_APPENDS_PER_TURN = 256
"""Appends between two turns of the event loop, in which they are sent and responses are handled."""


class _Queued(NamedTuple, Generic[T]):
    """``append`` begins it in the loop; None: a mark, whose future is that of ``passed``."""

    append: Callable[[], asyncio.Future[T]] | None
    future: Future[T]
    size: int


class Handover(Generic[T]):
    """The queue of one writer. ``wait_for_space``: returns when its window has space, or it has failed."""

    def __init__(self, thread: LoopThread, wait_for_space: Callable[[], Awaitable[None]]) -> None:
        self._thread = thread
        self._wait_for_space = wait_for_space
        self._lock = threading.Lock()
        self._queue: deque[_Queued[T]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, append: Callable[[], asyncio.Future[T]], payload_bytes: int) -> Future[T]:
        """Queue an append. Its future cannot be cancelled, for it cannot be taken back. Raises HandleClosedError,
        ForkedError, WrongLoopError."""
        while self._bytes >= QUEUED_BYTES_MAX:
            self._thread.call(self.passed, None)
        self._thread.must_take_calls()
        future = _future_of_append()
        self._add(_Queued(append, future, payload_bytes + _ENTRY_BYTES))
        self._thread.call_soon(self._go_on)
        return future

    async def passed(self) -> None:
        """Returns when all that was queued before is handed over; in the loop."""
        if self._task is None and not self._queue:
            return
        mark: Future[Any] = _future_of_append()
        self._add(_Queued(None, mark, 0))
        self._go_on()
        await asyncio.wrap_future(mark)

    def _add(self, queued: _Queued[T]) -> None:
        with self._lock:
            self._queue.append(queued)
            self._bytes += queued.size

    def _pop(self) -> _Queued[T]:
        with self._lock:
            queued = self._queue.popleft()
            self._bytes -= queued.size
            return queued

    # ---- in the loop ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._task is None and self._queue:
            self._task = asyncio.get_running_loop().create_task(self._hand_over())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            self._go_on()
            return
        while self._queue:  # the client is being closed
            self._pop().future.set_exception(_closed())

    async def _hand_over(self) -> None:
        count = 0
        while self._queue:
            queued = self._pop()
            if queued.append is None:
                queued.future.set_result(None)  # type: ignore[arg-type]
                continue
            try:
                await self._hand_one_over(queued.append, queued.future)
            except asyncio.CancelledError:
                queued.future.set_exception(_closed())
                raise
            count += 1
            if count % _APPENDS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _hand_one_over(
        self, append: Callable[[], asyncio.Future[T]], future: Future[T]
    ) -> None:
        while True:
            try:
                appended = append()
            except WindowFullError:
                await self._wait_for_space()
            except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets it
                future.set_exception(error)
                return
            else:
                settle(future, appended)
                return


def future_of(appended: asyncio.Future[T]) -> Future[T]:
    """The future of an append that was begun, for other threads. It cannot be cancelled."""
    future: Future[T] = _future_of_append()
    settle(future, appended)
    return future


def settle(future: Future[T], appended: asyncio.Future[T]) -> None:
    """Let the future have what comes of an append."""

    def done(_: asyncio.Future[T]) -> None:
        if appended.cancelled():
            future.set_exception(_closed())
            return
        error = appended.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(appended.result())

    appended.add_done_callback(done)


def _future_of_append() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _closed() -> HandleClosedError:
    return HandleClosedError("the client was closed meanwhile")
