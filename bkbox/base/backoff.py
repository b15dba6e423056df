"""Exponential back-off: the wait before a retry doubles with each failure in a row, up to a bound.

With randomness (``rng``) a wait is multiplied by a factor between the two bounds of ``jitter``, so that what failed
together is not retried together. Pure but for that; the caller sleeps.
"""

from __future__ import annotations

import random
from math import inf

JITTER_BELOW = (0.5, 1.0)
"""No wait is longer than it would be without jitter."""

JITTER_AROUND = (0.5, 1.5)
"""The mean of the waits is what they would be without jitter."""

_DOUBLINGS_MAX = 30


def jittered(wait_s: float, rng: random.Random, jitter: tuple[float, float]) -> float:
    """One wait, with jitter."""
    return wait_s * rng.uniform(*jitter)


def backoff_s(
    tries: int,
    initial_s: float,
    longest_s: float = inf,
    rng: random.Random | None = None,
    jitter: tuple[float, float] = JITTER_BELOW,
) -> float:
    """Seconds to wait after ``tries`` + 1 failures: ``initial_s`` after the first."""
    bound_s = min(longest_s, initial_s * 2.0 ** min(tries, _DOUBLINGS_MAX))
    return bound_s if rng is None else jittered(bound_s, rng, jitter)


class Backoff:
    """The same for a caller that does not count the failures itself."""

    __slots__ = ("_initial_s", "_jitter", "_longest_s", "_rng", "_tries")

    def __init__(
        self,
        initial_s: float,
        longest_s: float,
        rng: random.Random | None = None,
        jitter: tuple[float, float] = JITTER_BELOW,
    ) -> None:
        self._initial_s = initial_s
        self._longest_s = longest_s
        self._rng = rng
        self._jitter = jitter
        self._tries = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        wait_s = backoff_s(self._tries, self._initial_s, self._longest_s, self._rng, self._jitter)
        self._tries += 1
        return wait_s

    def reset(self) -> None:
        """An attempt succeeded: the next failure is a first one."""
        self._tries = 0
