"""An event loop with virtual time: a test that waits for nothing but time takes none of it.

For code without sockets and threads, whose clock is the loop's.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

_TURN_S = 0.001
"""A turn of the loop takes this long, so time also passes while a task never waits."""


class _Clock(selectors.DefaultSelector):
    """Passes the seconds that the loop would wait."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += max(timeout or 0.0, _TURN_S)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Clock()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s


def run(test: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(test)


def now_s() -> float:
    """The running loop's time."""
    return asyncio.get_running_loop().time()
