"""``Files`` in memory, for targets that want a whole disk for every input. Nothing is ever lost: what loses is
tests/harness/faultyfiles.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bkbox.errors import DiskError
from bkbox.storage.files import AppendFile, ReadFile, Space


class _File:
    """Open for reading and appending at once; its bytes are those of the name, whoever opened it."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._end = len(data)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._data[self._end : self._end + len(data)] = data
        self._end += len(data)

    def seek(self, end: int) -> None:
        self._end = end

    def fill(self, offset: int, data: bytes) -> None:
        assert offset <= len(self._data)
        self._data[offset : offset + len(data)] = data

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        del self._data[size:]
        self._data.extend(bytes(size - len(self._data)))
        self._end = size

    def fdatasync(self) -> None:
        return

    def writeback(self, offset: int, length: int) -> Callable[[], None]:
        return lambda: None

    def pread(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self._data[offset : offset + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def read_cached(self, offset: int, buffer: memoryview) -> int:
        return self.read_into(offset, buffer)

    def want(self, offset: int, length: int) -> None:
        return

    def release(self, offset: int, length: int) -> None:
        return

    def close(self) -> None:
        return


class MemoryFiles:
    """``files``: the bytes of each file by its path."""

    def __init__(self, files: dict[Path, bytearray] | None = None) -> None:
        self.files = {} if files is None else files

    def open_append(self, path: Path) -> AppendFile:
        return _File(self.files.setdefault(path, bytearray()))

    def open_read(self, path: Path) -> ReadFile:
        if path not in self.files:
            raise DiskError(f"open {path}: there is no such file")
        return _File(self.files[path])

    def read_bytes(self, path: Path) -> bytes | None:
        data = self.files.get(path)
        return None if data is None else bytes(data)

    def exists(self, path: Path) -> bool:
        return path in self.files or any(path in each.parents for each in self.files)

    def listdir(self, path: Path) -> list[str]:
        return sorted(each.name for each in self.files if each.parent == path)

    def mkdir(self, path: Path) -> None:
        return

    def rename(self, source: Path, target: Path) -> None:
        self.files[target] = self.files.pop(source)

    def unlink(self, path: Path) -> None:
        del self.files[path]

    def detach(self, path: Path) -> Callable[[], None]:
        self.unlink(path)
        return lambda: None

    def rmdir(self, path: Path) -> None:
        return

    def fsync_dir(self, path: Path) -> None:
        return

    def sync_file_system(self, path: Path) -> None:
        return

    def space(self, path: Path) -> Space:
        return Space(1 << 40, 1 << 41)
