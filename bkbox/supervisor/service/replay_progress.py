"""How long the replays of a start will still take, judged from outside.

A worker that replays its log answers nothing until it is done. How much it has to read is known from its checkpoint and
the sizes of the segments, how much it has read from the kernel's count. Both are good to some MiB, which is
enough for whoever waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bkbox.errors import BkboxError
from bkbox.storage.disk.checkpoint import read_checkpoint
from bkbox.storage.entries.entry_log import ENTRY_LOG_DIR
from bkbox.storage.files import Files
from bkbox.storage.log.segment import parse_segment_file_name

_KNOWN_AFTER_S = 2.0
"""Before that a rate means nothing."""


@dataclass(slots=True)
class _Replay:
    """One worker: bytes that it has to read, and what it had read of anything when it was first looked at."""

    expected: int
    began_s: float
    read_before: int


class Replays:
    """The estimate; ``now_s``: seconds that only go on."""

    def __init__(self, files: Files, now_s: Callable[[], float]) -> None:
        self._files = files
        self._now_s = now_s
        self._seen: dict[int, _Replay] = {}

    def eta_s(self, replaying: Iterable[tuple[Path, int]]) -> float | None:
        """Seconds until the last of these disks is done, each with its worker's pid; None: not known yet."""
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
    """What lies in the entry log after the checkpoint; 0 where that cannot be told."""
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
    """What the process has read from files, from memory of the system or not; 0 where that cannot be told."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), 0)
