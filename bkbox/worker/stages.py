"""Latency of adds and reads on a disk, the stages of the adds, and the log of slow groups.

Operations, from when the front-end began to gather the batch with the request until the response was handed to it:

=======  ===========================================================================================
add      entries that were acknowledged
read     entries that were requested, found or not; neither fencing reads, which wait for a sync, nor long polls
=======  ===========================================================================================

Stages of the adds:

=======  ===========================================================================================
queue    from when the front-end began the batch until the worker received it
append   checking the requests, and one write for all that was admitted
index    putting the entries into the index in memory
fsync    until what the group waits for is durable: its turn and the sync; its reads are served meanwhile
reply    packing the responses to what waited
=======  ===========================================================================================

A group counts once per add, or per read, so a percentile is one of adds or reads. A group without adds is in no stage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

from bkbox.bookie.bookie import CommitGroup
from bkbox.native.histogram import Histogram
from bkbox.worker.frontend_link import RequestGroup

log = logging.getLogger(__name__)

OPERATIONS = ("add", "read")
STAGES = ("queue", "append", "index", "fsync", "reply")

_WINDOW_US = 30_000_000
"""Length of a window, in microseconds; recent values reach back one to two windows."""

_LOG_INTERVAL_US = 1_000_000
"""Interval, in microseconds: the log names one slow group per interval, and counts the others."""


class _Windows:
    """Histograms by name, since the start and for the recent windows."""

    def __init__(self, names: Sequence[str], now_us: Callable[[], int]) -> None:
        self._names = names
        self._now_us = now_us
        self._before = self._empty()
        """Everything that is not in ``window``; its most recent part is also in ``_last``."""
        self._last = self._empty()
        self.window = self._empty()
        self._window_start_us = now_us()

    def _empty(self) -> tuple[Histogram, ...]:
        return tuple(Histogram() for _ in self._names)

    def values(self) -> dict[str, dict[str, int]]:
        """The histograms for the status document, in microseconds."""
        if self._now_us() - self._window_start_us >= _WINDOW_US:
            for before, window in zip(self._before, self.window, strict=True):
                before.merge(window)
            self._last, self.window = self.window, self._empty()
            self._window_start_us = self._now_us()
        found = {}
        for name, before, last, window in zip(
            self._names, self._before, self._last, self.window, strict=True
        ):
            total, recent = _sum(before, window), _sum(last, window)
            found[name] = {
                "count": total.count,
                "p50_us": total.percentile(50),
                "p99_us": total.percentile(99),
                "p999_us": total.percentile(99.9),
                "max_us": total.max,
                "total_us": total.total,
                "recent_count": recent.count,
                "recent_p50_us": recent.percentile(50),
                "recent_p99_us": recent.percentile(99),
            }
        return found


class Stages:
    """The latency histograms of one disk, in microseconds."""

    def __init__(self, slow_us: int, now_us: Callable[[], int]) -> None:
        """``now_us``: CLOCK_MONOTONIC, the front-end's clock too. ``slow_us``: a group that takes longer is logged; 0:
        no group is."""
        self.slow_us = slow_us
        self._now_us = now_us
        self._stages = _Windows(STAGES, now_us)
        self._operations = _Windows(OPERATIONS, now_us)
        self._latest = Histogram()
        self._logged_us = 0
        self._slow_groups = 0

    def values(self) -> dict[str, dict[str, int]]:
        """The stages, for the status document, in microseconds."""
        return self._stages.values()

    def operations(self) -> dict[str, dict[str, int]]:
        """The complete operations, for the status document, in microseconds."""
        return self._operations.values()

    def latest(self) -> tuple[int, int]:
        """Writers' adds since the last call, and the p99 of their time until durable, in microseconds. The jobs must
        not slow these adds down, so the jobs' own adds are not counted.
        """
        found, self._latest = self._latest, Histogram()
        return found.count, found.percentile(99)

    def record(self, group: RequestGroup, work: CommitGroup, durable_us: int) -> None:
        """Records a group whose writes got their responses just now."""
        now = self._now_us()
        adds = work.adds.entries
        if adds:
            self._record_adds(group, work, durable_us, now)
        if work.has_changes and 0 < self.slow_us < now - group.opened_us:
            moments = (
                group.opened_us,
                work.received_us,
                work.written_us,
                work.indexed_us,
                durable_us,
                now,
            )
            split = ", ".join(
                f"{stage} {(end - start) / 1000:.1f}"
                for stage, (start, end) in zip(STAGES, pairwise(moments), strict=True)
            )
            self._log_slow(now, f"a group of {adds} adds", now - group.opened_us, f" ({split})")

    def _record_adds(
        self, group: RequestGroup, work: CommitGroup, durable_us: int, now: int
    ) -> None:
        adds = work.adds.entries
        written = adds - work.adds.recovered - work.slow_path.recovered
        if written:
            self._latest.record(durable_us - group.opened_us, written)
        queue, append, index, fsync, reply = self._stages.window
        queue.record(work.received_us - group.opened_us, adds)
        append.record(work.written_us - work.received_us, adds)
        index.record(work.indexed_us - work.written_us, adds)
        fsync.record(durable_us - work.indexed_us, adds)
        reply.record(now - durable_us, adds)
        if work.failure is None:
            self._operations.window[0].record(now - group.opened_us, adds)

    def record_reads(self, group: RequestGroup, reads: int) -> None:
        """Records the number of a group's reads that were served just now."""
        if not reads:
            return
        now = self._now_us()
        self._operations.window[1].record(now - group.opened_us, reads)
        if 0 < self.slow_us < now - group.opened_us:
            self._log_slow(now, f"{reads} reads of a group", now - group.opened_us)

    def _log_slow(self, now: int, what: str, took_us: int, split: str = "") -> None:
        self._slow_groups += 1
        if now - self._logged_us < _LOG_INTERVAL_US:
            return
        log.warning(
            "slow: %s took %.1f ms%s; %d slow groups since the last such line",
            *(what, took_us / 1000, split, self._slow_groups),
        )
        self._logged_us = now
        self._slow_groups = 0


def _sum(one: Histogram, other: Histogram) -> Histogram:
    found = Histogram()
    found.merge(one)
    found.merge(other)
    return found
