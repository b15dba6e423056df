"""Makes the ledger index of a Java bookie from its entry log files, for each kind of storage.

Whatever an interrupted attempt has left is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from bkbox.errors import DiskFailedError
from bkbox.storage.files import Files
from bkbox.takeover import java_index_file, java_rocksdb
from bkbox.takeover.java_bookie import JavaBookie, Storage, tree
from bkbox.takeover.java_entry_log import EntryLogScan, parse_log_file_name
from bkbox.takeover.java_ledger import JavaLedger

Entry = tuple[int, int, int, int]
"""Ledger, entry, log id, position."""


def write_index(
    java: JavaBookie, files: Files, ledgers: Mapping[int, JavaLedger], home: Mapping[int, int]
) -> None:
    """Write the index of all entry log files. ``home``: the number of each ledger's directory. HostError, DiskError."""
    for number, directory in enumerate(java.index_dirs):
        folder = tree(Path(directory))
        ours = sorted((each, state) for each, state in ledgers.items() if home[each] == number)
        entries = _entries(files, tree(Path(java.ledger_dirs[number])))
        if java.storage is Storage.DB:
            java_rocksdb.write_ledgers(folder, ours)
            java_rocksdb.write_locations(folder, entries)
        else:
            _write_index_files(files, folder, dict(ours), entries, java.page_bytes)


def _entries(files: Files, folder: Path) -> Iterator[Entry]:
    names = ((parse_log_file_name(name), name) for name in files.listdir(folder))
    for log_id, name in sorted((log_id, name) for log_id, name in names if log_id is not None):
        path = folder / name
        with closing(files.open_read(path)) as file:
            for item in EntryLogScan(file, path):
                yield item.ledger, item.entry, log_id, item.position


def _write_index_files(
    files: Files,
    folder: Path,
    ledgers: Mapping[int, JavaLedger],
    entries: Iterator[Entry],
    page_bytes: int,
) -> None:
    for _, path in list(java_index_file.index_files(files, folder)):
        files.unlink(path)
    parts: dict[int, list[Entry]] = {}
    waiting = 0
    for entry in entries:
        parts.setdefault(entry[0], []).append(entry)
        waiting += 1
        if waiting == _ENTRIES:
            _put(folder, parts)
            parts, waiting = {}, 0
    _put(folder, parts)
    for ledger, state in ledgers.items():
        with closing(_IndexFile(java_index_file.index_file_path(folder, ledger))) as file:
            file.end(state, page_bytes)
    files.sync_file_system(folder)


_ENTRIES = 1_000_000
"""Locations that are held in memory until they are written to their files."""


class _IndexFile:
    """An index file that is written in any order. Raises DiskFailedError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _failing(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def write(self, at: int, data: bytes) -> None:
        with _failing(self._path):
            while data:
                written = os.pwrite(self._fd, data, at)
                at, data = at + written, data[written:]

    def put_locations(self, first: int, locations: list[bytes]) -> None:
        self.write(
            java_index_file.HEADER_BYTES + java_index_file.LOCATION.size * first,
            b"".join(locations),
        )

    def end(self, state: JavaLedger, page_bytes: int) -> None:
        """Write the header, and fill the last page: Java reads whole pages."""
        self.write(0, java_index_file.encode_header(state))
        with _failing(self._path):
            data = max(os.fstat(self._fd).st_size - java_index_file.HEADER_BYTES, 0)
            pages = -(-data // page_bytes)
            os.ftruncate(self._fd, java_index_file.HEADER_BYTES + pages * page_bytes)
            os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskFailedError(f"write to {path}: {error.strerror}") from error


def _put(folder: Path, parts: Mapping[int, list[Entry]]) -> None:
    for ledger, entries in parts.items():
        with closing(_IndexFile(java_index_file.index_file_path(folder, ledger))) as file:
            first, run = 0, list[bytes]()
            for _, entry, log_id, position in sorted(entries, key=lambda each: each[1]):
                if entry != first + len(run):
                    file.put_locations(first, run)
                    first, run = entry, []
                run.append(java_index_file.LOCATION.pack(log_id, position))
            file.put_locations(first, run)
