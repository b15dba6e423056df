"""Free memory filled with page cache, for measurements on virtual machines.

A host may take back memory that its guest does not use. The first touch of such a page costs some microseconds, more
than the add whose bytes go there, and while the host takes memory back the guest's processors stand still for
milliseconds: the measurement would be of the host. Of a machine that has read and written for a while nearly all memory
is page cache, which the kernel gives to whoever needs it, and which no host takes back.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

_READ_BYTES = 8 << 20
_STEP_BYTES = 256 << 20
_MEMINFO = Path("/proc/meminfo")


class PageCache(AbstractContextManager["PageCache"]):
    """Pages of a file of holes, which takes no room on the disk. It is in ``folder``, without a name, until the end."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - ended by __exit__
        self._size = _bytes_of("MemTotal") // _STEP_BYTES * _STEP_BYTES
        self._file.truncate(self._size)
        self._offset = 0

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fill(self) -> None:
        """Read until that takes no free memory any more, which takes seconds. The kernel drops pages in the order in
        which they were read, so it goes on where it ended. Raises OSError."""
        buffer = bytearray(_READ_BYTES)
        for _ in range(0, self._size, _STEP_BYTES):
            free = _bytes_of("MemFree")
            for _ in range(0, _STEP_BYTES, _READ_BYTES):
                os.preadv(self._file.fileno(), [buffer], self._offset)
                self._offset = (self._offset + _READ_BYTES) % self._size
            if free - _bytes_of("MemFree") < _STEP_BYTES // 4:
                break


def _bytes_of(name: str) -> int:
    """A figure of /proc/meminfo, which has KiB."""
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise OSError(f"{_MEMINFO} has no {name}")
