"""Estimates the time that the replays of a start still take, from outside the workers.

A worker that replays its log answers nothing until it is done. The bytes to read are known from its checkpoint and the
sizes of the segments, the bytes read from the kernel's count. Both are accurate to some MiB, which is enough for an
estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bkbox.errors import BkboxError
from bkbox.storage.disk.checkpoint import read_checkpoint
from bkbox.storage.files import Files
from bkbox.storage.log.segment import ENTRY_LOG_DIR, parse_segment_file_name

_KNOWN_AFTER_S = 2.0
"""Seconds before a rate is meaningful."""


@dataclass(slots=True)
class _Replay:
    """One worker: the bytes that it has to read, and its count of bytes read at the first poll."""

    expected: int
    began_s: float
    read_before: int


class Replays:
    """The estimate; ``now_s``: a monotonic clock."""

    def __init__(self, files: Files, now_s: Callable[[], float]) -> None:
        self._files = files
        self._now_s = now_s
        self._seen: dict[int, _Replay] = {}

    def eta_s(self, replaying: Iterable[tuple[Path, int]]) -> float | None:
        """Seconds until the last of these disks is done, each given with its worker's pid; None: not known yet."""
        return max((self._one(disk, pid) or 0.0 for disk, pid in replaying), default=0.0) or None

    def _one(self, disk: Path, pid: int) -> float | None:
        read, now = bytes_read(pid), self._now_s()
        if pid not in self._seen:
            self._seen[pid] = _Replay(bytes_to_replay(self._files, disk), now, read)
        seen = self._seen[pid]
        took_s, done = now - seen.began_s, read - seen.read_before
        if took_s < _KNOWN_AFTER_S or done <= 0:
            return None
        return max(0, seen.expected - done) * took_s / done


def bytes_to_replay(files: Files, disk: Path) -> int:
    """Bytes in the entry log after the checkpoint; 0 if not known."""
    try:
        checkpoint = read_checkpoint(files, disk)
        sizes = {
            number: path.stat().st_size
            for path in (disk / ENTRY_LOG_DIR).iterdir()
            if (number := parse_segment_file_name(path.name)) is not None
        }
    except (BkboxError, OSError):
        return 0
    if checkpoint is None:
        return sum(sizes.values())
    after = sum(size for number, size in sizes.items() if number >= checkpoint.segment)
    return max(0, after - checkpoint.offset)


def bytes_read(pid: int) -> int:
    """Bytes that the process has read from files, page cache included; 0 if not known."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), 0)
