"""Loop devices, by the kernel's interface (linux/loop.h).

A device is made with AUTOCLEAR: it is gone as soon as neither a descriptor nor a mount holds it, so
none is left behind by a test process that is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

CONTROL = Path("/dev/loop-control")
_CONFIGURE, _GET_FREE = 0x4C0A, 0x4C82
_AUTOCLEAR, _DIRECT_IO = 4, 16
_FLAGS_AT = 8 + 52
"""In struct loop_config: descriptor and block size, then struct loop_info64 with lo_flags."""
_CONFIG_BYTES = 8 + 232 + 64


class Loop:
    """A loop device over a file, with direct I/O: it keeps nothing back, and hands on flushes."""

    def __init__(self, file: Path) -> None:
        backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.path, self._fd = _configured(backing)
        finally:
            os.close(backing)

    def detach(self) -> None:
        """Let go of the device; it is gone as soon as no mount uses it."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    @property
    def attached(self) -> bool:
        return (Path("/sys/block") / self.path.name / "loop").exists()


def free_number() -> int:
    """The number of a loop device that is free now. Raises OSError."""
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _GET_FREE)
    finally:
        os.close(control)


def _configured(backing: int) -> tuple[Path, int]:
    config = bytearray(_CONFIG_BYTES)
    struct.pack_into("=II", config, 0, backing, 512)
    struct.pack_into("=I", config, _FLAGS_AT, _AUTOCLEAR | _DIRECT_IO)
    while True:
        path = Path(f"/dev/loop{free_number()}")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _CONFIGURE, bytes(config))
        except OSError as error:
            os.close(fd)
            if error.errno != errno.EBUSY:  # another process was faster
                raise
        else:
            return path, fd
