"""A file system in memory that fails as real ones may: the ``Files`` of a simulated process.

What is durable, and what a lost host does with the rest:

- The bytes of a file are durable as of its last fdatasync. Of what was appended since any prefix stays; within it any
  sector of 512 bytes may be zeros or garbage, in any order. What was written over something durable (filler) is there,
  or what it replaced is, or zeros or garbage, sector by sector. A truncate that was not synced may not have happened.
- A name is durable as of the last fsync_dir of its folder. Each creation, rename and removal since may be there or not,
  each for itself. Folders are durable at once.
- A failed sync makes nothing durable, and a later one that succeeds does not make durable what the failed one left: the
  pages are taken for clean. That part is gone with the host.

Faults belong to a disk (``Disk``), which is all below one folder: the next n syncs or appends fail, reads fail, room is
bounded, bytes are flipped. A process dies in the middle of its n-th change with ``Process.die`` (``crash_at``), a host
in the middle of the n-th change that any of its processes makes (``Ambush``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bkbox.errors import DiskError, DiskFailedError, DiskFullError
from bkbox.sim.loop import Crash, Process
from bkbox.storage.files import AppendFile, ReadFile, Space

SECTOR_BYTES = 512
TOTAL_BYTES = 1 << 40
LOG_SUFFIX = ".log"
KILLED_IN_WRITE = "it was killed in the middle of a write"


class File:
    """An inode. ``data``: what a read sees; ``synced``: durable up to there, but for ``undo``.

    ``end``: of what was appended, filler apart; ``ended``: what of it was synced; ``confirmed``: what was synced before
    more was appended and synced as well, so that who wrote it can have said durably that it was.
    """

    __slots__ = ("confirmed", "data", "end", "ended", "lost", "synced", "undo")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = len(data)
        self.end = self.ended = self.confirmed = 0
        self.undo: list[tuple[int, bytes]] = []
        """What was durable and was overwritten or cut off since, oldest first."""
        self.lost: list[tuple[int, int, bytes]] = []
        """What a failed sync left behind, and what is on the disk there: clean to the system, until it is written
        again."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        end = offset + len(data)
        if self.lost:
            self._touch(offset, end)
        if offset < self.synced:
            self.undo.append((offset, bytes(self.data[offset : min(end, self.synced)])))
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data

    def truncate(self, size: int) -> None:
        if self.lost:
            self._touch(size, len(self.data))
        if size < self.synced:
            self.undo.append((size, bytes(self.data[size : self.synced])))
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.end = min(self.end, size)
        self.ended = min(self.ended, size)
        self.confirmed = min(self.confirmed, size)

    def sync(self) -> None:
        self.synced = len(self.data)
        if self.undo:
            self.undo.clear()
        if self.end > self.ended:
            self.confirmed, self.ended = self.ended, self.end

    def fail_sync(self) -> None:
        self.lost += [(offset, offset + len(old), old) for offset, old in self.undo]
        self.lost.append((self.synced, len(self.data), b""))
        self.sync()

    def _touch(self, start: int, end: int) -> None:
        """These bytes are written, or cut off: they are as dirty as others."""
        left = []
        for low, high, old in self.lost:
            if low < start:
                left.append((low, min(high, start), old[: start - low]))
            if end < high:
                left.append((max(low, end), high, old[max(0, end - low) :]))
        self.lost = left

    @property
    def is_clean(self) -> bool:
        return self.synced == len(self.data) and not self.undo and not self.lost

    def durable(self) -> bytearray:
        """The bytes that nothing can take away, but for what a failed sync left behind."""
        image = self.data[: self.synced]
        for offset, old in reversed(self.undo):
            end = offset + len(old)
            if end > len(image):
                image.extend(bytes(end - len(image)))
            image[offset:end] = old
        return image

    def after_loss(self, rng: random.Random) -> File:
        """What is there after the host was lost."""
        left = File(self.torn(rng))
        size = len(left.data)
        left.end = left.ended = min(self.ended, size)
        left.confirmed = min(self.confirmed, size)
        return left

    def torn(self, rng: random.Random) -> bytes:
        """What a lost host leaves."""
        if self.is_clean:
            return bytes(self.data)
        data = self._torn(rng)
        for start, end, old in self.lost:
            end = min(end, len(data))
            if start >= end:
                continue
            if end == len(data) and not old and rng.random() < 0.5:
                del data[start:]
            else:
                data[start:end] = old[: end - start].ljust(end - start, b"\0")
        return bytes(data)

    def _torn(self, rng: random.Random) -> bytearray:
        durable, current = self.durable(), self.data
        if len(current) < len(durable) and rng.random() < 0.5:
            return durable  # the truncate did not happen
        both = min(len(durable), len(current))
        end = rng.choice((both, rng.randint(both, len(current)), len(current)))
        data = current[:end]
        worst = rng.choice((0.0, rng.random()))
        for start in sorted(_changed(durable, current, both, end, self.undo)):
            stop = min(start + SECTOR_BYTES, end)
            draw = rng.random()
            if draw < 0.4 * worst:
                old = durable[start:stop]
                data[start : start + len(old)] = old
                data[start + len(old) : stop] = bytes(stop - start - len(old))
            elif draw < 0.6 * worst:
                low = max(start, self._safe(start))
                garbage = draw >= 0.5 * worst
                data[low:stop] = rng.randbytes(stop - low) if garbage else bytes(stop - low)
        return data

    def _safe(self, start: int) -> int:
        """Up to where the sector at ``start`` holds what was durable and is not touched by a write of its rest."""
        touched = [offset for offset, old in self.undo if offset + len(old) > start]
        return max(start, min([self.synced, *touched]))


def _changed(
    durable: bytearray, current: bytearray, both: int, end: int, undo: list[tuple[int, bytes]]
) -> Iterator[int]:
    """Sectors that are not as they were when they were last durable."""
    seen = set()
    for offset, old in undo:
        for start in range(
            offset - offset % SECTOR_BYTES, min(offset + len(old), both), SECTOR_BYTES
        ):
            stop = min(start + SECTOR_BYTES, both)
            if durable[start:stop] != current[start:stop]:
                seen.add(start)
    seen.update(range(both - both % SECTOR_BYTES, end, SECTOR_BYTES))
    yield from seen


class Disk:
    """What lies below one folder of a host, and how it fails. ``files``: by path below it, as is and as is durable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: set[str] = {str(root)}
        self.names: dict[str, dict[str, File]] = {str(root): {}}
        self.durable_names: dict[str, dict[str, File]] = {str(root): {}}
        self.mounted = True
        self.fail_syncs = 0
        self.fail_appends = 0
        self.fail_reads = 0
        self.room: int | None = None
        self.on_failed_sync: Callable[[], None] | None = None
        """What comes of the next sync that fails, once."""

    def lose_host(self, rng: random.Random) -> None:
        """Only what is durable stays, and a part of the rest."""
        for folder in sorted(self.names):
            now, before = self.names[folder], self.durable_names.setdefault(folder, {})
            after: dict[str, File] = {}
            for name in sorted({*now, *before}):
                is_now, was = now.get(name), before.get(name)
                kept = is_now if is_now is was or rng.random() < 0.5 else was
                if kept is not None:
                    after[name] = kept if kept.is_clean else kept.after_loss(rng)
            self.names[folder] = after
            self.durable_names[folder] = dict(after)
        self.fail_syncs = self.fail_appends = self.fail_reads = 0
        self.on_failed_sync = None

    def sync_fails(self) -> bool:
        """Whether the sync that is asked for fails."""
        if not self.fail_syncs:
            return False
        self.fail_syncs -= 1
        told, self.on_failed_sync = self.on_failed_sync, None
        if told is not None:
            told()
        return True

    def empty(self) -> None:
        """Another disk, with nothing on it, is in its place."""
        fresh = Disk(self.root)
        self.folders, self.names, self.durable_names = (
            fresh.folders,
            fresh.names,
            fresh.durable_names,
        )

    def exchange(self, other: Disk) -> None:
        """Each is where the other was."""
        mine, theirs = self._moved(other.root), other._moved(self.root)
        self.folders, self.names, self.durable_names = theirs
        other.folders, other.names, other.durable_names = mine

    def _moved(
        self, root: Path
    ) -> tuple[set[str], dict[str, dict[str, File]], dict[str, dict[str, File]]]:
        def moved(folder: str) -> str:
            return str(root) + folder[len(str(self.root)) :]

        return (
            {moved(folder) for folder in self.folders},
            {moved(folder): names for folder, names in self.names.items()},
            {moved(folder): names for folder, names in self.durable_names.items()},
        )

    def flip(self, rng: random.Random, suffix: str) -> str | None:
        """Flip a bit of a file with this suffix; its name, None where there is none.

        Of a log only a bit of what is ``confirmed``: if the host is lost, nobody can tell damage to the rest from a
        sync that never was.
        """
        is_log = suffix == LOG_SUFFIX
        found = [
            (folder, name)
            for folder in sorted(self.names)
            for name, file in sorted(self.names[folder].items())
            if name.endswith(suffix) and (file.confirmed if is_log else file.data)
        ]
        if not found:
            return None
        folder, name = rng.choice((found[-1], rng.choice(found)))
        file = self.names[folder][name]
        end = file.confirmed if is_log else len(file.data)
        at = rng.randrange(rng.choice((0, max(0, end - 2000))), end)
        file.data[at] ^= 1 << rng.randrange(8)
        return f"{folder}/{name} byte {at}"


class Ambush:
    """What happens to a host in the middle of the n-th change of its files from now, whichever process makes it.

    ``strike``: kills all its processes, or says that it does not.
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
        ambush: Ambush | None = None,
    ) -> None:
        self._disks = disks
        self._process = process
        self._rng = rng
        self._ambush = Ambush() if ambush is None else ambush
        self._crash_in = 0
        self._where: dict[str, Disk] = {}

    def crash_at(self, change: int) -> None:
        self._crash_in = change

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
        """For a look at what is there: reads do not fail by themselves."""
        before = [disk.fail_reads for disk in self._disks]
        for disk in self._disks:
            disk.fail_reads = 0
        try:
            yield
        finally:
            for disk, fail_reads in zip(self._disks, before, strict=True):
                disk.fail_reads = fail_reads

    def change(self, part: Callable[[float], None] | None = None) -> None:
        """Something is about to be changed; ``part``: makes a part of it, as a process that is killed does."""
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
        parent = str(path.parent)
        return self.disk_of(parent).names.get(parent, {}).get(path.name)

    def open_append(self, path: Path) -> AppendFile:
        parent = str(path.parent)
        disk = self.disk_of(parent)
        folder = disk.names.get(parent)
        if folder is None:
            raise DiskFailedError(f"open {path}: no such folder")
        file = folder.get(path.name)
        if file is None:
            self.change()
            file = folder[path.name] = File()
        return _Appended(self, disk, file, path)

    def open_read(self, path: Path) -> ReadFile:
        file = self._file(path)
        if file is None:
            raise DiskError(f"open {path}: no such file")
        return _Read(self, self.disk_of(str(path.parent)), file, path)

    def read_bytes(self, path: Path) -> bytes | None:
        parent = str(path.parent)
        disk = self.disk_of(parent)
        if disk.fail_reads:
            disk.fail_reads -= 1
            raise DiskError(f"read {path}: an error of the disk")
        file = disk.names.get(parent, {}).get(path.name)
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
        disk = self.disk_of(str(source.parent))
        folder = disk.names[str(source.parent)]
        file = folder.pop(source.name, None)
        if file is None:
            raise DiskFailedError(f"rename {source}: no such file")
        disk.names[str(target.parent)][target.name] = file

    def unlink(self, path: Path) -> None:
        self.change()
        folder = self.disk_of(str(path.parent)).names.get(str(path.parent), {})
        if folder.pop(path.name, None) is None:
            raise DiskFailedError(f"remove {path}: no such file")

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
            return  # the folder that disks are mounted in
        if disk.sync_fails():
            raise DiskFailedError(f"sync {path}: an error of the disk")
        disk.durable_names[text] = dict(disk.names[text])

    def space(self, path: Path) -> Space:
        disk = self.disk_of(str(path))
        return Space(TOTAL_BYTES // 2 if disk.room is None else disk.room, TOTAL_BYTES)


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

    def fill(self, offset: int, data: bytes) -> None:
        self._write(offset, data)

    def _write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        file, disk = self._file, self._disk

        def part(share: float) -> None:
            written = int(share * len(data))
            if offset < len(file.data):  # over filler the system writes whole sectors of its own
                written = max(0, written - (offset + written) % SECTOR_BYTES)
            file.write(offset, data[:written])

        self._files.change(part)
        if not disk.mounted:
            raise DiskFailedError(f"write to {self._path}: the disk is gone")
        if disk.fail_appends:
            disk.fail_appends -= 1
            part(0.5)
            raise DiskFailedError(f"write to {self._path}: an error of the disk")
        if disk.room is not None:
            grows = max(0, offset + len(data) - len(file.data))
            if grows > disk.room:
                file.write(offset, data[: len(data) - (grows - disk.room)])
                disk.room = 0
                raise DiskFullError(f"write to {self._path}: no room")
            disk.room -= grows
        file.write(offset, data)

    def size(self) -> int:
        return len(self._file.data)

    def truncate(self, size: int) -> None:
        self._files.change()
        if not self._disk.mounted:
            raise DiskFailedError(f"truncate {self._path}: the disk is gone")
        if self._disk.room is not None:
            self._disk.room += max(0, len(self._file.data) - size)
        self._file.truncate(size)
        self._end = size

    def fdatasync(self) -> None:
        self._files.change()
        if not self._disk.mounted:
            raise DiskFailedError(f"sync {self._path}: the disk is gone")
        if self._disk.sync_fails():
            self._file.fail_sync()
            raise DiskFailedError(f"sync {self._path}: an error of the disk")
        self._file.sync()

    def writeback(self, offset: int, length: int) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        """Nothing is held."""


class _Read:
    def __init__(self, files: SimFiles, disk: Disk, file: File, path: Path) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def pread(self, offset: int, length: int) -> bytes:
        disk = self._disk
        if disk.fail_reads or not disk.mounted:
            disk.fail_reads = max(0, disk.fail_reads - 1)
            raise DiskError(f"read {self._path}: an error of the disk")
        return bytes(self._file.data[offset : offset + length])

    def read_into(self, offset: int, room: memoryview) -> int:
        data = self.pread(offset, len(room))
        room[: len(data)] = data
        return len(data)

    def read_cached(self, offset: int, room: memoryview) -> int:
        return self.read_into(offset, room)

    def want(self, offset: int, length: int) -> None:
        """Nothing: all is in memory."""

    def release(self, offset: int, length: int) -> None:
        """Nothing."""

    def size(self) -> int:
        return len(self._file.data)

    def close(self) -> None:
        """Nothing is held."""
