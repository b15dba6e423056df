"""How large a share of its budgets long work gets, by how the foreground does beside it.

Once a second each disk says how long its adds took. Where that is more than ``growth_max`` times what is usual there,
the share is halved; otherwise it grows by a little. So the jobs give way within seconds and come back within a minute,
and many bookies that do the same do not swing together.

What is usual is learned while the jobs rest, and otherwise only downwards: a foreground that is slow *because* of the
jobs must not become the usual. They rest when they do nothing, or have the least share, for some seconds on end: where
the foreground stays slow then, it is not they who make it slow. Jobs that begin together with the foreground, as after
a start, are made to rest for a few seconds first: else what they do to it would be all that was ever measured. After
that they begin with the least share and get twice as much each second until it is too much for the first time, as
nobody knows yet what the foreground can bear.

Pure: measurements in, the share out.
"""

from __future__ import annotations

SHARE_LEAST = 0.05
_DOWN = 0.5
_UP = 0.02
_START = 2.0
_ADDS_LEAST = 50
"""Fewer say nothing about a p99."""
_NOISE_US = 200
"""Adds that take less than this disturb nobody, whatever is usual."""
_LEARN_DOWN = 0.2
_RESTED_S = 10
_FIRST_REST_S = 3


class Usual:
    """What is usual for the adds of one disk."""

    def __init__(self) -> None:
        self._p99_us: float | None = None
        self._at_rest: list[int] = []
        self._rested_s = 0
        self.is_unknown = False
        """There is a foreground, and the jobs have hardly rested since it was first seen."""

    def growth(self, adds: int, p99_us: int, *, rest: bool) -> float:
        """How many times as long as usual the adds of the last second took; 1.0 where that cannot be said.

        ``rest``: the jobs did nothing meanwhile, or as little as they ever do.
        """
        self.is_unknown = False
        if not rest:
            self._at_rest.clear()
        if adds < _ADDS_LEAST:
            return 1.0
        if rest:
            self._at_rest.append(p99_us)
            self._rested_s += 1
        self.is_unknown = self._rested_s < _FIRST_REST_S
        if self._p99_us is None:
            self._p99_us = float(p99_us)
        elif rest and self._rested_s <= _FIRST_REST_S:
            self._p99_us = float(min(self._at_rest))
        growth = p99_us / max(self._p99_us, _NOISE_US)
        if p99_us < self._p99_us:
            self._p99_us += _LEARN_DOWN * (p99_us - self._p99_us)
        elif len(self._at_rest) >= _RESTED_S:
            self._p99_us = max(self._p99_us, min(self._at_rest))
            self._at_rest.clear()
        return growth


class Governor:
    """The share, from SHARE_LEAST to 1."""

    def __init__(self, growth_max: float) -> None:
        self.growth_max = growth_max
        self.share = 1.0
        self._starts = False

    def second_passed(self, growth: float, *, unknown: bool = False) -> float:
        """The share for the next second; ``growth`` is that of the disk that does worst. ``unknown``: what is usual is
        not known somewhere."""
        if unknown:
            self._starts, self.share = True, SHARE_LEAST
        elif growth > self.growth_max:
            self._starts, self.share = False, max(SHARE_LEAST, self.share * _DOWN)
        elif self._starts and self.share < 1.0:
            self.share = min(1.0, self.share * _START)
        else:
            self._starts, self.share = False, min(1.0, self.share + _UP)
        return self.share
