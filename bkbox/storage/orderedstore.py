"""An ordered map of bytes to bytes that survives a crash: LevelDB, and the same in memory for
simulator and tests.

What the index needs of it, and no more:

- ``write`` is atomic, and survives the process once it has returned. Only what was written before
  the last ``flush`` survives the host.
- LevelDB flushes its memory table into a synced table when an empty range is compacted; that call
  swallows its errors, so an empty synced write follows, which LevelDB refuses after a failure in
  the background.
- After a host crash the write-ahead log of LevelDB may hold some writes without those before them.
  ``discard_unsynced`` removes it: the tables then hold a prefix of all writes, at least up to the
  last flush. The entry log's replay, which starts at that flush, does the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import plyvel

from bkbox.errors import DamagedError, DiskError, DiskFailedError, DiskFullError
from bkbox.storage.files import Files

INDEX_DIR = "index"
_WRITE_BUFFER_BYTES = 8 << 20
_CACHE_BYTES = 8 << 20
_OPEN_FILES = 256
_FLUSHED = b"!flushed"
"""Sorts before all keys of the index."""


class OrderedStore(Protocol):
    """An ordered, crash-safe map; see above."""

    def get(self, key: bytes) -> bytes | None: ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Put values, delete where the value is None; all or nothing."""

    def iterate(
        self, start: bytes, stop: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start <= key < stop as they were at the call, in key order."""

    def flush(self) -> None:
        """Make everything written durable."""

    def close(self) -> None: ...


class MemoryStore:
    """``OrderedStore`` in memory."""

    def __init__(self) -> None:
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
        """Nothing: memory is as durable as it gets."""

    def close(self) -> None:
        """Nothing to close."""


class LevelStore:
    """``OrderedStore`` in a LevelDB folder."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open the folder, or make it. DamagedError where it is missing or broken, DiskError
        otherwise.
        """
        self._path = path
        with self._errors(DiskError):
            self._db: Any = plyvel.DB(
                str(path),
                create_if_missing=create,
                error_if_exists=create,
                paranoid_checks=True,
                bloom_filter_bits=10,
                write_buffer_size=_WRITE_BUFFER_BYTES,
                lru_cache_size=_CACHE_BYTES,
                max_open_files=_OPEN_FILES,
            )

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise self._error_of(error, DiskError) from error
        return value

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        batch = self._db.write_batch()
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
        # plyvel misses a pair whose key is the lower bound if it is the only one, in reverse
        low = None if reverse else start
        with (
            self._errors(DiskError),
            self._db.iterator(
                start=low, stop=stop, reverse=reverse, verify_checksums=True
            ) as pairs,
        ):
            for pair in pairs:
                if pair[0] < start:
                    return
                yield pair

    def flush(self) -> None:
        with self._errors(DiskFailedError):
            self._db.compact_range(start=_FLUSHED, stop=_FLUSHED)
            self._db.put(_FLUSHED, b"", sync=True)

    def close(self) -> None:
        with self._errors(DiskError):
            self._db.close()

    @contextmanager
    def _errors(self, kind: type[DiskError]) -> Iterator[None]:
        try:
            yield
        except plyvel.Error as error:
            raise self._error_of(error, kind) from error

    def _error_of(self, error: Exception, kind: type[DiskError]) -> DiskError:
        text = str(error)
        # "Invalid argument" is what LevelDB says about a table that is shorter than it should be.
        missing = "does not exist" in text or "Invalid argument" in text
        if isinstance(error, plyvel.CorruptionError) or missing:
            return DamagedError(f"{self._path}: {error}; {REBUILD_HINT}")
        full = "No space left" in text or "quota" in text
        return (DiskFullError if full else kind)(f"{self._path}: {error}")


REBUILD_HINT = "rebuild the index from the entry log: bkbox index rebuild --config FILE"


def discard_unsynced(files: Files, path: Path) -> None:
    """Remove the write-ahead log of a LevelDB folder that is not open, see above."""
    for name in files.listdir(path):
        if name.endswith(".log"):
            files.unlink(path / name)
    files.fsync_dir(path)
