"""A host that is lost, for real processes on real files: everything not synced may be gone.

hooks/sitecustomize.py writes down, inside the bookie's processes, what becomes durable. After all
of them were killed, ``HostLoss.lose`` puts the folders into a state that a power cut could have
left:

- Of what was appended to a file after its last fdatasync any prefix stays; within it any sectors
  of 512 bytes are zeros, as where nothing was ever written. What was appended over filler that is durable is there, or
  the filler is, sector by sector, and the file is at least as long as that.
- Each name that was made, replaced or removed after the last sync of its folder is as it was then
  or as it is now, each for itself.
- LevelDB syncs its tables and its manifest by itself; its write-ahead log keeps what was there at
  the last synced write, any prefix of the rest, and garbage behind it where there was more. Folders
  are durable at once.
- The dirty markers name another boot.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.disk.dirty_marker import MARKER_NAME
from bkbox.storage.files import RealFiles
from bkbox.storage.index.ordered_store import INDEX_DIR

HOOKS = Path(__file__).with_name("hooks")
SECTOR_BYTES = 512
_NOT_STORED = ("LOCK",)
"""Files that say nothing, and that are not written through the door to the file system."""


class HostLoss:
    """What of some folders is durable. ``begin`` before the first start, ``lose`` after a kill."""

    def __init__(self, folders: Sequence[Path], side: Path) -> None:
        self._folders = folders
        self._side = side
        self._ends: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._fillers: dict[int, list[tuple[int, bytes]]] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._index_logs: dict[Path, int] = {}
        self.lost_bytes = self.lost_names = 0

    def environment(self, *, lie: str = "") -> dict[str, str]:
        """For the processes of the bookie."""
        found = [str(HOOKS), os.environ.get("PYTHONPATH", "")]
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, found)),
            "CRASH_SIDE": str(self._side),
            "CRASH_LIE": lie,
        }

    def begin(self) -> None:
        """All that is there now is durable."""
        shutil.rmtree(self._side, ignore_errors=True)
        (self._side / "kept").mkdir(parents=True)
        self._names = {folder: _names(folder) for folder in self._walk()}
        self._sizes = {
            ino: (folder / name).stat().st_size
            for folder, names in self._names.items()
            for name, ino in names.items()
        }
        self._ends = dict(self._sizes)
        self._fillers = {
            ino: fillers for ino, fillers in self._fillers.items() if ino in self._sizes
        }
        self._index_logs = {path: path.stat().st_size for path in self._present_index_logs()}

    @property
    def sees_something(self) -> bool:
        """Whether a process that writes it down has run."""
        return (self._side / "log").exists()

    def _walk(self) -> Iterator[Path]:
        for top in self._folders:
            for path, below, _files in os.walk(top):
                below[:] = sorted(name for name in below if not name.startswith(INDEX_DIR))
                yield Path(path)

    def _present_index_logs(self) -> list[Path]:
        return [path for top in self._folders for path in sorted((top / INDEX_DIR).glob("*.log"))]

    def _read_log(self) -> None:
        log = self._side / "log"
        for line in log.read_bytes().splitlines() if log.exists() else ():
            kind, where, what, *more = json.loads(line)
            if kind == "dir":
                self._names[Path(where)] = {
                    name: ino for name, ino in what.items() if name not in _NOT_STORED
                }
            elif kind == "index":
                self._index_logs[Path(where)] = what
            elif kind == "sync":
                self._ends[where] = max(self._ends.get(where, 0), what)
                self._sizes[where] = max(self._sizes.get(where, 0), *more)
            elif kind == "fill":
                self._fillers.setdefault(where, []).append((what, bytes.fromhex(*more)))
            elif kind == "seek":  # the file stays as long as it is
                self._ends[where] = min(self._ends.get(where, 0), what)
            else:
                self._ends[where] = min(self._ends.get(where, 0), what)
                self._sizes[where] = min(self._sizes.get(where, 0), what)

    def lose(self, rng: random.Random) -> None:
        """The power is cut; every process of the bookie is gone. What is left is durable."""
        self._read_log()
        by_inode = {int(path.name): path for path in (self._side / "kept").iterdir()}
        folders = list(self._walk())
        for folder in folders:
            for name, ino in _names(folder).items():
                if ino not in by_inode:
                    kept = self._side / "kept" / str(ino)
                    os.link(folder / name, kept)
                    by_inode[ino] = kept
        for ino in sorted(by_inode):
            self._tear(by_inode[ino], ino, rng)
        for folder in folders:
            self._rewind_names(folder, by_inode, rng)
        for path in self._present_index_logs():
            data, durable = path.read_bytes(), self._index_logs.get(path, 0)
            if len(data) > durable:
                garbage = rng.randbytes(rng.choice((0, 90)))
                path.write_bytes(data[: rng.randint(durable, len(data))] + garbage)
        for folder in self._folders:
            _another_boot(folder)
        self.begin()

    def _tear(self, path: Path, ino: int, rng: random.Random) -> None:
        durable, filled = self._ends.get(ino, 0), self._sizes.get(ino, 0)
        size = path.stat().st_size
        if size <= durable:
            return
        least = max(durable, min(filled, size))
        kept = rng.choice((least, size, rng.randint(least, size)))
        self.lost_bytes += size - kept
        back = rng.choice((0, 0.3, 1))
        with path.open("r+b") as file:
            file.truncate(kept)
            for start in range(durable - durable % SECTOR_BYTES, kept, SECTOR_BYTES):
                first, last = max(start, durable), min(start + SECTOR_BYTES, kept)
                filler = self._filler(ino, first, min(last, filled))
                if rng.random() < (back if filler else 0.15):
                    before = filler.ljust(last - first, b"\0")
                    file.seek(first)
                    if file.read(len(before)) != before:
                        self.lost_bytes += len(before)
                    file.seek(first)
                    file.write(before)

    def _filler(self, ino: int, start: int, end: int) -> bytes:
        """What was there before something was appended over it."""
        for offset, unit in self._fillers.get(ino, ()) if start < end else ():
            phase = (start - offset) % len(unit)
            return (unit * ((end - start) // len(unit) + 2))[phase : phase + end - start]
        return b""

    def _rewind_names(self, folder: Path, by_inode: dict[int, Path], rng: random.Random) -> None:
        now, then = _names(folder), self._names.get(folder, {})
        for name in sorted({*now, *then}):
            if now.get(name) == then.get(name) or rng.random() < 0.5:
                continue
            self.lost_names += 1
            path, before = folder / name, then.get(name)
            path.unlink(missing_ok=True)
            if before is not None:
                os.link(by_inode[before], path)


def _names(folder: Path) -> dict[str, int]:
    return {
        entry.name: entry.inode()
        for entry in os.scandir(folder)
        if entry.is_file(follow_symlinks=False) and entry.name not in _NOT_STORED
    }


def _another_boot(disk: Path) -> None:
    files, path = RealFiles(), disk / MARKER_NAME
    fields = read_document(files, path)
    if fields is not None:
        for run in fields["runs"]:
            run["boot_id"] = str(uuid.UUID(int=0))
        write_document(files, path, fields)
