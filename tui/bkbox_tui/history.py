"""Rates and latencies over the last minutes, from the counters in snapshots. Pure; bounded."""

from __future__ import annotations

from collections import deque

from bkbox.api.admin.status import Status
from bkbox_tui.snapshot import Snapshot

POINTS = 120


class History:
    """Adds per second, and the free share of the disks, of the last POINTS snapshots."""

    def __init__(self) -> None:
        self.adds_per_s: deque[float] = deque(maxlen=POINTS)
        self.p99_us: deque[float] = deque(maxlen=POINTS)
        self._before: tuple[int, int] | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Adds a snapshot; a restarted bookie counts from zero."""
        if snapshot.status is None:
            self._before = None
            return
        adds = adds_of(snapshot.status)
        if self._before is not None:
            ms, count = self._before
            seconds = (snapshot.taken_ms - ms) / 1_000
            if seconds > 0:
                self.adds_per_s.append(max(0, adds - count) / seconds)
        self._before = snapshot.taken_ms, adds
        self.p99_us.append(recent_p99_us(snapshot.status, "add") or 0)


def adds_of(status: Status) -> int:
    """Entries added since the workers started."""
    return sum(disk.counts.adds for disk in status.disks)


def recent_p99_us(status: Status, operation: str) -> int | None:
    """The recent p99 latency of adds, or reads, on the slowest disk, in microseconds; None: there were none."""
    found = [
        each.recent_p99_us
        for disk in status.disks
        for each in disk.operations
        if each.operation == operation and each.recent_count
    ]
    return max(found, default=None)
