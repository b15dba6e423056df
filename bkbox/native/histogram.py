"""Counts of values in buckets that grow with the value, as HdrHistogram keeps them.

A bucket is at most 1/32 of its least value wide, so that a percentile is off by 3 % at most, always
upwards. Values are whole numbers from 0 to 2**63 - 1, for most users microseconds or nanoseconds;
their number, sum and largest are exact.
"""

from __future__ import annotations

from array import array

_DOUBLING = 32
"""Buckets for each doubling; values below two times that have a bucket of their own each."""

_BUCKETS = 60 * _DOUBLING


class Histogram:
    """The number of values (``count``), their sum (``total``), the largest (``max``) and the buckets."""

    def __init__(self) -> None:
        self.counts = array("q", bytes(8 * _BUCKETS))
        self.count = 0
        self.total = 0
        self.max = 0

    def record(self, value: int, times: int = 1) -> None:
        """Add ``times`` equal values; a negative one counts as 0."""
        if value < 0:
            value = 0
        self.count += times
        self.total += value * times
        if value > self.max:
            self.max = value
        base = 0
        while value >= 2048:
            value >>= 5
            base += 160
        while value >= 64:
            value >>= 1
            base += 32
        self.counts[base + value] += times

    def merge(self, other: Histogram) -> None:
        """Add all values of another histogram."""
        self.count += other.count
        self.total += other.total
        if other.max > self.max:
            self.max = other.max
        for bucket in range(_BUCKETS):
            self.counts[bucket] += other.counts[bucket]

    def percentile(self, percent: float) -> int:
        """The value that this percentage of all values does not exceed; 0 if there are none."""
        rank = max(self.count * percent / 100, 1.0)
        seen = 0
        for bucket in range(_BUCKETS):
            seen += self.counts[bucket]
            if seen >= rank:
                return min(_end(bucket) - 1, self.max)
        return 0


def _end(bucket: int) -> int:
    """The least value above those of a bucket."""
    if bucket < 2 * _DOUBLING:
        return bucket + 1
    shift = bucket // _DOUBLING - 1
    return (bucket - shift * _DOUBLING + 1) << shift
