"""Where the time of a group goes, stage by stage, and the log of those that took too long.

=======  ===========================================================================================
queue    from when the front-end began the batch until the worker took it
append   looking at the requests, and one write for all that was admitted
index    putting the entries into the index in memory
fsync    until what the group waits for is durable: its turn and the sync
reply    packing the answers, and reading the entries that were asked for
=======  ===========================================================================================

A group counts as often as it has adds, so that a percentile is one of adds; one without adds counts once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bkbox.bookie.bookie import Work
from bkbox.kernel.histogram import Histogram
from bkbox.worker.frontlink import Group

log = logging.getLogger(__name__)

STAGES = ("queue", "append", "index", "fsync", "reply")

_QUIET_US = 1_000_000
"""The log of slow groups says one of them in this time, and how many there were."""


class Stages:
    """The histograms of one disk, in microseconds."""

    def __init__(self, slow_us: int, now_us: Callable[[], int]) -> None:
        """``now_us``: CLOCK_MONOTONIC, the clock of the front-end too. ``slow_us``: a group that takes longer is
        logged; 0: none is."""
        self._slow_us = slow_us
        self._now_us = now_us
        self._histograms = {stage: Histogram() for stage in STAGES}
        self._told_us = 0
        self._untold = 0

    def values(self) -> dict[str, dict[str, int]]:
        """For the status document: microseconds."""
        return {
            stage: {
                "count": found.count,
                "p50_us": found.percentile(50),
                "p99_us": found.percentile(99),
                "p999_us": found.percentile(99.9),
                "max_us": found.max,
            }
            for stage, found in self._histograms.items()
        }

    def record(self, group: Group, work: Work, durable_us: int) -> None:
        """A group was answered just now."""
        now = self._now_us()
        spent = (
            work.taken_us - group.opened_us,
            work.written_us - work.taken_us,
            work.indexed_us - work.written_us,
            durable_us - work.indexed_us,
            now - durable_us,
        )
        times = max(work.adds.entries, 1)
        for histogram, value in zip(self._histograms.values(), spent, strict=True):
            histogram.record(value, times)
        if 0 < self._slow_us < now - group.opened_us:
            self._tell(now, now - group.opened_us, spent, times)

    def _tell(self, now: int, whole: int, spent: tuple[int, ...], times: int) -> None:
        self._untold += 1
        if now - self._told_us < _QUIET_US:
            return
        split = ", ".join(
            f"{stage} {value / 1000:.1f}" for stage, value in zip(STAGES, spent, strict=True)
        )
        log.warning(
            "slow: a group of %d adds took %.1f ms (%s); %d slow groups since the last such line",
            times,
            whole / 1000,
            split,
            self._untold,
        )
        self._told_us = now
        self._untold = 0
