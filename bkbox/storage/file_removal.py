"""The removal of files that nothing needs any more.

A file system takes tens of milliseconds to free the blocks of a large file, so they are freed in pieces, by a thread
other than the disk's.

Whoever gives a file up has recorded durably that it is not needed. So a removal may fail, or end halfway: a later one,
or the next start, removes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bkbox.base.values import struct
from bkbox.errors import DiskError
from bkbox.storage.files import Files


@struct
class FileRemoval:
    """Files to remove; ``run`` may be called on any thread, once."""

    _files: Files
    paths: list[Path]
    error: DiskError | None = None

    def run(self) -> None:
        """Remove the files, durably; ``UnneededFiles.end`` raises a failure."""
        try:
            while self.paths:
                path = self.paths[0]
                free = self._files.detach(path)
                self.paths.pop(0)
                self._files.fsync_dir(path.parent)
                free()
        except DiskError as error:
            self.error = error


class UnneededFiles:
    """The files of a disk that wait for their removal."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._paths: list[Path] = []
        self._is_due = False

    def add(self, paths: Iterable[Path]) -> None:
        """Give files up. The reason is durable, and nothing opens them any more."""
        self._paths += paths
        self._is_due = bool(self._paths)

    def begin(self) -> FileRemoval | None:
        """The removal of all of them; ``run`` it, then ``end`` it. None if there is nothing to do."""
        if not self._is_due:
            return None
        removal = FileRemoval(self._files, self._paths)
        self._paths, self._is_due = [], False
        return removal

    def end(self, removal: FileRemoval) -> None:
        """End a removal that has run. What it did not remove is tried again together with the next file.
        DiskFullError, DiskFailedError.
        """
        self._paths = removal.paths + self._paths
        if removal.error is not None:
            raise removal.error
