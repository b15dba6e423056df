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

_WINDOW_US = 30_000_000
"""What is told of lately reaches back once or twice this."""

_QUIET_US = 1_000_000
"""The log of slow groups says one of them in this time, and how many there were."""


class Stages:
    """The histograms of one disk, in microseconds."""

    def __init__(self, slow_us: int, now_us: Callable[[], int]) -> None:
        """``now_us``: CLOCK_MONOTONIC, the clock of the front-end too. ``slow_us``: a group that takes longer is
        logged; 0: none is."""
        self.slow_us = slow_us
        self._now_us = now_us
        self._before = tuple(Histogram() for _ in STAGES)
        """All that is not in ``_window``; the last part of it is also in ``_last``."""
        self._last = tuple(Histogram() for _ in STAGES)
        self._begin_window()
        self._latest = Histogram()
        self._told_us = 0
        self._untold = 0

    def _begin_window(self) -> None:
        self._window = tuple(Histogram() for _ in STAGES)
        self._queue, self._append, self._index, self._fsync, self._reply = self._window
        self._window_us = self._now_us()

    def values(self) -> dict[str, dict[str, int]]:
        """For the status document: microseconds."""
        if self._now_us() - self._window_us >= _WINDOW_US:
            for before, window in zip(self._before, self._window, strict=True):
                before.merge(window)
            self._last = self._window
            self._begin_window()
        found = {}
        for stage, before, last, window in zip(
            STAGES, self._before, self._last, self._window, strict=True
        ):
            total, lately = _sum(before, window), _sum(last, window)
            found[stage] = {
                "count": total.count,
                "p50_us": total.percentile(50),
                "p99_us": total.percentile(99),
                "p999_us": total.percentile(99.9),
                "max_us": total.max,
                "total_us": total.total,
                "lately_count": lately.count,
                "lately_p50_us": lately.percentile(50),
                "lately_p99_us": lately.percentile(99),
            }
        return found

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
        written = work.adds.entries - work.adds.recovered - work.odd.recovered
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


def _sum(one: Histogram, other: Histogram) -> Histogram:
    found = Histogram()
    found.merge(one)
    found.merge(other)
    return found
