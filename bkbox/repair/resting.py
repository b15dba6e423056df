"""Waiting inside a job that goes on for long: it hears that it is to pause or to end, however long the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from bkbox.jobs.work import Work

_LISTEN_EVERY_S = 1.0


async def rest(work: Work, until: Awaitable[None]) -> None:
    """Wait for it. Raises JobCancelledError."""
    waiting = asyncio.ensure_future(until)
    try:
        while not waiting.done():
            await asyncio.wait((waiting,), timeout=_LISTEN_EVERY_S)
            await work.turn()
        waiting.result()
    finally:
        waiting.cancel()
