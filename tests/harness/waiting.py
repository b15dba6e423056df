"""Waits for a condition, which fail the test with what they waited for. Patience costs nothing where it comes true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bkbox.launcher import waiting


def wait_for(
    condition: Callable[[], Any], what: str, timeout: float = 120.0, pause: float = 0.05
) -> Any:
    """The first true value of condition()."""
    value = waiting.wait_until(condition, timeout, pause)
    assert value, f"waited {timeout} s for: {what}"
    return value


async def until(
    condition: Callable[[], Any], what: str = "a condition", timeout: float = 120.0
) -> Any:
    """The first true value of condition(), while other tasks go on."""
    value = await waiting.until(condition, timeout, 0.002)
    assert value, f"waited {timeout} s for: {what}"
    return value
