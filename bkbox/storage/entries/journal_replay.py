"""Puts journaled records into the entry log again, after a host crash."""

from __future__ import annotations

from bkbox.storage.entries.entry_log import EntryLog
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.log.records import STATE_KINDS, Kind, Record
from bkbox.storage.log.segment import ScannedRecord
from bkbox.storage.log.segmented_log import record_bytes

_REAPPLY_BYTES = 4 << 20
_REAPPLY_RECORDS = 8_192


class JournalReplay:
    """Appends journaled records to the entry log again, and indexes them."""

    def __init__(self, log: EntryLog, index: LedgerIndex) -> None:
        self._log = log
        self._index = index
        self._batch: list[Record] = []
        self._bytes = 0
        self.records = 0

    def __call__(self, scanned: ScannedRecord) -> None:
        if scanned.kind is not Kind.ENTRY and scanned.kind not in STATE_KINDS:
            return
        alone = scanned.kind is Kind.FORGET  # which voids only the records before it
        if alone or self._bytes >= _REAPPLY_BYTES or len(self._batch) >= _REAPPLY_RECORDS:
            self.flush()
        self._batch.append(Record(scanned.kind, scanned.body))
        self._bytes += len(scanned.body)
        if alone:
            self.flush()

    def flush(self) -> None:
        """Append the buffered records."""
        if self._batch:
            locations = self._log.append(self._batch, record_bytes(self._batch))
            self._log.index(self._batch, locations, self._index.finder.active)
            for record in self._batch:
                self._index.apply(record)
            self.records += len(self._batch)
        self._batch, self._bytes = [], 0
        if self._index.is_full:
            self._log.sync()
            self._index.flush()
