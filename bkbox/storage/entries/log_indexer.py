"""Reads a log into the index, segment by segment: the common part of replay and rebuild."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bkbox.storage.entries.log_scan import LogScan
from bkbox.storage.files import Files
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.log.ledger_counts import LedgerCounts
from bkbox.storage.log.records import STATE_KINDS, Kind, Record, decode_ledger_id
from bkbox.storage.log.scan import OnRecord, SegmentFindings, read_segment
from bkbox.storage.log.segment import ScannedRecord, SegmentName


class LogIndexer:
    """Reads segments into an index, and counts its reads."""

    def __init__(self, files: Files, index: LedgerIndex, before_flush: Callable[[], None]) -> None:
        """``before_flush``: called before a full index stores the records it was given so far."""
        self._files = files
        self._index = index
        self._before_flush = before_flush
        self.records = 0
        self.entries = 0
        self.counts = LedgerCounts()
        """The records of the last segment after its last footer."""

    def read(self, path: Path, name: SegmentName, start: int) -> SegmentFindings:
        """Index one segment from ``start`` on. Raises FormatVersionError, DiskError; DamagedError for a good record
        that cannot have been written by bkbox.
        """
        self.counts = LedgerCounts()
        scan = LogScan(name.seed, name.segment)

        def consume(chunk: bytes, base: int, at: int, note: OnRecord) -> tuple[int, int]:
            def other(offset: int, kind: int, body: bytes) -> None:
                note(ScannedRecord(offset, Kind(kind), body))

            reached = scan.walk(chunk, base, at, self._index.finder.active, self.counts, other)
            if self._index.is_full:
                self._before_flush()
                self._index.flush()
            return reached, scan.needed_bytes

        def on_record(record: ScannedRecord) -> None:
            if record.kind is Kind.FOOTER:
                self.counts.clear()  # the footer counts the records before it
            elif record.kind in STATE_KINDS:
                self.counts.count(decode_ledger_id(record.body), 0, 0)
            self._index.apply(Record(record.kind, record.body))
            self.records += 1

        findings = read_segment(self._files, path, name, start, on_record, consume)
        if scan.bound:
            findings.bound = max(findings.bound, scan.bound)
            findings.filled, findings.synced_ms = scan.filled, scan.synced_ms
        self.records += scan.records
        self.entries += scan.entries
        return findings
