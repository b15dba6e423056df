"""A disk of bkbox's while it is converted: opened as after a lost host, closed as after a clean stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from bkbox.config.schema import Config
from bkbox.errors import IndexDamagedError
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.rebuild import rebuild_index
from bkbox.storage.files import Files
from bkbox.storage.log.records import (
    AckAfter,
    LedgerRecord,
    Record,
    entry_record,
    lac_of,
    lac_record,
    ledger_record,
)

_BATCH_BYTES = 1 << 20
_BATCH_RECORDS = 4096
_STATES = 1024
"""States of ledgers that are written with one sync."""


def open_disk(
    files: Files,
    disk: Path,
    config: Config,
    now_ms: Callable[[], int],
    *,
    journal: Path | None = None,
    is_clean: bool = False,
) -> tuple[DiskStore, tuple[str, ...]]:
    """Open a prepared disk that the caller has locked, and name what it has lost of durable data, as text. A broken
    index is rebuilt. ``is_clean``: the bookie was stopped cleanly. BootError, DamagedError, DiskError.
    """
    try:
        return _open(files, disk, config, now_ms, journal, is_clean=is_clean)
    except IndexDamagedError:
        rebuild_index(files, disk, keep_going=True, progress=lambda _done, _total: None)
    return _open(files, disk, config, now_ms, journal, is_clean=is_clean)


def _open(
    files: Files,
    disk: Path,
    config: Config,
    now_ms: Callable[[], int],
    journal: Path | None,
    *,
    is_clean: bool,
) -> tuple[DiskStore, tuple[str, ...]]:
    store = DiskStore.open(
        files,
        disk,
        ack_after=AckAfter.SYNC,
        journal_dir=journal,
        segment_bytes_max=config.segment_bytes_max,
        checkpoint_bytes=config.checkpoint_bytes,
        now_ms=now_ms,
    )
    try:
        report = store.replay(host_crash=not is_clean, is_clean=is_clean)
    except BaseException:
        store.abandon()
        raise
    return store, report.damaged


class DiskWriter:
    """Writes entries and states of ledgers to a disk in large pieces."""

    def __init__(self, store: DiskStore) -> None:
        self.store = store
        self._batch: list[Record] = []
        self._size = 0

    def add(self, body: bytes) -> None:
        """Append an entry as on the wire; durable after ``sync``. DiskFullError, DiskFailedError."""
        self._batch.append(entry_record(body))
        self._size += len(body)
        if self._size >= _BATCH_BYTES or len(self._batch) >= _BATCH_RECORDS:
            self._append()

    def _append(self) -> None:
        if not self._batch:
            return
        self.store.append(self._batch)
        self.store.index_appended()
        self._batch, self._size = [], 0
        if self.store.checkpoint_due or self.store.is_backpressured:
            self.store.checkpoint()

    def sync(self) -> None:
        """Make everything durable."""
        self._append()
        self.store.sync()

    def set_states(self, states: Iterable[tuple[int, LedgerRecord, bytes | None]]) -> None:
        """Make the disk know ledgers, durably: id, state, explicit LAC packet or None."""
        records: list[Record] = []
        for ledger, state, packet in states:
            if self.store.ledger_state(ledger) != state:
                records.append(ledger_record(ledger, state))
            known = self.store.explicit_lac(ledger)
            if packet is not None and (known is None or lac_of(known) < lac_of(packet)):
                records.append(lac_record(packet))
            if len(records) >= _STATES:
                self._write(records)
                records = []
        self._write(records)

    def _write(self, records: list[Record]) -> None:
        if records:
            self._append()
            self.store.write(records, durable=True)
