"""The health of one disk: whether it takes writes, and the space of its file system.

The first write or sync that fails (DiskFailedError) ends all writing until the next start: what the kernel dropped
then can still be read, and is not on the device. The dirty marker says so to that start. DiskFullError ends nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from bkbox.errors import DiskError, DiskFailedError
from bkbox.storage.disk import dirty_marker
from bkbox.storage.files import Files, Space


class DiskHealth:
    """The health of a disk. ``with health:`` surrounds all writing: a DiskFailedError inside ends it for good.

    ``failed_reason``: why the disk takes no more writes; None while it does.
    """

    __slots__ = ("_disk", "_files", "failed_reason")

    def __init__(self, files: Files, disk: Path) -> None:
        self._files = files
        self._disk = disk
        self.failed_reason: str | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, DiskFailedError):
            self.failed_reason = str(error)
            with suppress(DiskError):  # the disk may not allow it; the caller has the error
                dirty_marker.record_failure(self._files, self._disk, self.failed_reason)

    def require_healthy(self) -> None:
        """DiskFailedError if writing has ended."""
        if self.failed_reason is not None:
            raise DiskFailedError(f"disk {self._disk} takes no writes: {self.failed_reason}")

    def space(self) -> Space:
        """Space on the disk's file system, bytes."""
        return self._files.space(self._disk)

    def require_writable(self, space: Space) -> None:
        """DiskFailedError if the file system was remounted read-only: data written before need not be on the device."""
        if space.read_only and self.failed_reason is None:
            with self:
                raise DiskFailedError(f"{self._disk}: the file system is mounted read-only")
