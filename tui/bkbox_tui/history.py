"""Rates, latencies and the number of ledgers in limbo over the last minutes. Pure; bounded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bkbox.api.admin.status import DiskStatus
from bkbox.api.cluster.rows import recent_p99_us
from bkbox_tui.snapshot import Snapshot

POINTS = 240
"""Snapshots kept: as many as a wide terminal has columns for."""


def _series() -> deque[float]:
    return deque(maxlen=POINTS)


@dataclass(slots=True)
class DiskHistory:
    """Trends of one disk: adds, reads and written bytes per second; ``busy``: the share of each interval in which its
    device was busy."""

    adds_per_s: deque[float] = field(default_factory=_series)
    reads_per_s: deque[float] = field(default_factory=_series)
    bytes_per_s: deque[float] = field(default_factory=_series)
    busy: deque[float] = field(default_factory=_series)


@dataclass(slots=True)
class History:
    """Trends over the last POINTS snapshots: adds and reads per second, their p99 latencies in microseconds, ledgers in
    limbo. ``busy``: the share of the last interval in which a disk's device was busy, ``disks``: all of the last
    snapshots; by uuid of the disk."""

    adds_per_s: deque[float] = field(default_factory=_series)
    reads_per_s: deque[float] = field(default_factory=_series)
    add_p99_us: deque[float] = field(default_factory=_series)
    read_p99_us: deque[float] = field(default_factory=_series)
    limbo: deque[float] = field(default_factory=_series)
    busy: dict[str, float] = field(default_factory=dict)
    disks: dict[str, DiskHistory] = field(default_factory=dict)
    _before: Snapshot | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Adds a newer snapshot; a restarted worker counts from zero. The trends go on where the clock was set back."""
        before = self._before
        if before is not None and snapshot.taken_ms <= before.taken_ms:
            self._before = snapshot
            return
        self._before = snapshot
        status = snapshot.status
        if status is None:
            self.busy = {}
            return
        self.add_p99_us.append(recent_p99_us(status, "add") or 0)
        self.read_p99_us.append(recent_p99_us(status, "read") or 0)
        self.limbo.append(status.limbo.ledgers)
        if before is None or before.status is None:
            return
        took_ms = snapshot.taken_ms - before.taken_ms
        earlier = {disk.disk: disk for disk in before.status.disks}
        self.busy = {
            disk.disk: share
            for disk in status.disks
            if (share := _busy(earlier.get(disk.disk), disk, took_ms)) is not None
        }
        self.disks = {disk.disk: self.disks.get(disk.disk, DiskHistory()) for disk in status.disks}
        for disk in status.disks:
            then = earlier[disk.disk].counts if disk.disk in earlier else disk.counts
            series, now = self.disks[disk.disk], disk.counts
            series.adds_per_s.append(_increase(then.adds, now.adds) * 1_000 / took_ms)
            series.reads_per_s.append(_increase(then.reads, now.reads) * 1_000 / took_ms)
            series.bytes_per_s.append(_increase(then.bytes, now.bytes) * 1_000 / took_ms)
            series.busy.append(self.busy.get(disk.disk, 0.0))
        shown = [self.disks[disk.disk] for disk in status.disks]
        self.adds_per_s.append(sum(each.adds_per_s[-1] for each in shown))
        self.reads_per_s.append(sum(each.reads_per_s[-1] for each in shown))


def _increase(then: int, now: int) -> int:
    """Of a counter; one that is smaller than before was started anew in between."""
    return now - then if now >= then else now


def _busy(before: DiskStatus | None, now: DiskStatus, took_ms: int) -> float | None:
    first = None if before is None or before.device is None else before.device.busy_ms
    last = None if now.device is None else now.device.busy_ms
    if first is None or last is None or last < first:
        return None
    return min(1.0, (last - first) / took_ms)
