"""The pace of a checkpoint: its thread rests, so that requests of clients do not wait for it.

To store an index of 600,000 entries takes a tenth of a second and more, on processors, and with an interpreter, that
requests need as well. So its thread rests between pieces of work, four times as long as each took, unless that is
urgent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_PIECE_US = 500
"""Least work, in microseconds, between two rests."""

_REST_FACTOR = 4
_REST_US_MAX = 20_000
"""Upper bound, in microseconds, on a rest: who waits for the end of a checkpoint waits for this, too."""


class CheckpointPace:
    """The rests of one checkpoint. ``is_urgent``: asked before each rest, on the thread that rests."""

    def __init__(
        self,
        is_urgent: Callable[[], bool],
        ticks_us: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._is_urgent = is_urgent
        self._ticks_us = ticks_us
        self._sleep = sleep
        self._since_us = ticks_us()

    def rest(self) -> None:
        """Rest for four times the work since the last rest, if that was a piece and nothing is urgent."""
        worked_us = self._ticks_us() - self._since_us
        if worked_us < _PIECE_US:
            return
        if not self._is_urgent():
            self._sleep(min(worked_us * _REST_FACTOR, _REST_US_MAX) / 1e6)
        self._since_us = self._ticks_us()
