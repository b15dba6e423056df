"""How much may be on its way at once, in bytes: whoever wants to begin waits for room, in the order of asking.

At a slow rate less may be on its way than there is room for: what was asked of peers should not lie here for long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

WINDOW_BYTES = 16 << 20
"""Entries on their way between bookies for one job, in bytes."""


class ByteWindow:
    """Room for ``size`` bytes; what is larger passes alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0
        self._waiting: deque[tuple[int, int | None, asyncio.Future[None]]] = deque()

    async def take(self, size: int, most: int | None = None) -> None:
        """Wait until so many bytes have room, and are no more than ``most`` with what is held then; hold them."""
        if not self._waiting and self._fits(size, most):
            self._held += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (size, most, turn)
        self._waiting.append(waiter)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given just now
                self.give(size)
            else:
                # Whoever gave room back meanwhile has seen that it is cancelled, and left it out.
                with suppress(ValueError):
                    self._waiting.remove(waiter)
                self._pass()
            raise

    def give(self, size: int) -> None:
        """Hold so many bytes less."""
        self._held -= size
        self._pass()

    def _pass(self) -> None:
        while self._waiting and self._fits(*self._waiting[0][:2]):
            size, _most, turn = self._waiting.popleft()
            if turn.cancelled():
                continue
            self._held += size
            turn.set_result(None)

    def _fits(self, size: int, most: int | None) -> bool:
        room = self._size if most is None else min(most, self._size)
        return self._held == 0 or self._held + size <= room
