"""How much may be on its way at once, in bytes: whoever wants to begin waits for room, in the order of asking."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteWindow:
    """Room for ``size`` bytes; what is larger passes alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Wait for room for so many bytes and hold them."""
        if not self._waiting and self._fits(size):
            self._held += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given just now
                self.give(size)
            else:
                self._waiting.remove((size, turn))
                self._pass()
            raise

    def give(self, size: int) -> None:
        """Hold so many bytes less."""
        self._held -= size
        self._pass()

    def _pass(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if turn.cancelled():
                continue
            self._held += size
            turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._size
