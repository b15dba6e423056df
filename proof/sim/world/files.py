"""A file system in memory that fails as real ones may: the ``Files`` of a simulated process.

Faults belong to a disk (disk.py), which is all below one folder: the next n syncs or appends fail, reads fail, space is
limited, bits are flipped. A process dies in the middle of its n-th change with ``Process.die`` (``crash_at``), a host
in the middle of the n-th change that any of its processes makes (``FaultTrigger``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bkbox.errors import DiskError, DiskFailedError, DiskFullError
from bkbox.storage.files import AppendFile, ReadFile, Space
from proof.sim.world.disk import SECTOR_BYTES, Disk, File
from proof.sim.world.loop import Crash, Process

TOTAL_BYTES = 1 << 40
KILLED_IN_WRITE = "it was killed in the middle of a write"


_NOTHING: Mapping[str, File] = {}


def split(path: Path) -> tuple[str, str]:
    """Folder and name, as strings; called for every operation."""
    folder, _, name = str(path).rpartition("/")
    return folder, name


class FaultTrigger:
    """A fault of a host in the middle of the n-th change of its files from now, by any process.

    ``strike``: kills all its processes, or returns that it does not.
    """

    __slots__ = ("changes", "strike")

    def __init__(self) -> None:
        self.changes = 0
        self.strike: Callable[[], bool] = bool

    def lay(self, changes: int, strike: Callable[[], bool]) -> None:
        self.changes = changes
        self.strike = strike


class SimFiles:
    """``Files`` of one process on some disks. ``crash_at``: dies in the middle of the n-th change from now."""

    def __init__(
        self,
        disks: list[Disk],
        process: Process,
        rng: random.Random,
        ambush: FaultTrigger | None = None,
    ) -> None:
        self._disks = disks
        self._process = process
        self._rng = rng
        self._ambush = FaultTrigger() if ambush is None else ambush
        self._crash_in = 0
        self._where: dict[str, Disk] = {}

    def crash_at(self, change: int) -> None:
        self._crash_in = change

    @property
    def now(self) -> float:
        return self._process.scheduler.now

    @property
    def will_crash(self) -> bool:
        """True if a crash at a later change is pending."""
        return self._crash_in > 0

    def disk_of(self, folder: str) -> Disk:
        found = self._where.get(folder)
        if found is None:
            for disk in self._disks:
                root = str(disk.root)
                if folder == root or folder.startswith(root + "/"):
                    found = self._where[folder] = disk
                    break
            else:
                raise DiskError(f"{folder} is on no disk")
        if not found.mounted:
            raise DiskFailedError(f"{folder}: the disk is gone")
        return found

    @contextmanager
    def reads_succeed(self) -> Iterator[None]:
        """For inspections by the simulator: reads do not fail by themselves."""
        before = [disk.fail_reads for disk in self._disks]
        for disk in self._disks:
            disk.fail_reads = 0
        try:
            yield
        finally:
            for disk, fail_reads in zip(self._disks, before, strict=True):
                disk.fail_reads = fail_reads

    def change(self, part: Callable[[float], None] | None = None) -> None:
        """Called before each change; ``part``: makes a part of it, as a process that is killed does."""
        if self._process.dead:
            raise Crash
        if self._crash_in:
            self._crash_in -= 1
            if not self._crash_in:
                if part is not None:
                    part(self._rng.random())
                self._process.die(KILLED_IN_WRITE)
                raise Crash
        ambush = self._ambush
        if ambush.changes:
            ambush.changes -= 1
            if not ambush.changes:
                if part is not None:
                    part(self._rng.random())
                if ambush.strike():
                    raise Crash

    def _file(self, path: Path) -> File | None:
        parent, name = split(path)
        return self.disk_of(parent).names.get(parent, _NOTHING).get(name)

    def open_append(self, path: Path) -> AppendFile:
        parent, name = split(path)
        disk = self.disk_of(parent)
        folder = disk.names.get(parent)
        if folder is None:
            raise DiskFailedError(f"open {path}: no such folder")
        file = folder.get(name)
        if file is None:
            self.change()
            file = folder[name] = File()
        return _Appended(self, disk, file, path)

    def open_read(self, path: Path) -> ReadFile:
        file = self._file(path)
        if file is None:
            raise DiskError(f"open {path}: no such file")
        return _Read(self, self.disk_of(split(path)[0]), file, path)

    def read_bytes(self, path: Path) -> bytes | None:
        parent, name = split(path)
        disk = self.disk_of(parent)
        if disk.read_fails():
            raise DiskError(f"read {path}: an error of the disk")
        file = disk.names.get(parent, _NOTHING).get(name)
        return None if file is None else bytes(file.data)

    def exists(self, path: Path) -> bool:
        text = str(path)
        if text in self.disk_of(text).folders:
            return True
        return self._file(path) is not None

    def listdir(self, path: Path) -> list[str]:
        text = str(path)
        disk = self.disk_of(text)
        if text not in disk.folders:
            raise DiskError(f"list {path}: no such folder")
        below = [
            folder[len(text) + 1 :]
            for folder in disk.folders
            if folder.startswith(text + "/") and "/" not in folder[len(text) + 1 :]
        ]
        return sorted([*disk.names[text], *below])

    def mkdir(self, path: Path) -> None:
        text = str(path)
        disk = self.disk_of(text)
        if text not in disk.folders:
            self.change()
            for folder in (path, *path.parents):
                name = str(folder)
                if len(name) < len(str(disk.root)):
                    break
                disk.folders.add(name)
                disk.names.setdefault(name, {})

    def rename(self, source: Path, target: Path) -> None:
        self.change()
        parent, name = split(source)
        disk = self.disk_of(parent)
        file = disk.names[parent].pop(name, None)
        if file is None:
            raise DiskFailedError(f"rename {source}: no such file")
        parent, name = split(target)
        disk.names[parent][name] = file

    def unlink(self, path: Path) -> None:
        self.change()
        parent, name = split(path)
        if self.disk_of(parent).names.get(parent, {}).pop(name, None) is None:
            raise DiskFailedError(f"remove {path}: no such file")

    def detach(self, path: Path) -> Callable[[], None]:
        self.unlink(path)
        return lambda: None

    def rmdir(self, path: Path) -> None:
        self.change()
        disk = self.disk_of(str(path))
        disk.folders.discard(str(path))
        disk.names.pop(str(path), None)

    def fsync_dir(self, path: Path) -> None:
        self.change()
        text = str(path)
        try:
            disk = self.disk_of(text)
        except DiskFailedError:
            raise
        except DiskError:
            return  # the folder in which disks are mounted
        if disk.sync_fails():
            raise DiskFailedError(f"sync {path}: an error of the disk")
        disk.durable_names[text] = dict(disk.names[text])

    def sync_file_system(self, path: Path) -> None:
        disk = self.disk_of(str(path))
        self.change()
        if disk.sync_all():
            raise DiskFailedError(f"sync the file system of {path}: an error of the disk")

    def space(self, path: Path) -> Space:
        disk = self.disk_of(str(path))
        return Space(TOTAL_BYTES // 2 if disk.free_bytes is None else disk.free_bytes, TOTAL_BYTES)


class _Appended:
    def __init__(self, files: SimFiles, disk: Disk, file: File, path: Path) -> None:
        self._files = files
        self._disk = disk
        self._file = file
        self._path = path
        self._end = len(file.data)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._write(self._end, data)
        self._end += len(data)
        self._file.end = self._end
        self._file.appended_at = self._files.now

    def seek(self, end: int) -> None:
        self._end = end
        self._file.seek(end)

    def fill(self, offset: int, data: bytes) -> None:
        self._write(offset, data)

    def _write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        file, disk = self._file, self._disk

        def part(share: float) -> None:
            written = int(share * len(data))
            if offset < len(file.data):  # over filler the kernel writes whole sectors of its own
                written = max(0, written - (offset + written) % SECTOR_BYTES)
            file.write(offset, data[:written])

        self._files.change(part)
        if not disk.mounted:
            raise DiskFailedError(f"write to {self._path}: the disk is gone")
        if disk.fail_appends:
            disk.fail_appends -= 1
            part(0.5)
            raise DiskFailedError(f"write to {self._path}: an error of the disk")
        if disk.free_bytes is not None:
            grows = max(0, offset + len(data) - len(file.data))
            if grows > disk.free_bytes:
                file.write(offset, data[: len(data) - (grows - disk.free_bytes)])
                disk.free_bytes = 0
                raise DiskFullError(f"write to {self._path}: no room")
            disk.free_bytes -= grows
        file.write(offset, data)

    def size(self) -> int:
        return len(self._file.data)

    def truncate(self, size: int) -> None:
        self._files.change()
        if not self._disk.mounted:
            raise DiskFailedError(f"truncate {self._path}: the disk is gone")
        if self._disk.free_bytes is not None:
            self._disk.free_bytes += max(0, len(self._file.data) - size)
        self._file.truncate(size)
        self._end = size

    def fdatasync(self) -> None:
        self._files.change()
        if not self._disk.mounted:
            raise DiskFailedError(f"sync {self._path}: the disk is gone")
        if self._disk.sync_fails() or self._file.unheard:
            self._file.unheard = False
            self._file.fail_sync()
            raise DiskFailedError(f"sync {self._path}: an error of the disk")
        self._file.sync()

    def writeback(self, offset: int, length: int) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        """Nothing to release."""


class _Read:
    def __init__(self, files: SimFiles, disk: Disk, file: File, path: Path) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def pread(self, offset: int, length: int) -> bytes:
        disk = self._disk
        if disk.read_fails() or not disk.mounted:
            raise DiskError(f"read {self._path}: an error of the disk")
        return bytes(self._file.data[offset : offset + length])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.pread(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_cached(self, offset: int, buffer: memoryview) -> int:
        return self.read_into(offset, buffer)

    def want(self, offset: int, length: int) -> None:
        """Nothing: all is in memory."""

    def release(self, offset: int, length: int) -> None:
        self._file.release(offset, offset + length if length else len(self._file.data))

    def size(self) -> int:
        return len(self._file.data)

    def close(self) -> None:
        """Nothing to release."""
