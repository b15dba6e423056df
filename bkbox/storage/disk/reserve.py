"""``<disk>/RESERVE``: space that is kept back, so that space can still be reclaimed on a completely full disk.

Nothing is ever read from it. It is allocated a piece at a time, while there is space. A start on a full disk and a
checkpoint without space use a part of it: others may write to the same disk and take what was freed, and then the next
start, the next checkpoint and the compaction that ends the shortage need some, too. A collection or a compaction
without space uses all of it, at once.
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

_PART_BYTES_MIN = 64 << 10


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
        return self._free(self.bytes)

    def spend_part(self) -> bool:
        """Free a quarter of its full size, or what is left of it; False if there is none. DiskError."""
        return self._free(min(self.bytes, max(self.bytes_max // 4, _PART_BYTES_MIN)))

    def _free(self, spent: int) -> bool:
        if spent:
            _shorten(self._files, self._path, self.bytes - spent)
            self.bytes -= spent
        return spent > 0


def free_reserve_if_full(files: Files, disk: Path) -> None:
    """Before a start writes anything: free some of the reserve if there is hardly any space. DiskError."""
    path = disk / RESERVE_NAME
    if not files.exists(path) or files.space(disk).free >= START_BYTES:
        return
    size = _size_of(files, path)
    spent = min(START_BYTES, size // 4)
    _shorten(files, path, size - spent if spent >= _PART_BYTES_MIN else 0)


def _shorten(files: Files, path: Path, size: int) -> None:
    if size == 0:
        unlink_durably(files, path)
        return
    file = files.open_append(path)
    try:
        file.truncate(size)
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
