"""Rates from counters that only grow: increase per second over the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

_WINDOW_S = 10.0
_STEP_S = 0.5
_FRESH_S = 5.0
"""A worker whose last sample is older does not answer: nothing is known of its rates."""


class Meter:
    """Samples of the counters of one disk's worker. A counter that restarted counts from 0 again."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()

    def see(self, now_s: float, counts: Mapping[str, int]) -> None:
        """Add a sample of the counters at ``now_s``. May be called often."""
        if self._seen:
            last = self._seen[-1][1]
            if any(counts.get(name, 0) < last[name] for name in last):
                self._seen.clear()
            elif len(self._seen) > 1 and now_s - self._seen[-2][0] < _STEP_S:
                self._seen.pop()
        self._seen.append((now_s, dict(counts)))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()

    def rates(self, now_s: float) -> dict[str, float]:
        """The rate of each counter, per second. Empty before the second sample, and while no sample is new."""
        if len(self._seen) < 2 or now_s - self._seen[-1][0] > _FRESH_S:
            return {}
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        passed_s = last_s - first_s
        if passed_s <= 0:
            return {}
        return {name: (last[name] - first.get(name, 0)) / passed_s for name in last}
