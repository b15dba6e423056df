"""Adaptive throttle: sets the jobs' share of their byte budgets by the latency of foreground adds.

Once a second each disk reports how long its adds took. Where that is more than ``growth_max`` times that disk's
baseline, the share is halved; otherwise it grows by a little. So the jobs back off within seconds and recover within
a minute, and many bookies that do the same do not oscillate together.

The baseline is learned while the jobs are idle, and otherwise only downwards: latency *caused* by the jobs must not
become the baseline. Jobs count as idle after some seconds on end with no work, or at the least share; latency that
persists while they are idle is not their doing and becomes the new baseline. Jobs that begin together with the
foreground, as after a start, are paused for a few seconds first; otherwise the baseline would include their own load.
After that they begin with the least share, which doubles each second until it is too much for the first time, because
the capacity left by the foreground is not known yet.

Pure: takes measurements, returns the share.
"""

from __future__ import annotations

SHARE_LEAST = 0.05
_DOWN = 0.5
_UP = 0.02
_START = 2.0
_ADDS_LEAST = 50
"""With fewer adds a p99 means nothing."""
_NOISE_US = 200
"""Adds that take less than this are fast enough, whatever the baseline."""
_LEARN_DOWN = 0.2
_IDLE_SAMPLES = 10
_FIRST_IDLE_S = 3


class LatencyBaseline:
    """The latency baseline of the adds of one disk."""

    def __init__(self) -> None:
        self._p99_us: float | None = None
        self._idle_p99s: list[int] = []
        self._idle_s = 0
        self.is_unknown = False
        """There is foreground load, and the jobs have hardly been idle since it was first seen."""

    def growth(self, adds: int, p99_us: int, *, idle: bool) -> float:
        """The latency of the last second's adds as a multiple of the baseline; 1.0 where it is not known.

        ``idle``: the jobs were idle meanwhile, or at their least share.
        """
        self.is_unknown = False
        if not idle:
            self._idle_p99s.clear()
        if adds < _ADDS_LEAST:
            return 1.0
        if idle:
            self._idle_p99s.append(p99_us)
            self._idle_s += 1
        self.is_unknown = self._idle_s < _FIRST_IDLE_S
        if self._p99_us is None:
            self._p99_us = float(p99_us)
        elif idle and self._idle_s <= _FIRST_IDLE_S:
            self._p99_us = float(min(self._idle_p99s))
        growth = p99_us / max(self._p99_us, _NOISE_US)
        if p99_us < self._p99_us:
            self._p99_us += _LEARN_DOWN * (p99_us - self._p99_us)
        elif len(self._idle_p99s) >= _IDLE_SAMPLES:
            self._p99_us = max(self._p99_us, min(self._idle_p99s))
            self._idle_p99s.clear()
        return growth


class AdaptiveThrottle:
    """Computes the share, from SHARE_LEAST to 1."""

    def __init__(self, growth_max: float) -> None:
        self.growth_max = growth_max
        self.share = 1.0
        self._starts = False

    def second_passed(self, growth: float, *, unknown: bool = False) -> float:
        """The share for the next second. ``growth``: that of the worst disk. ``unknown``: some disk has no baseline
        yet.
        """
        if unknown:
            self._starts, self.share = True, SHARE_LEAST
        elif growth > self.growth_max:
            self._starts, self.share = False, max(SHARE_LEAST, self.share * _DOWN)
        elif self._starts and self.share < 1.0:
            self.share = min(1.0, self.share * _START)
        else:
            self._starts, self.share = False, min(1.0, self.share + _UP)
        return self.share
