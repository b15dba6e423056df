"""An event loop in a thread of its own, for callers that block; bkbox.client.sync.client is built on it.

A call that is interrupted, by Ctrl-C or a time-out, is cancelled in the loop. An iteration that is interrupted is
ended there before its generator is closed. At the end everything in flight is cancelled, so that no thread waits for
a loop that has stopped.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from bkbox.client import arguments
from bkbox.errors import ForkedError, HandleClosedError, WrongLoopError

T = TypeVar("T")

_END_S = 10.0
"""Time, in seconds, that cancelled work may take to end."""

_SIGNALS_EVERY_S = 1.0
"""Interval, in seconds, at which a thread that waits looks for signals. One that comes right before a wait for a lock
does not interrupt it.
"""


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        self._closing = threading.RLock()  # an iterator may be collected while it is held
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="bkbox-client", daemon=True
        )
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """True in the process that the thread belongs to."""
        return os.getpid() == self._pid

    def _must_be_usable(self) -> None:
        if not self.is_current_thread:
            raise ForkedError(
                f"the client was made in process {self._pid} and is used in {os.getpid()}, which was forked from it: "
                "connect again there"
            )
        if self._closed:
            raise HandleClosedError("the client is closed")

    def _must_not_wait_for_itself(self) -> None:
        if threading.current_thread() is self._thread:
            raise WrongLoopError(
                "the client's own thread calls, as in a callback of one of its futures, and would wait for itself: "
                "call from another thread"
            )

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None) -> T:
        """The result of the coroutine that ``work`` makes. Raises TimeoutError, what ``work`` raises,
        InvalidArgumentError (the time-out), WrongLoopError if the client's own thread calls, HandleClosedError and
        ForkedError.
        """
        limit_s = arguments.timeout(timeout_s)
        self._must_not_wait_for_itself()

        async def within() -> T:
            async with asyncio.timeout(limit_s):
                return await work()

        future: Future[T] = Future()
        try:
            self._begin(within, future)
            while not future.done():
                with suppress(TimeoutError):
                    future.exception(_SIGNALS_EVERY_S)
            return future.result()
        except CancelledError:
            raise HandleClosedError("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()  # if this thread was interrupted
            raise

    def must_take_calls(self) -> None:
        """Raises HandleClosedError, ForkedError, WrongLoopError if the client's own thread calls."""
        self._must_not_wait_for_itself()
        self._must_be_usable()

    def call_soon(self, callback: Callable[..., None], *arguments: object) -> None:
        """Have it called in the loop, and do not wait. Raises HandleClosedError, ForkedError."""
        with self._closing:  # what is begun before the loop is stopped ends there
            self._must_be_usable()
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, T]], future: Future[T]) -> None:
        """Start a coroutine in the loop, whose result is the future's. It is made there, where no signal interrupts, as
        the caller may be interrupted anywhere. Raises HandleClosedError, ForkedError.
        """
        self.call_soon(self._start, work, future)

    def _start(self, work: Callable[[], Coroutine[Any, Any, T]], future: Future[T]) -> None:
        if future.cancelled():
            return
        running: set[asyncio.Task[T]] = set()

        # The future, which the caller's thread drops, refers to no task: a Ctrl-C is lost in what Python runs where
        # asyncio's list of tasks loses one.
        def on_ended(task: asyncio.Task[T]) -> None:
            running.clear()
            _settle(future, task)

        def cancel() -> None:
            for task in running:
                task.cancel()

        def on_done(done: Future[T]) -> None:
            if done.cancelled() and running:
                self._loop.call_soon_threadsafe(cancel)

        task = self._loop.create_task(work())
        task.add_done_callback(on_ended)
        running.add(task)
        future.add_done_callback(on_done)

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        iteration = _Iteration(items)
        try:
            while True:
                try:
                    item = self.call(iteration.next, None)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._end(iteration)

    def _end(self, iteration: _Iteration[T]) -> None:
        """End an iteration. Also called when an iterator is garbage-collected, in any thread, or after the client was
        closed.
        """
        if not self.is_current_thread or self._closed:
            return
        with suppress(HandleClosedError):
            if threading.current_thread() is self._thread:
                self._begin(iteration.end, Future())
            else:
                self.call(iteration.end, None)

    def close(self) -> None:
        """Cancel what is in flight, and end the thread. Idempotent."""
        if not self.is_current_thread:
            return
        with self._closing:
            is_first, self._closed = not self._closed, True
        if not is_first:
            return
        ending: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._start, self._end_all, ending)
        try:
            ending.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end_all(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_END_S)
        await self._loop.shutdown_asyncgens()


def _settle(future: Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        future.cancel()
    failure = None if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(task.result())


class _Iteration(Generic[T]):
    """An asynchronous generator that another thread steps through. Used in the loop only."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._step: asyncio.Task[Any] | None = None

    async def next(self) -> T:
        self._step = asyncio.current_task()
        try:
            return await anext(self._items)
        finally:
            self._step = None

    async def end(self) -> None:
        """End the step in flight, such as that of an interrupted thread, and then the generator."""
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait([self._step])
        await self._items.aclose()
