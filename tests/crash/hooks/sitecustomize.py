"""Put on the path of a bookie by losthost.py: writes down what is durable, as it becomes so.

``CRASH_SIDE`` is a folder outside the disks. Its ``log`` gets one JSON line for each

- ``["fill", inode, offset, unit]``: a file is filled from offset on with a unit of bytes, over and over,
- ``["sync", inode, end, size]``: a file's bytes are durable up to its end, its filler up to size,
- ``["cut", inode, size]``: a file was truncated,
- ``["seek", inode, end]``: what is appended next overwrites what lies behind this end,
- ``["dir", path, {name: inode}]``: the names in a directory are durable,
- ``["index", path, size]``: a write-ahead log of LevelDB is durable up to size, by its synced write,

after the call has succeeded and before it returns. Syncs take a while, so that kills meet them.
What loses its last name is kept in ``kept`` under its inode, because a removal that was not synced
may be undone.

``CRASH_LIE`` makes the workers' files lie, which the tests have to notice: ``sync``: fdatasync does
nothing and says that all is well; ``write``: what is appended is only written when the next call
for the file comes.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

SYNC_S = 0.002
FILLER_BYTES = 8
SIDE = os.environ.get("CRASH_SIDE", "")
LIE = os.environ.get("CRASH_LIE", "") if "bkbox.worker" in sys.orig_argv else ""


def _install(side: Path) -> None:
    from bkbox.storage import files
    from bkbox.storage.index import ordered_store

    log = os.open(side / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    append_file: Any = files._RealAppendFile
    real: Any = files.RealFiles
    sync, truncate, fill = append_file.fdatasync, append_file.truncate, append_file.fill
    seek, sync_file_system = append_file.seek, real.sync_file_system
    fsync_dir, unlink, rename = real.fsync_dir, real.unlink, real.rename

    def note(*what: object) -> None:
        os.write(log, json.dumps(what).encode() + b"\n")

    def keep(path: Path) -> None:
        with suppress(FileNotFoundError, FileExistsError):
            os.link(path, side / "kept" / str(os.stat(path).st_ino))

    def noted_sync(self: Any) -> None:
        if LIE == "sync":
            return
        time.sleep(SYNC_S)
        found, end = os.fstat(self._fd), self._end
        sync(self)
        note("sync", found.st_ino, end, found.st_size)

    def noted_fill(self: Any, offset: int, data: bytes) -> None:
        note("fill", os.fstat(self._fd).st_ino, offset, data[:FILLER_BYTES].hex())
        fill(self, offset, data)

    def noted_truncate(self: Any, size: int) -> None:
        truncate(self, size)
        note("cut", os.fstat(self._fd).st_ino, size)

    def noted_seek(self: Any, end: int) -> None:
        note("seek", os.fstat(self._fd).st_ino, end)
        seek(self, end)

    def noted_sync_file_system(self: Any, path: Path) -> None:
        """What is noted as durable is what is below ``path``, the folder of a disk."""
        if LIE == "sync":
            return
        sizes = {}
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(FileNotFoundError):  # the supervisor replaces its own files meanwhile
                    found = os.stat(os.path.join(folder, name))
                    sizes[found.st_ino] = found.st_size
        sync_file_system(self, path)
        for ino, size in sizes.items():
            note("sync", ino, size, size)
        for folder, _, _ in os.walk(path):
            noted_fsync_dir(self, Path(folder))

    def noted_fsync_dir(self: Any, path: Path) -> None:
        lock = os.open(side / "lock", os.O_RDWR | os.O_CREAT)
        try:
            time.sleep(SYNC_S)
            fcntl.flock(lock, fcntl.LOCK_EX)  # what is noted last was seen last
            names = {
                entry.name: entry.inode()
                for entry in os.scandir(path)
                if entry.is_file(follow_symlinks=False)
            }
            fsync_dir(self, path)
            note("dir", str(path), names)
        finally:
            os.close(lock)

    def kept_unlink(self: Any, path: Path) -> None:
        keep(path)
        unlink(self, path)

    def kept_rename(self: Any, source: Path, target: Path) -> None:
        keep(target)
        rename(self, source, target)

    level: Any = ordered_store.LevelStore
    flush = level.flush

    def noted_flush(self: Any) -> None:
        flush(self)
        for path in self._path.glob("*.log"):
            note("index", str(path), path.stat().st_size)

    level.flush = noted_flush
    append = append_file.append
    held: dict[int, bytes] = {}

    def late_append(self: Any, data: bytes) -> None:
        before, held[self._fd] = held.get(self._fd), bytes(data)
        if before is not None:
            append(self, before)

    def in_time(method: Any) -> Any:
        def call(self: Any, *arguments: Any) -> Any:
            data = held.pop(self._fd, None)
            if data is not None:
                append(self, data)
            return method(self, *arguments)

        return call

    if LIE == "write":
        sync, truncate, seek = in_time(sync), in_time(truncate), in_time(seek)
        append_file.append = late_append
        append_file.size, append_file.close = in_time(append_file.size), in_time(append_file.close)
    append_file.fdatasync, append_file.truncate = noted_sync, noted_truncate
    append_file.fill, append_file.seek = noted_fill, noted_seek
    real.sync_file_system = noted_sync_file_system
    real.fsync_dir, real.unlink, real.rename = noted_fsync_dir, kept_unlink, kept_rename


if SIDE:
    _install(Path(SIDE))
