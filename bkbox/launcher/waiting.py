"""Waiting for a condition of another process, which tells nothing by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.02


def wait_until(condition: Callable[[], T], timeout_s: float, poll_s: float = _POLL_S) -> T:
    """The first true value of ``condition``; its last false one after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(poll_s)
    return value


async def until(condition: Callable[[], T], timeout_s: float, poll_s: float = _POLL_S) -> T:
    """The same, while other tasks go on."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < deadline:
        await asyncio.sleep(poll_s)
    return value
