"""The only access to the file system.

Rules:

- Storage code opens, writes, renames and syncs through a ``Files`` object and nothing else, so that a test can lose
  what was not synced, tear a write, fill the disk or fail a sync. LevelDB has its own access (index.py).
- Errors are typed and name the path: no space (ENOSPC, EDQUOT) is DiskFullError, any other failure of something that
  changes the disk is DiskFailedError, a failed read is DiskError.
- Bytes are durable after ``fdatasync`` of their file, names after ``fsync_dir`` of their directory, and nothing is
  before. A failed sync says nothing about what is durable. It must not be retried: the kernel may have dropped the
  dirty pages, and reports the error once.
- Files are created 0600, directories 0700: entries are other people's data.
- A symbolic link is not opened: data goes where its path says, or nowhere.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from bkbox.errors import DiskError, DiskFailedError, DiskFullError

_sync_file_range = ctypes.CDLL(None).sync_file_range  # releases the interpreter lock
_sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_SYNC_FILE_RANGE_WRITE = 2
_syncfs = ctypes.CDLL(None, use_errno=True).syncfs

_FREE_BYTES = 2 << 20
"""Bytes that are freed in one piece."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class Space(NamedTuple):
    """Space on a file system, bytes: ``free`` for an unprivileged process, ``total``; and whether it is
    mounted read-only.
    """

    free: int
    total: int
    read_only: bool = False


class AppendFile(Protocol):
    """A file open for appending at its end. The end is where the file ended when it was opened, later where the last
    append or truncate left it.
    """

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of data at the end. After an error any prefix of it may be there."""

    def fill(self, offset: int, data: bytes) -> None:
        """Write all of data from ``offset`` on, which lies at the end or beyond. The end does not move: the next append
        overwrites this data. After an error any prefix of it may be there.
        """

    def seek(self, end: int) -> None:
        """Set the end, at or before the file's end: the next append overwrites what lies beyond."""

    def size(self) -> int:
        """Bytes in the file, including what was filled beyond its end."""

    def truncate(self, size: int) -> None:
        """Cut the file to its first ``size`` bytes, and set its end there."""

    def fdatasync(self) -> None:
        """Make the bytes and the size durable."""

    def writeback(self, offset: int, length: int) -> Callable[[], None]:
        """A call, for any thread, that starts the write-back of these bytes to the disk. Advice: it never fails, and
        makes nothing durable.
        """

    def close(self) -> None: ...


class ReadFile(Protocol):
    """A file open for reading at any offset."""

    def pread(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer only if the file ends."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``offset`` on. Returns the number of bytes, fewer only where the file ends."""

    def read_cached(self, offset: int, buffer: memoryview) -> int:
        """As read_into, but only as far as no wait for the disk is needed."""

    def want(self, offset: int, length: int) -> None:
        """Start reading these bytes into memory, without waiting. Advice: it never fails."""

    def release(self, offset: int, length: int) -> None:
        """Let the system drop these bytes from memory; those not yet written to the disk stay. Length 0: to the end."""

    def size(self) -> int: ...

    def close(self) -> None: ...


class Files(Protocol):
    """The file system operations that storage needs; see the rules above."""

    def open_append(self, path: Path) -> AppendFile:
        """Open for appending, creating the file if there is none."""

    def open_read(self, path: Path) -> ReadFile: ...

    def read_bytes(self, path: Path) -> bytes | None:
        """The whole file, None if there is none."""

    def exists(self, path: Path) -> bool: ...

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; DiskError if there is no such directory."""

    def mkdir(self, path: Path) -> None:
        """Create a directory and its missing parents; an existing one is no error."""

    def rename(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def detach(self, path: Path) -> Callable[[], None]:
        """Remove the name of a file, and return the call that frees its blocks, in pieces; for any thread, once the
        removal is durable. A file system that frees a large file in one piece lets the syncs of all others wait.
        """

    def rmdir(self, path: Path) -> None: ...

    def fsync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""

    def space(self, path: Path) -> Space: ...

    def sync_file_system(self, path: Path) -> None:
        """Make everything durable on the file system that ``path`` is on. DiskFailedError if that fails, and also if an
        earlier write, by any process, did not reach the device and the error was not reported yet.
        """


def write_atomic(files: Files, path: Path, data: bytes) -> None:
    """Replace a small file durably: after a crash at any point it holds the old bytes or the new ones."""
    temporary = path.with_name(path.name + ".new")
    file = files.open_append(temporary)
    try:
        file.truncate(0)  # a crash may have left one behind
        file.append(data)
        file.fdatasync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.fsync_dir(path.parent)


def unlink_durably(files: Files, path: Path) -> None:
    """Remove a file, if it exists, durably."""
    if files.exists(path):
        files.unlink(path)
    files.fsync_dir(path.parent)


def remove_flat_dir(files: Files, path: Path) -> None:
    """Remove a directory that holds only files, if it exists."""
    if files.exists(path):
        for name in files.listdir(path):
            files.unlink(path / name)
        files.rmdir(path)


@contextmanager
def _changing(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _failure(action, path, error) from error


def _failure(action: str, path: Path, error: OSError) -> DiskError:
    text = f"{action} {path}: {error.strerror}"
    return DiskFullError(text) if error.errno in _NO_ROOM else DiskFailedError(text)


@contextmanager
def _reading(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(f"{action} {path}: {error.strerror}") from error


def _open_itself(path: str, flags: int) -> int:
    return os.open(path, flags | _FLAGS)


class _RealAppendFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        with _changing("open", path):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o600)
            self._end = os.fstat(self._fd).st_size

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._write(self._end, data)
        self._end += len(data)

    def fill(self, offset: int, data: bytes) -> None:
        self._write(offset, data)

    def seek(self, end: int) -> None:
        self._end = end

    def _write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        try:
            written = os.pwrite(self._fd, data, offset)
            while written < len(data):  # a short write: the error comes with the next one
                written += os.pwrite(self._fd, memoryview(data)[written:], offset + written)
        except OSError as error:
            raise _failure("write to", self._path, error) from error

    def size(self) -> int:
        with _reading("size of", self._path):
            return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with _changing("truncate", self._path):
            os.ftruncate(self._fd, size)
            self._end = size

    def fdatasync(self) -> None:
        with _changing("sync", self._path):
            os.fdatasync(self._fd)

    def writeback(self, offset: int, length: int) -> Callable[[], None]:
        try:
            fd = os.dup(self._fd)  # the file may be closed before the call
        except OSError:  # no descriptor is left
            return lambda: None

        def begin() -> None:
            _sync_file_range(fd, offset, length, _SYNC_FILE_RANGE_WRITE)
            os.close(fd)

        return begin

    def close(self) -> None:
        with _changing("close", self._path):
            os.close(self._fd)


class _RealReadFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        with _reading("open", path):
            self._fd = os.open(path, os.O_RDONLY | _FLAGS)

    def pread(self, offset: int, length: int) -> bytes:
        with _reading("read", self._path):
            data = os.pread(self._fd, length, offset)
            while len(data) < length:
                more = os.pread(self._fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data

    def read_into(self, offset: int, buffer: memoryview) -> int:
        filled = 0
        try:
            while filled < len(buffer):
                more = os.preadv(self._fd, (buffer[filled:],), offset + filled)
                if not more:
                    break
                filled += more
        except OSError as error:
            raise DiskError(f"read {self._path}: {error.strerror}") from error
        return filled

    def read_cached(self, offset: int, buffer: memoryview) -> int:
        try:
            return os.preadv(self._fd, (buffer,), offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a file system that cannot tell
                return self.read_into(offset, buffer)
            raise DiskError(f"read {self._path}: {error.strerror}") from error

    def want(self, offset: int, length: int) -> None:
        self._advise(offset, length, os.POSIX_FADV_WILLNEED)

    def release(self, offset: int, length: int) -> None:
        self._advise(offset, length, os.POSIX_FADV_DONTNEED)

    def _advise(self, offset: int, length: int, advice: int) -> None:
        with suppress(OSError):
            os.posix_fadvise(self._fd, offset, length, advice)

    def size(self) -> int:
        with _reading("size of", self._path):
            return os.fstat(self._fd).st_size

    def close(self) -> None:
        with _reading("close", self._path):
            os.close(self._fd)


def _free(path: Path, fd: int) -> None:
    """Free the blocks of a file that has no name any more, and close it. One that has another name keeps them."""
    with _changing("free", path):
        try:
            found = os.fstat(fd)
            if not found.st_nlink:
                for size in range(found.st_size - _FREE_BYTES, 0, -_FREE_BYTES):
                    os.ftruncate(fd, size)
                os.ftruncate(fd, 0)
        finally:
            os.close(fd)


class RealFiles:
    """``Files`` over the operating system."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def hold(self, path: Path, fd: int) -> None:
        """Sync the file system of ``path`` by this descriptor of a file on it: the kernel reports an error to each
        descriptor that was open before the first report, and to no other.
        """
        self._held[path] = fd

    def open_append(self, path: Path) -> AppendFile:
        return _RealAppendFile(path)

    def open_read(self, path: Path) -> ReadFile:
        return _RealReadFile(path)

    def read_bytes(self, path: Path) -> bytes | None:
        with (
            _reading("read", path),
            suppress(FileNotFoundError),
            open(path, "rb", opener=_open_itself) as file,
        ):
            return file.read()
        return None

    def exists(self, path: Path) -> bool:
        with _reading("look for", path), suppress(FileNotFoundError, NotADirectoryError):
            os.stat(path)
            return True
        return False

    def listdir(self, path: Path) -> list[str]:
        with _reading("list", path):
            return sorted(os.listdir(path))

    def mkdir(self, path: Path) -> None:
        with _changing("create directory", path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        with _changing("rename", source):
            os.rename(source, target)

    def unlink(self, path: Path) -> None:
        with _changing("remove", path):
            os.unlink(path)

    def detach(self, path: Path) -> Callable[[], None]:
        with _changing("remove", path):
            fd = os.open(path, os.O_WRONLY | _FLAGS)
        try:
            self.unlink(path)
        except DiskError:
            os.close(fd)
            raise
        return partial(_free, path, fd)

    def rmdir(self, path: Path) -> None:
        with _changing("remove directory", path):
            os.rmdir(path)

    def fsync_dir(self, path: Path) -> None:
        with _changing("sync directory", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def space(self, path: Path) -> Space:
        with _reading("room on", path):
            found = os.statvfs(path)
            read_only = bool(found.f_flag & os.ST_RDONLY)
            total = found.f_blocks * found.f_frsize
            return Space(found.f_bavail * found.f_frsize, total, read_only)

    def sync_file_system(self, path: Path) -> None:
        # The descriptor is opened first: it then gets write-back errors that were not reported yet.
        with _changing("sync the file system of", path):
            held = self._held.get(path)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if held is None else held
            try:
                if _syncfs(fd):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                if held is None:
                    os.close(fd)
