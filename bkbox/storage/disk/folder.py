"""The folder of a disk, and the check that its path still leads to it.

A file system can be unmounted under processes that have files open on it (``umount -l``). Its path then leads to a
folder of the surrounding file system, with that one's free space, and files created there are not on the disk. So a
folder is identified by its device and inode numbers. They are not reused while anything on it is open: the lock of a
disk is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bkbox.errors import DiskError, DiskFailedError
from bkbox.storage.files import AppendFile, RealFiles, Space


class Folder(NamedTuple):
    """The identity of a folder; ``device`` is the file system that it is on."""

    path: Path
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Folder:
        """The folder that a path leads to now. DiskError."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise DiskError(f"look at {path}: {error.strerror}") from error
        return cls(path, found.st_dev, found.st_ino)

    def check(self) -> None:
        """DiskFailedError if the path leads to another folder now, or to none; DiskError if that cannot be
        determined."""
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._gone("it is not there any more") from None
        except OSError as error:
            raise DiskError(f"look at {self.path}: {error.strerror}") from error
        self._compare(found)

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Another path of the folder, which leads to it whatever is mounted meanwhile. Raises as ``check``."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise self._gone("it is not there any more") from None
        except OSError as error:
            raise DiskError(f"open {self.path}: {error.strerror}") from error
        try:
            self._compare(os.fstat(fd))
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    def _compare(self, found: os.stat_result) -> None:
        if found.st_dev != self.device:
            devices = (
                f"it was on device {_device(self.device)} and is on {_device(found.st_dev)} now"
            )
            raise self._gone(f"its file system was unmounted, or another one mounted ({devices})")
        if found.st_ino != self.inode:
            raise self._gone("another folder has taken its place")

    def _gone(self, why: str) -> DiskFailedError:
        return DiskFailedError(
            f"{self.path} is not the folder of the disk any more: {why}. Mount the disk there again, and it is taken "
            "back by itself"
        )


class GuardedFiles(RealFiles):
    """``Files`` that change nothing in a guarded folder once its path leads to another one: DiskFailedError."""

    def __init__(self) -> None:
        super().__init__()
        self._folders: dict[Path, Folder] = {}

    def guard(self, path: Path) -> Folder:
        """Guard the folder that the path leads to now. DiskError."""
        folder = self._folders[path] = Folder.of(path)
        return folder

    def require(self, path: Path) -> None:
        """Raises as ``Folder.check`` if the path is, or lies in, a guarded folder."""
        for folder in self._folders.values():
            if path.is_relative_to(folder.path):
                folder.check()

    def open_append(self, path: Path) -> AppendFile:
        self.require(path)
        return super().open_append(path)

    def mkdir(self, path: Path) -> None:
        self.require(path)
        super().mkdir(path)

    def rename(self, source: Path, target: Path) -> None:
        self.require(target)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self.require(path)
        super().unlink(path)

    def detach(self, path: Path) -> Callable[[], None]:
        self.require(path)
        return super().detach(path)

    def rmdir(self, path: Path) -> None:
        self.require(path)
        super().rmdir(path)

    def fsync_dir(self, path: Path) -> None:
        self.require(path)
        super().fsync_dir(path)

    def space(self, path: Path) -> Space:
        self.require(path)
        return super().space(path)


def _device(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"
