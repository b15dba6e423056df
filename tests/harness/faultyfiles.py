"""File systems that fail: ``CrashableFiles`` over a real folder, for every test that loses a host
or a disk's good will.

What is durable, and what ``lose_host`` may do with the rest:

- The bytes of a file are durable as of its last fdatasync. Of what was appended since, any prefix
  stays (drawn from the random generator); within it, any 512-byte sectors may be zeros instead, in
  any order, as pages that never reached the disk under a size that did. What was written over
  filler that is durable is there, or the filler is, sector by sector, in any order. A truncate that was not
  synced may or may not have happened.
- A name is durable as of the last fsync_dir of its folder. Each creation, rename and removal since
  may be there or not, each for itself. Folders themselves are durable at once.
- What was synced is never touched.

Faults, counted from the call that orders them:

- ``fail_sync(n)``: the n-th fdatasync or fsync_dir raises DiskFailedError and makes nothing
  durable.
- ``fail_append(n, error, written)``: the n-th append raises after writing that many of its bytes.
- ``budget``: bytes that may still be appended in all; the append beyond it writes what fits and
  raises DiskFullError.
- ``fail_truncate``, ``fail_read``: while set, truncates raise DiskFailedError, reads DiskError.
- ``crash_at(n)``: the n-th call that changes anything raises ``Crash``; an append first writes a
  part of its data, as a killed process leaves it (``rng`` decides how much; over filler, up to the end of a sector).
  After it nothing changes the folder any more.

``calls`` counts the calls that change anything.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path

from bkbox.errors import DiskError, DiskFailedError, DiskFullError
from bkbox.storage.files import AppendFile, ReadFile, RealFiles, Space
from bkbox.storage.index.ordered_store import MemoryStore

SECTOR_BYTES = 512


class Crash(BaseException):
    """The process or host stops here."""


class _Node:
    """A file, whatever its name: its durable bytes, and whether it was truncated since."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable


class CrashableFiles:
    """``Files`` over the real folder ``root``; see above."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self._real = RealFiles()
        self._root = root
        self._rng = rng
        self._nodes: dict[Path, _Node] = {}
        self._names: dict[Path, dict[str, _Node]] = {}
        self.calls = 0
        self.syncs = 0
        self.appends = 0
        self.budget: int | None = None
        self.fail_truncate = False
        self.fail_read = False
        self._crash_at: int | None = None
        self._crashed = False
        self._fail_sync_at: int | None = None
        self._fail_append_at: int | None = None
        self._append_failure: tuple[type[DiskError], int] = (DiskFullError, 0)

    # ---- orders ----------------------------------------------------------------------------

    def crash_at(self, call: int) -> None:
        self._crash_at = self.calls + call

    def fail_sync(self, call: int) -> None:
        self._fail_sync_at = self.syncs + call

    def fail_append(self, call: int, error: type[DiskError], written: int) -> None:
        self._fail_append_at = self.appends + call
        self._append_failure = (error, written)

    def stop(self) -> None:
        """The process is gone: what is still open through this object changes nothing any more."""
        self._crashed = True

    def next_process(self) -> CrashableFiles:
        """The same folder, with what is known about it, for the next process."""
        next_files = CrashableFiles(self._root, self._rng)
        next_files._nodes, next_files._names = self._nodes, self._names
        return next_files

    def lose_host(self) -> CrashableFiles:
        """Rewind the folder to what is durable and an arbitrary part of the rest; for the next
        process.
        """
        self.stop()
        after: dict[Path, bytes] = {}
        for folder in sorted({path.parent for path in self._nodes} | set(self._names)):
            durable = self._names.get(folder, {})
            current = {
                path.name: node for path, node in self._nodes.items() if path.parent == folder
            }
            for name in sorted(set(durable) | set(current)):
                before, now = durable.get(name), current.get(name)
                node = now if before is now or self._rng.random() < 0.5 else before
                if node is not None:
                    after[folder / name] = self._torn(node)
        for path in self._nodes:
            path.unlink()
        next_files = CrashableFiles(self._root, self._rng)
        for path, data in after.items():
            path.write_bytes(data)
            node = _Node(data)
            next_files._nodes[path] = node
            next_files._names.setdefault(path.parent, {})[path.name] = node
        return next_files

    def _torn(self, node: _Node) -> bytes:
        current = self._bytes_of(node)
        if current is None:  # its name is gone; what was durable is what is left
            return node.durable
        if not current.startswith(node.durable) and self._rng.random() < 0.5:
            return node.durable  # the truncate did not happen
        if node.durable.startswith(current):
            return current
        both = min(len(current), len(node.durable))
        common = bisect_left(
            range(both), True, key=lambda at: current[: at + 1] != node.durable[: at + 1]
        )
        least = max(common, both)
        data = bytearray(current[: self._rng.randint(least, len(current))])
        back = self._rng.choice((0.0, 0.5, 1.0))
        for start in range(common - common % SECTOR_BYTES, least, SECTOR_BYTES):
            if self._rng.random() < back:
                low, high = max(start, common), min(start + SECTOR_BYTES, least)
                data[low:high] = node.durable[low:high]
        if self._rng.random() < 0.6:
            for start in range(least - least % SECTOR_BYTES, len(data), SECTOR_BYTES):
                low, high = max(start, least), min(start + SECTOR_BYTES, len(data))
                if self._rng.random() < 0.3:
                    data[low:high] = bytes(high - low)
        return bytes(data)

    def _bytes_of(self, node: _Node) -> bytes | None:
        for path, found in self._nodes.items():
            if found is node:
                return path.read_bytes()
        return None

    # ---- what every change goes through ------------------------------------------------------

    def _change(self) -> None:
        if self._crashed:
            raise Crash
        self.calls += 1
        if self.calls == self._crash_at:
            self._crashed = True
            raise Crash

    def _append(
        self, path: Path, write: Callable[[bytes], None], data: bytes, over: int | None = None
    ) -> None:
        """``over``: the offset of data that goes over filler."""
        if not self._crashed and self.calls + 1 == self._crash_at:
            written = self._rng.randint(0, len(data))
            if over is not None and written < len(data):
                written = max(0, written - (over + written) % SECTOR_BYTES)
            write(data[:written])
        self._change()
        self.appends += 1
        if self.appends == self._fail_append_at:
            error, written = self._append_failure
            write(data[:written])
            raise error(f"write to {path}: ordered")
        if self.budget is not None:
            if len(data) > self.budget:
                write(data[: self.budget])
                raise DiskFullError(f"write to {path}: budget")
            self.budget -= len(data)
        write(data)

    def _sync(self, path: Path) -> None:
        self._change()
        self.syncs += 1
        if self.syncs == self._fail_sync_at:
            raise DiskFailedError(f"sync {path}: ordered")

    # ---- Files -------------------------------------------------------------------------------

    def open_append(self, path: Path) -> AppendFile:
        if not self._real.exists(path):
            self._change()
            self._nodes[path] = _Node()
        else:
            self._nodes.setdefault(path, _Node(path.read_bytes()))
        return _AppendFile(self, path, self._nodes[path], self._real.open_append(path))

    def open_read(self, path: Path) -> ReadFile:
        return _ReadFile(self, path, self._real.open_read(path))

    def read_bytes(self, path: Path) -> bytes | None:
        if self.fail_read:
            raise DiskError(f"read {path}: ordered")
        return self._real.read_bytes(path)

    def exists(self, path: Path) -> bool:
        return self._real.exists(path)

    def listdir(self, path: Path) -> list[str]:
        return self._real.listdir(path)

    def mkdir(self, path: Path) -> None:
        self._change()
        self._real.mkdir(path)

    def rename(self, source: Path, target: Path) -> None:
        self._change()
        self._real.rename(source, target)
        if source in self._nodes:
            self._nodes[target] = self._nodes.pop(source)

    def unlink(self, path: Path) -> None:
        self._change()
        self._real.unlink(path)
        self._nodes.pop(path, None)

    def detach(self, path: Path) -> Callable[[], None]:
        self.unlink(path)
        return lambda: None

    def rmdir(self, path: Path) -> None:
        self._change()
        self._real.rmdir(path)

    def fsync_dir(self, path: Path) -> None:
        self._sync(path)
        self._names[path] = {
            found.name: node for found, node in self._nodes.items() if found.parent == path
        }

    def space(self, path: Path) -> Space:
        return self._real.space(path)

    def sync_file_system(self, path: Path) -> None:
        self._sync(path)
        for found, node in self._nodes.items():
            if not found.exists():  # a test has taken it away
                continue
            node.durable = found.read_bytes()
            names = self._names.setdefault(found.parent, {})
            names[found.name] = node
        for folder, names in self._names.items():
            for name in [name for name in names if folder / name not in self._nodes]:
                del names[name]


class _AppendFile:
    def __init__(self, files: CrashableFiles, path: Path, node: _Node, real: AppendFile) -> None:
        self._files = files
        self._path = path
        self._node = node
        self._real = real
        self._end = real.size()

    def append(self, data: bytes) -> None:
        end = self._end
        over = end if end < self._real.size() else None
        self._files._append(self._path, self._real.append, data, over)
        self._end += len(data)

    def seek(self, end: int) -> None:
        self._real.seek(end)
        self._end = end

    def fill(self, offset: int, data: bytes) -> None:
        self._files._append(self._path, lambda part: self._real.fill(offset, part), data)

    def size(self) -> int:
        return self._real.size()

    def truncate(self, size: int) -> None:
        self._files._change()
        if self._files.fail_truncate:
            raise DiskFailedError(f"truncate {self._path}: ordered")
        self._real.truncate(size)
        self._end = size

    def fdatasync(self) -> None:
        self._files._sync(self._path)
        self._node.durable = self._path.read_bytes()

    def close(self) -> None:
        self._real.close()


class _ReadFile:
    def __init__(self, files: CrashableFiles, path: Path, real: ReadFile) -> None:
        self._files = files
        self._path = path
        self._real = real

    def pread(self, offset: int, length: int) -> bytes:
        if self._files.fail_read:
            raise DiskError(f"read {self._path}: ordered")
        return self._real.pread(offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        if self._files.fail_read:
            raise DiskError(f"read {self._path}: ordered")
        return self._real.read_into(offset, buffer)

    def read_cached(self, offset: int, buffer: memoryview) -> int:
        return self.read_into(offset, buffer)

    def want(self, offset: int, length: int) -> None:
        self._real.want(offset, length)

    def release(self, offset: int, length: int) -> None:
        self._real.release(offset, length)

    def size(self) -> int:
        return self._real.size()

    def close(self) -> None:
        self._real.close()


class CrashableStore(MemoryStore):
    """An index in memory that outlives its process, and of which a lost host keeps a prefix of its
    writes.

    The prefix holds at least what was flushed, as the tables of LevelDB do.
    """

    def __init__(self) -> None:
        super().__init__()
        self._flushed: dict[bytes, bytes] = {}
        self._since: list[dict[bytes, bytes | None]] = []

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        super().write(changes)
        self._since.append(dict(changes))

    def flush(self) -> None:
        self._flushed = dict(self.iterate(b"", b"\xff"))
        self._since.clear()

    def lose_host(self, rng: random.Random) -> CrashableStore:
        """What is left, for the next process."""
        store = CrashableStore()
        store.write(dict(self._flushed))
        for changes in self._since[: rng.randint(0, len(self._since))]:
            store.write(changes)
        store.flush()
        return store
