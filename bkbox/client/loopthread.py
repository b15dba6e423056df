"""An event loop in a thread of its own, for callers that block: what bkbox.client.sync stands on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from bkbox.errors import ForkedError, HandleClosedError

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="bkbox-client", daemon=True
        )
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is the process that the thread is in."""
        return os.getpid() == self._pid

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Raises HandleClosedError, ForkedError."""
        try:
            self._must_be_usable()
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _must_be_usable(self) -> None:
        if not self.is_here:
            raise ForkedError(
                f"the client was made in process {self._pid} and is used in {os.getpid()}, which was forked from it: "
                "connect again there"
            )
        if self._closed:
            raise HandleClosedError("the client is closed")

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        """What the work comes to. Raises TimeoutError, what ``work`` raises, and as ``begin``."""

        async def within() -> T:
            async with asyncio.timeout(timeout_s):
                return await work

        try:
            future = self.begin(within())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()  # where this thread was interrupted
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while True:
                try:
                    item = self.call(_next(items), None)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if self.is_here and not self._closed:
                self.call(items.aclose(), None)

    def close(self) -> None:
        self._closed = True
        if not self.is_here:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)
