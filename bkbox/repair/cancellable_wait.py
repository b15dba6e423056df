"""Waiting inside a long job so that a pause or a cancel takes effect, however long the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from bkbox.jobs.context import JobContext

_LISTEN_EVERY_S = 1.0


async def wait_cancellable(work: JobContext, until: Awaitable[None]) -> None:
    """Wait for ``until``. Raises JobCancelledError."""
    waiting = asyncio.ensure_future(until)
    try:
        while not waiting.done():
            await asyncio.wait((waiting,), timeout=_LISTEN_EVERY_S)
            await work.checkpoint()
        waiting.result()
    finally:
        waiting.cancel()
