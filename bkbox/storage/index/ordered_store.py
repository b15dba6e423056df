"""An ordered map of bytes to bytes that survives a crash: LevelDB, and the same in memory for simulator and tests.

The index needs exactly this of it:

- ``write`` is atomic, and survives the process once it has returned. Only the writes before the last ``flush``
  survive the host.
- LevelDB that found no space takes no write any more, even with space, until it is reopened (``renew``).
- LevelDB flushes its memory table into a synced table when a range is compacted; that call swallows its errors, so a
  synced write follows, which LevelDB refuses after a failure in the background.
- An iteration ends at a key, at least at an end mark: behind a table that cannot be read, where nothing else follows,
  LevelDB's iterator just ends.
- After a host crash the write-ahead log of LevelDB may hold some writes without those before them.
  ``discard_unsynced`` removes it: the tables then hold a prefix of all writes, at least up to the last flush. The
  entry log's replay, which starts at that flush, does the rest.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

try:
    import plyvel
except (
    ModuleNotFoundError
):  # its fork, of the same interface and for the same files, has the wheels for newer Pythons
    import plyvel_next as plyvel

from bkbox.errors import DiskError, DiskFailedError, DiskFullError, IndexDamagedError
from bkbox.storage.files import Files

INDEX_DIR = "index"
_WRITE_BUFFER_BYTES = 8 << 20
_CACHE_BYTES = 8 << 20
_OPEN_FILES = 256
_FIRST, _LAST = b"!flushed", b"~flushed"
"""End marks: they sort before and after all keys of the index."""
_TABLES = b"leveldb.sstables"
_TABLE = re.compile(rb"^ (\d+):(\d+)\[", re.MULTILINE)
"""Number and size of a table in LevelDB's list of its tables."""


class OrderedStore(Protocol):
    """An ordered, crash-safe map; see above."""

    damage: str
    """The part that was found unreadable, as text; empty if none was."""

    def get(self, key: bytes) -> bytes | None: ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Put values, delete if the value is None; all or nothing."""

    def iterate(
        self, start: bytes, stop: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start <= key < stop as they were at the call, in key order."""

    def flush(self) -> None:
        """Make everything written durable."""

    def renew(self) -> None:
        """Reopen after a write or a flush that found no space, and before the next one; nothing else may be in
        flight. DiskFullError: there is none yet, and reads raise DiskError meanwhile.
        """

    def close(self) -> None: ...


class MemoryStore:
    """``OrderedStore`` in memory."""

    def __init__(self) -> None:
        self.damage = ""
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is not None:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value
            elif self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def iterate(
        self, start: bytes, stop: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]
        pairs = [(key, self._values[key]) for key in keys]
        return iter(pairs[::-1] if reverse else pairs)

    def flush(self) -> None:
        """Does nothing: memory has no durability."""

    def renew(self) -> None:
        """Does nothing: it needs no reopening."""

    def close(self) -> None:
        """Does nothing."""


class LevelStore:
    """``OrderedStore`` in a LevelDB folder."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open the folder, or create it. IndexDamagedError if it is missing or broken, DiskError otherwise."""
        self.damage = ""
        self._path = path
        self._db: Any = None
        self._open(create=create)

    def _open(self, *, create: bool) -> None:
        # LevelDB creates its folder and files readable for every user, as far as the umask of a command allows.
        with suppress(OSError):  # LevelDB reports it itself
            if create:
                self._path.mkdir(mode=0o700, exist_ok=True)
            self._path.chmod(0o700)
        with self._errors(DiskError):
            self._db = plyvel.DB(
                str(self._path),
                create_if_missing=create,
                error_if_exists=create,
                paranoid_checks=True,
                bloom_filter_bits=10,
                write_buffer_size=_WRITE_BUFFER_BYTES,
                lru_cache_size=_CACHE_BYTES,
                max_open_files=_OPEN_FILES,
            )
            try:
                self._check_tables()
                if (
                    self._db.get(_LAST, verify_checksums=True) is None
                ):  # new, or of an older version
                    self._write_marks(sync=False)
            except plyvel.Error:
                self._db.close()
                raise

    def _check_tables(self) -> None:
        """Detect tables that were cut short: LevelDB opens a table only when something in it is read.

        A missing table LevelDB has detected, or has itself replaced since.
        """
        for number, size in _TABLE.findall(self._db.get_property(_TABLES)):
            table = self._path / f"{int(number):06}.ldb"
            with suppress(FileNotFoundError):
                if table.stat().st_size != int(size):
                    raise plyvel.CorruptionError(f"{table.name} is not of {int(size)} bytes")

    def _write_marks(self, *, sync: bool) -> None:
        with self._opened.write_batch(sync=sync) as batch:
            batch.put(_FIRST, b"")
            batch.put(_LAST, b"")

    @property
    def _opened(self) -> Any:
        if self._db is None:
            raise DiskError(f"{self._path}: there was no room to open it anew")
        return self._db

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._opened.get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise self._error_of(error, DiskError) from error
        return value

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        batch = self._opened.write_batch()
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        with self._errors(DiskFailedError):
            batch.write()

    def iterate(
        self, start: bytes, stop: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        low, high = (None, stop) if reverse else (start, None)
        with (
            self._errors(DiskError),
            self._opened.iterator(
                start=low, stop=high, reverse=reverse, verify_checksums=True
            ) as pairs,
        ):
            try:
                for pair in pairs:
                    if not start <= pair[0] < stop:
                        return
                    yield pair
                raise plyvel.CorruptionError(b"an end mark cannot be read")
            except RuntimeError as error:  # plyvel's error for an iterator whose store was closed
                raise DiskError(f"{self._path}: it was opened anew meanwhile") from error

    def flush(self) -> None:
        with self._errors(DiskFailedError):
            self._opened.compact_range(start=_FIRST, stop=_FIRST)
            self._write_marks(sync=True)

    def renew(self) -> None:
        self.close()
        self._db = None
        self._open(create=False)

    def close(self) -> None:
        if self._db is not None:
            with self._errors(DiskError):
                self._db.close()

    @contextmanager
    def _errors(self, kind: type[DiskError]) -> Iterator[None]:
        try:
            yield
        except plyvel.Error as error:
            raise self._error_of(error, kind) from error

    def _error_of(self, error: Exception, kind: type[DiskError]) -> DiskError:
        said = error.args[0] if error.args else b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        # "Invalid argument" is LevelDB's error for a table that is shorter than it should be.
        missing = "does not exist" in text or "Invalid argument" in text
        if isinstance(error, plyvel.CorruptionError) or missing:
            self.damage = f"{self._path}: {text}"
            return IndexDamagedError(self.damage)
        full = "No space left" in text or "quota" in text
        return (DiskFullError if full else kind)(f"{self._path}: {text}")


def discard_unsynced(files: Files, path: Path) -> None:
    """Remove the write-ahead log of a LevelDB folder that is not open, see above."""
    for name in files.listdir(path):
        if name.endswith(".log"):
            files.unlink(path / name)
    files.fsync_dir(path)
