"""Watches on a store without callbacks: one poll for all watches of a connection.

The poll compares a mark that changes with every commit. A watch takes the event of the next change *before* it reads,
so that no change falls between reading and waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from bkbox.base import background
from bkbox.errors import HandleClosedError, MetadataError, MetadataUnavailableError

POLL_INTERVAL_S = 0.05

V = TypeVar("V")


class Changes:
    """Signals that the store's mark has changed; polls from the first call of ``next`` until closed."""

    def __init__(self, mark: Callable[[], Awaitable[object]]) -> None:
        self._mark = mark
        self._event = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None

    def next(self) -> asyncio.Event:
        """The event that is set at the first change after this call."""
        if self._poll is None:
            self._poll = background.start(self._run(), "the watch of the metadata store")
        return self._event

    async def close(self) -> None:
        """End the poll and wake every waiting watch."""
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.wait([self._poll])
        self._event.set()

    async def _run(self) -> None:
        # The first mark differs from None: it counts as a change, since there is no earlier one.
        seen: object = None
        while True:
            try:
                mark = await self._mark()
            except MetadataError:
                mark = None  # the waiting watch reads, and gets the error itself
            if mark is None or mark != seen:
                seen = mark
                self._event.set()
                self._event = asyncio.Event()
            await asyncio.sleep(POLL_INTERVAL_S)


async def watch(changes: Changes, read: Callable[[], Awaitable[V]]) -> AsyncIterator[V]:
    """The value that ``read`` gives, now and whenever it differs from the one before.

    It is read after every change. Raises what the first ``read`` raises; later MetadataUnavailableError is retried.
    Ends when the store is closed.
    """
    changed = changes.next()
    value = await read()
    yield value
    while True:
        await changed.wait()
        changed = changes.next()
        try:
            newer = await _read_when_available(read)
        except HandleClosedError:
            return
        if newer != value:
            value = newer
            yield value


async def _read_when_available(read: Callable[[], Awaitable[V]]) -> V:
    while True:
        try:
            return await read()
        except MetadataUnavailableError:
            await asyncio.sleep(POLL_INTERVAL_S)
