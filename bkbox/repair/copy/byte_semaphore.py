"""A semaphore over the bytes in flight: a caller waits until there is space for its bytes, first come, first served.

At a slow rate fewer bytes may be in flight than the size allows: responses of peers should not be buffered for
long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

WINDOW_BYTES = 16 << 20
"""Bytes of entries that may be in flight between bookies for one job."""


class ByteWindow:
    """A window of ``size`` bytes; a larger request passes alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._acquired = 0
        self._waiting: deque[tuple[int, int | None, asyncio.Future[None]]] = deque()

    async def acquire(self, size: int, most: int | None = None) -> None:
        """Acquire ``size`` bytes. Wait until they fit into the window, and the total acquired is no more than
        ``most``.
        """
        if not self._waiting and self._fits(size, most):
            self._acquired += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (size, most, turn)
        self._waiting.append(waiter)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was granted just now
                self.release(size)
            else:
                # A concurrent ``release`` has seen that it is cancelled, and left it out.
                with suppress(ValueError):
                    self._waiting.remove(waiter)
                self._pass()
            raise

    def release(self, size: int) -> None:
        """Release so many bytes."""
        self._acquired -= size
        self._pass()

    def _pass(self) -> None:
        while self._waiting and self._fits(*self._waiting[0][:2]):
            size, _most, turn = self._waiting.popleft()
            if turn.cancelled():
                continue
            self._acquired += size
            turn.set_result(None)

    def _fits(self, size: int, most: int | None) -> bool:
        limit = self._size if most is None else min(most, self._size)
        return self._acquired == 0 or self._acquired + size <= limit
