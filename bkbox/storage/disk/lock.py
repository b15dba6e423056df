"""One bookie at a time on a disk: ``<disk>/LOCK``, a flock that holds the pid of its owner.

The lock belongs to the open file, not to the process: a child that inherits ``fileno`` holds it as well, so a disk is
not free before the last process that can write to it is gone. LevelDB's own LOCK is not enough: it is a POSIX record
lock, which vanishes as soon as its owner closes any descriptor of that file.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from bkbox.errors import BookieRunningError, DiskError

LOCK_NAME = "LOCK"


class DiskLock:
    """An exclusive lock on a disk, held from construction to ``release`` (or the end of all its holders)."""

    def __init__(self, disk: Path) -> None:
        """Raises BookieRunningError naming disk and pid if another process holds it, DiskError if
        it cannot be tried.
        """
        self._path = disk / LOCK_NAME
        try:
            self._fd = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise DiskError(f"open {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._note_owner()
        except BlockingIOError:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise BookieRunningError(
                f"disk {disk} is in use by the process with pid {owner}: stop that bookie first"
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise DiskError(f"lock {self._path}: {error.strerror}") from error

    def _note_owner(self) -> None:
        """Write the pid, for operators; over the allocated blocks, as the disk may be full."""
        note = b"%d\n" % os.getpid()
        with suppress(OSError):
            os.ftruncate(self._fd, os.pwrite(self._fd, note, 0))

    def fileno(self) -> int:
        """For a child to inherit (pass_fds); -1 once released."""
        return self._fd

    def release(self) -> None:
        """Release this process's lock; holders that inherited it keep theirs."""
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
