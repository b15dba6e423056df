"""Pacing of repair: a budget of bytes per second, and the wait between tries.

Pure: the clock's value and the randomness are passed in.
"""

from __future__ import annotations

import random


class ByteBudget:
    """Lets at most ``bytes_per_second`` pass on average, one second's worth at once; 0 means no bound."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def wait_s(self, size: int, now_s: float) -> float:
        """Spend ``size`` bytes and say how long to wait before going on."""
        if self._rate <= 0:
            return 0.0
        self._free_at = max(self._free_at, now_s - 1.0) + size / self._rate
        return max(0.0, self._free_at - now_s)


def retry_wait_s(tries: int, initial_s: float, longest_s: float, rng: random.Random) -> float:
    """Exponential back-off with jitter, so that the bookies of a crashed host do not all come at once."""
    bound = min(longest_s, initial_s * 2.0 ** min(tries, 30))
    return bound * rng.uniform(0.5, 1.0)
