"""Watches of nodes: one that fires, and a value that is followed by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol, TypeVar

from bkbox.errors import HandleClosedError

V = TypeVar("V")


class Watch:
    """``fired`` is set once something has changed that was read with this watch.

    The waiting task clears it *before* reading again, and reads everything with the watch again.
    """

    def __init__(self, fired: asyncio.Event | None = None) -> None:
        self.fired = fired or asyncio.Event()

    async def wait(self, wait_s: float) -> None:
        """Return once it has fired, and after ``wait_s`` at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.fired.wait()


class Watched(Protocol):
    """The part of Tree that ``follow`` needs."""

    def deadline(self) -> AbstractAsyncContextManager[None]: ...

    def forget(self, watch: Watch) -> None: ...


async def follow(tree: Watched, read: Callable[[Watch], Awaitable[V]]) -> AsyncIterator[V]:
    """The value that ``read`` gives, now and whenever it differs from the one before.

    ``read`` reads everything with the watch that it is given. Raises what the first ``read`` raises,
    MetadataUnavailableError included; later reads wait until the store is back. Ends when the connection is closed.
    """
    watch = Watch()
    try:
        async with tree.deadline():
            value = await read(watch)
        yield value
        while True:
            await watch.fired.wait()
            watch.fired.clear()
            try:
                newer = await read(watch)
            except HandleClosedError:
                return
            if newer != value:
                value = newer
                yield value
    finally:
        tree.forget(watch)


async def first_of(*waits: Awaitable[object], timeout_s: float | None = None) -> None:
    """Wait until one of them is done, or time out; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
