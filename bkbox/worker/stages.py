"""Where the time of a group goes, stage by stage, and the log of those that took too long.

=======  ===========================================================================================
queue    from when the front-end began the batch until the worker took it
append   looking at the requests, and one write for all that was admitted
index    putting the entries into the index in memory
fsync    until what the group waits for is durable: its turn and the sync; its reads are answered meanwhile
reply    packing the answers to what waited
=======  ===========================================================================================

A group counts as often as it has adds, so that a percentile is one of adds; one without adds counts once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise

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
        self.slow_us = slow_us
        self._now_us = now_us
        self._queue, self._append, self._index, self._fsync, self._reply = histograms = tuple(
            Histogram() for _ in STAGES
        )
        self._histograms = dict(zip(STAGES, histograms, strict=True))
        self._latest = Histogram()
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

    def latest(self) -> tuple[int, int]:
        """Writers' adds since this was last asked, and the p99 of their time until they were durable, in microseconds:
        what the jobs must not slow down, so nothing of their own is in it.
        """
        found, self._latest = self._latest, Histogram()
        return found.count, found.percentile(99)

    def record(self, group: Group, work: Work, durable_us: int) -> None:
        """A group was answered just now."""
        now = self._now_us()
        times = work.adds.entries or 1
        written = work.adds.entries - work.odd.recovered
        if written:
            self._latest.record(durable_us - group.opened_us, written)
        self._queue.record(work.taken_us - group.opened_us, times)
        self._append.record(work.written_us - work.taken_us, times)
        self._index.record(work.indexed_us - work.written_us, times)
        self._fsync.record(durable_us - work.indexed_us, times)
        self._reply.record(now - durable_us, times)
        if 0 < self.slow_us < now - group.opened_us:
            self._tell(now, group, work, durable_us)

    def _tell(self, now: int, group: Group, work: Work, durable_us: int) -> None:
        self._untold += 1
        if now - self._told_us < _QUIET_US:
            return
        moments = (
            group.opened_us,
            work.taken_us,
            work.written_us,
            work.indexed_us,
            durable_us,
            now,
        )
        split = ", ".join(
            f"{stage} {(end - start) / 1000:.1f}"
            for stage, (start, end) in zip(STAGES, pairwise(moments), strict=True)
        )
        log.warning(
            "slow: a group of %d adds took %.1f ms (%s); %d slow groups since the last such line",
            work.adds.entries,
            (now - group.opened_us) / 1000,
            split,
            self._untold,
        )
        self._told_us = now
        self._untold = 0
