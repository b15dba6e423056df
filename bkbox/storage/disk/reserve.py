"""``<disk>/RESERVE``: space that is kept back, so that space can still be reclaimed on a completely full disk.

Nothing is ever read from it. It is allocated a piece at a time, while there is space. A start on a full disk uses a
part of it, so that the next start has some, too; a checkpoint, a collection or a compaction without space uses all of
it, at once.
"""

from __future__ import annotations

from pathlib import Path

from bkbox.storage.files import Files, unlink_durably

RESERVE_NAME = "RESERVE"

_PIECE_BYTES = 1 << 20

START_BYTES = 8 << 20
"""A start with less free space uses at most this much of the reserve, and at most a quarter: the rest is for the next
starts.
"""

_START_BYTES_MIN = 64 << 10


class Reserve:
    """The reserve of one disk. ``bytes_max``: its full size."""

    def __init__(self, files: Files, disk: Path, bytes_max: int) -> None:
        """Raises DiskError."""
        self._files = files
        self._path = disk / RESERVE_NAME
        self.bytes_max = bytes_max
        self.bytes = _size_of(files, self._path)

    @property
    def is_whole(self) -> bool:
        return self.bytes >= self.bytes_max

    def grow(self, free: int) -> None:
        """Allocate one more piece, if as much as the whole reserve stays free beside it. DiskError."""
        piece = min(_PIECE_BYTES, self.bytes_max - self.bytes)
        if piece <= 0 or free < self.bytes_max + piece:
            return
        file = self._files.open_append(self._path)
        try:
            file.append(bytes(piece))
        finally:
            file.close()
        self.bytes += piece

    def spend(self) -> bool:
        """Free the reserve; False if there is none. DiskError."""
        spent = self.bytes > 0
        if spent:
            unlink_durably(self._files, self._path)
            self.bytes = 0
        return spent


def free_reserve_if_full(files: Files, disk: Path) -> None:
    """Before a start writes anything: free some of the reserve if there is hardly any space. DiskError."""
    path = disk / RESERVE_NAME
    if not files.exists(path) or files.space(disk).free >= START_BYTES:
        return
    size = _size_of(files, path)
    spent = min(START_BYTES, size // 4)
    if spent < _START_BYTES_MIN:
        unlink_durably(files, path)
        return
    file = files.open_append(path)
    try:
        file.truncate(size - spent)
        file.fdatasync()
    finally:
        file.close()


def _size_of(files: Files, path: Path) -> int:
    if not files.exists(path):
        return 0
    file = files.open_read(path)
    try:
        return file.size()
    finally:
        file.close()
