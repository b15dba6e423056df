"""Measures the time until a write is synced."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_FILE_BYTES_MAX = 64 << 20

WritePattern = Literal["append", "overwrite"]
"""``append`` gives the file new blocks; ``overwrite`` writes into a part that was filled before, as a log does that is
filled ahead."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Syncs that took at least half of ``below_us`` and less than that."""

    below_us: int
    count: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies, in microseconds, of writes of ``size`` bytes, each with an fdatasync; the histogram by powers of 2."""

    way: WritePattern
    size: int
    count: int
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int
    buckets: tuple[Bucket, ...]


def measure(
    folder: Path, way: WritePattern, size: int, seconds: float, clock_ns: Callable[[], int]
) -> Latency:
    """One write and sync after the other for so long, at least one. The file is removed. OSError."""
    path = folder / f"{way}-{size}"
    durations_ns: list[int] = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if way == "overwrite":
            _fill(fd)
        _write_and_sync(fd, way, os.urandom(size), seconds, clock_ns, durations_ns)
    finally:
        os.close(fd)
        path.unlink()
    return summary(way, size, durations_ns)


def _fill(fd: int) -> None:
    piece = os.urandom(1 << 20)
    for start in range(0, _FILE_BYTES_MAX, len(piece)):
        os.pwrite(fd, piece, start)
    os.fsync(fd)


def _write_and_sync(
    fd: int,
    way: WritePattern,
    data: bytes,
    seconds: float,
    clock_ns: Callable[[], int],
    durations_ns: list[int],
) -> None:
    end = clock_ns() + int(seconds * 1e9)
    offset = 0
    while not durations_ns or clock_ns() < end:
        if offset + len(data) > _FILE_BYTES_MAX:
            offset = 0
            if way == "append":  # what is written over is no append: begin anew
                os.ftruncate(fd, 0)
        began = clock_ns()
        os.pwrite(fd, data, offset)
        os.fdatasync(fd)
        durations_ns.append(clock_ns() - began)
        offset += len(data)


def summary(way: WritePattern, size: int, durations_ns: Sequence[int]) -> Latency:
    """Percentiles and histogram of these times, of which there is at least one."""
    ordered = sorted(ns // 1000 for ns in durations_ns)

    def at(share: float) -> int:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    counts: dict[int, int] = {}
    for us in ordered:
        below = 1 << us.bit_length()
        counts[below] = counts.get(below, 0) + 1
    return Latency(
        way=way,
        size=size,
        count=len(ordered),
        p50_us=at(0.5),
        p99_us=at(0.99),
        p999_us=at(0.999),
        max_us=ordered[-1],
        buckets=tuple(Bucket(below, counts[below]) for below in sorted(counts)),
    )
