"""asyncio under Spark's synchronous interfaces: an event loop on a thread of its own, and a resource that lives in it.

The event loop runs on while Spark processes a batch, so connections stay alive and readahead continues.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")

_POLL_INTERVAL_S = 0.5


class _End:
    """End of the items; with the error, if one ended them."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Background(Generic[T]):
    """A resource in the background event loop. ``open_``: an asynchronous generator that yields it once; it is opened
    at the first use, and again after a failed opening."""

    def __init__(self, open_: Callable[[], AsyncGenerator[T, None]]) -> None:
        self._open = open_
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._source: AsyncGenerator[T, None] | None = None
        self._resource: T | None = None

    def call(self, do: Callable[[T], Coroutine[Any, Any, U]]) -> U:
        """Returns the result of ``do``. Raises what it raises."""

        async def go() -> U:
            return await do(await self._ready())

        return self._begin(go()).result()

    def iterate(self, make: Callable[[T], AsyncGenerator[U, None]], ahead: int = 4) -> Iterator[U]:
        """Items of an asynchronous generator, at most ``ahead`` items in advance. Raises what it raises. Leaving the
        iteration early ends the generator."""
        items: queue.Queue[U | _End] = queue.Queue(ahead)
        stopped = threading.Event()

        def put(item: U | _End) -> None:
            while not stopped.is_set():
                with suppress(queue.Full):
                    items.put(item, timeout=_POLL_INTERVAL_S)
                    return

        async def pump() -> None:
            async with aclosing(make(await self._ready())) as source:
                async for item in source:
                    try:
                        items.put_nowait(item)
                    except queue.Full:
                        await asyncio.to_thread(put, item)
                    if stopped.is_set():
                        return

        async def work() -> None:
            error: BaseException | None = None
            try:
                await pump()
            except BaseException as caught:  # noqa: BLE001 handed on to the iterator's caller
                error = caught
            await asyncio.to_thread(put, _End(error))

        working = self._begin(work())
        try:
            while not isinstance(item := items.get(), _End):
                yield item
            if item.error is not None:
                raise item.error
        finally:
            stopped.set()
            working.cancel()

    def close(self) -> None:
        """Ends the event loop and closes the resource; idempotent."""
        loop, thread, source = self._loop, self._thread, self._source
        self._loop = self._thread = self._source = self._resource = None
        if loop is None or thread is None:
            return
        if source is not None:
            asyncio.run_coroutine_threadsafe(source.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _begin(self, what: Coroutine[Any, Any, U]) -> Future[U]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="bookkeeper", daemon=True
            )
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(what, self._loop)

    async def _ready(self) -> T:
        if self._resource is None:
            self._source = self._open()
            self._resource = await anext(self._source)
        return self._resource
