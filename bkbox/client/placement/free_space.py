"""The free space of bookies, as reported by themselves: a hint for placement, never waited for long.

Each bookie is asked at most once in ASK_EVERY_S, whatever its answer. A bookie that has not responded within
ANSWER_TIMEOUT_S counts as unknown until it is asked again. Java asks once a day (getBookieInfoIntervalSeconds) and
again after a minute if that failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

from bkbox.base.ids import BookieId
from bkbox.client.connection.pool import DiskSpace
from bkbox.protocol.events import RequestStatus

ASK_EVERY_S = 60.0
RESPONSE_TIMEOUT_S = 1.0

Ask = Callable[[BookieId], Awaitable[DiskSpace | RequestStatus]]
"""The signature of BookiePool.bookie_info."""


class FreeSpace:
    """Caches the free space that bookies reported."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._requested_at: dict[BookieId, float] = {}
        self._free: dict[BookieId, int] = {}

    def known(self, bookie: BookieId) -> int | None:
        """The bookie's last reported free space, in bytes; None if unknown."""
        return self._free.get(bookie)

    async def refresh(self, bookies: Collection[BookieId]) -> None:
        """Ask the bookies whose cached value has expired, all at the same time."""
        now = asyncio.get_running_loop().time()
        due = [b for b in bookies if now - self._requested_at.get(b, -ASK_EVERY_S) >= ASK_EVERY_S]
        self._requested_at.update(dict.fromkeys(due, now))
        await asyncio.gather(*map(self._learn, due))

    async def _learn(self, bookie: BookieId) -> None:
        reply = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                reply = await self._ask(bookie)
        if isinstance(reply, DiskSpace):
            self._free[bookie] = reply.free_bytes
        else:
            self._free.pop(bookie, None)
