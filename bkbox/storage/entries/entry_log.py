"""The entry log of a disk: all entries and ledger states in order of arrival; see segmented_log.py for its rules.

``<disk>/entrylog/<segment id, ten digits>.log``. Everything else that a disk knows about ledgers is derived from it.

Footers summarize a segment, so that it need not be read again. Each counts the entries and bytes per ledger since the
footer before it, and points to that one. They name every ledger that the segment has any record about. A footer is
written at every checkpoint and before the seal, so counts survive a restart: the replay reads what came after the last
footer anyway, and counts it again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol
from uuid import UUID

from bkbox.base.limits import FOOTER_LEDGERS_MAX
from bkbox.errors import DamagedError
from bkbox.storage.entries.entry_reader import Range
from bkbox.storage.files import Files
from bkbox.storage.index.memtable import Memtable
from bkbox.storage.log.durable_log import DurableLog
from bkbox.storage.log.ledger_counts import LedgerCounts
from bkbox.storage.log.log_reader import LogReader
from bkbox.storage.log.records import (
    ENTRY_IDS,
    FOOTER_ITEM,
    OFFSET,
    STATE_KINDS,
    Kind,
    Location,
    Record,
    decode_ledger_id,
)
from bkbox.storage.log.removed_segments import RemovedSegments, read_retired, write_retired
from bkbox.storage.log.segment import (
    ENTRY_LOG_DIR,
    ENTRY_LOG_MAGIC,
    RECORD_HEADER_BYTES,
    Damage,
    ScannedRecord,
    SegmentName,
    TornTail,
    Unwritten,
    scan,
)
from bkbox.storage.log.segmented_log import (
    RecordBatch,
    SegmentLog,
    list_segments,
    record_bytes,
)

log = logging.getLogger(__name__)


class EntryBatch(RecordBatch, Protocol):
    """Entries that are appended together (bookie/add_group.py)."""

    def index(self, memtable: Memtable, counts: LedgerCounts, segment: int, /) -> None:
        """Put the entries packed last, which are in ``segment`` now, into the index, and count them for the footer."""


Part = Record | EntryBatch
"""The unit of an append: a record, or a batch of entries."""


def _retired(files: Files, disk: Path) -> RemovedSegments:
    try:
        return read_retired(files, disk)
    except DamagedError as error:
        log.warning("%s: segments that are missing may be taken for lost", error)
        return RemovedSegments()


class EntryLog(DurableLog):
    """Appends to and reads from the segments under ``<disk>/entrylog``."""

    def __init__(
        self,
        files: Files,
        disk: Path,
        uuid: UUID,
        segment_bytes_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._directory = disk / ENTRY_LOG_DIR
        super().__init__(
            SegmentLog(files, self._directory, ENTRY_LOG_MAGIC, uuid, segment_bytes_max, now_ms)
        )
        self._disk = disk
        self._counts = LedgerCounts()
        self._footer = 0
        self.retired = _retired(files, disk)
        self.reader = LogReader(files, self._log.path_of, self._log.name_of)
        self._awaiting = LogReader(files, self._log.path_of, self._log.name_of)
        self._await_lock = Lock()
        self._left_open: deque[int] = deque()

    # ---- position ---------------------------------------------------------------

    @property
    def position(self) -> Location:
        """Segment and offset of the next append; length 0."""
        return Location(self._log.segment, self._log.offset, 0)

    @property
    def footer(self) -> int:
        """Offset of the last footer of the segment, 0 if it has none."""
        return self._footer

    def segments(self) -> list[int]:
        """Ids of the segments that exist, ascending."""
        found = list_segments(self._files, self._directory)
        return [segment for segment in found if segment not in self.retired]

    def path_of(self, segment: int) -> Path:
        return self._log.path_of(segment)

    def name_of(self, segment: int) -> SegmentName:
        return self._log.name_of(segment)

    def require_healthy(self) -> None:
        """Raises DiskFailedError once a write or a sync has failed."""
        self._log.require_healthy()

    def continue_in(
        self, segment: int, end: int, torn_end: int, footer: int, counts: LedgerCounts
    ) -> None:
        """Append to an existing segment, see SegmentLog; ``counts`` counts the records after its last footer."""
        self._log.continue_in(segment, end, torn_end)
        self._counts = counts
        self._footer = footer

    def start_at(self, segment: int) -> None:
        """Set the segment that the next append creates."""
        self._log.start_at(segment)
        self._counts = LedgerCounts()
        self._footer = 0

    # ---- writing ---------------------------------------------------------------

    def append(self, parts: Sequence[Part], size: int) -> list[Location]:
        """Write parts, of ``size`` bytes, unsynced, into one segment. DiskFullError: none of them was written;
        DiskFailedError.
        """
        if self._log.is_full_for(size):
            self.seal()
        return self._log.append(parts, size)

    def index(self, parts: Sequence[Part], locations: Sequence[Location], recent: Memtable) -> None:
        """Put the entries of the last append into the index, and count them for the footer."""
        for part, (segment, offset, length) in zip(parts, locations, strict=True):
            if not isinstance(part, Record):
                part.index(recent, self._counts, segment)
            elif part.kind is Kind.ENTRY:
                ledger, entry = ENTRY_IDS.unpack_from(part.body)
                recent.put(ledger, entry, segment, offset, length)
                self._counts.count(ledger, 1, length)
            elif part.kind in STATE_KINDS:
                self._counts.count(decode_ledger_id(part.body), 0, 0)

    def write_footer(self) -> None:
        """Append, unsynced, a footer for the records since the last one, if there are any. DiskFullError: no footer was
        written.
        """
        items = [FOOTER_ITEM.pack(*item) for item in self._counts.items()]
        for start in range(0, len(items), FOOTER_LEDGERS_MAX):
            part = items[start : start + FOOTER_LEDGERS_MAX]
            body = OFFSET.pack(self._footer) + b"".join(part)
            footer = [Record(Kind.FOOTER, body)]
            [location] = self._log.append(footer, record_bytes(footer))
            self._footer = location.offset
        self._counts.clear()

    def seal(self) -> None:
        """Write a footer and seal the segment; the next append creates the next one."""
        self.write_footer()
        self._log.roll(self._footer)
        self._footer = 0

    def counts(self) -> tuple[int, dict[int, int]]:
        """Records per ledger since the last footer, and the offset of that footer, for comparison between calls."""
        return self._footer, {ledger: entries for ledger, entries, _ in self._counts.items()}

    def begin_writeback(self, size: int) -> Callable[[], None] | None:
        """See SegmentLog."""
        return self._log.begin_writeback(size)

    def sync(self) -> None:
        """Make everything appended durable. DiskFailedError ends the log."""
        self._log.sync()

    # ---- reading ---------------------------------------------------------------

    def read(self, location: Location) -> Record:
        """The record at a location. DamagedError if it does not verify, DiskError if it cannot be read."""
        return self.reader.read(location)

    def await_read(self, ranges: Sequence[Range]) -> None:
        """Wait until these bytes are in memory, or cannot be read. On any thread, one call at a time."""
        with self._await_lock:
            for segment, offset, size in ranges:
                self._awaiting.await_read(segment, offset, size)
            while self._left_open:
                self._awaiting.leave(self._left_open.popleft())

    def scan(
        self, segment: int, start: int
    ) -> Generator[ScannedRecord | Damage | TornTail | Unwritten, None, None]:
        """The contents of a segment from ``start`` on, where a record begins; the caller closes it. DiskError."""
        file = self._files.open_read(self.path_of(segment))
        try:
            yield from scan(file, self.name_of(segment), start)
        finally:
            file.close()

    def read_footers(self, segment: int, last: int) -> dict[int, tuple[int, int]]:
        """Entries and bytes per ledger that a segment's footers count, following them from the ``last`` one back."""
        total: dict[int, tuple[int, int]] = {}
        while last:
            length = self.reader.length_at(segment, last)
            kind, body = self.read(Location(segment, last, length))
            if kind is not Kind.FOOTER:
                raise DamagedError(f"{self.path_of(segment)}: no footer at offset {last}")
            for ledger, entries, size in FOOTER_ITEM.iter_unpack(body[OFFSET.size :]):
                before = total.get(ledger, (0, 0))
                total[ledger] = before[0] + entries, before[1] + size
            [last] = OFFSET.unpack_from(body)
        return total

    def size_of(self, segment: int) -> int:
        """Bytes of a segment's file. DiskError."""
        return self.reader.size_of(segment)

    def ledgers_of(self, segment: int) -> dict[int, tuple[int, int]] | None:
        """Entries and bytes of each ledger that a sealed segment has records about; None if its footers cannot be read.
        DiskError.
        """
        seal_bytes = RECORD_HEADER_BYTES + OFFSET.size
        try:
            at = max(0, self.reader.size_of(segment) - seal_bytes)
            seal = Location(segment, at, OFFSET.size)
            kind, body = self.read(seal)
            return (
                None
                if kind is not Kind.SEAL
                else self.read_footers(segment, OFFSET.unpack(body)[0])
            )
        except DamagedError:
            return None

    def ledgers_of_present(self) -> dict[int, tuple[int, int]]:
        """Like ``ledgers_of``, for the segment being written. DamagedError if its footers cannot be read, DiskError."""
        total = self.read_footers(self._log.segment, self._footer)
        for ledger, entries, size in self._counts.items():
            before = total.get(ledger, (0, 0))
            total[ledger] = before[0] + entries, before[1] + size
        return total

    # ---- removing ---------------------------------------------------------------

    def clear_retired(self) -> None:
        """Remove the remains of segments whose removal a crash interrupted. DiskError."""
        left = [
            each for each in list_segments(self._files, self._directory) if each in self.retired
        ]
        for segment in left:
            self._files.unlink(self.path_of(segment))
        if left:
            self._files.fsync_dir(self._directory)

    def retire(self, segment: int) -> None:
        """Give up a segment without live records, durably; its file may be removed then. DiskError."""
        retired = self.retired.with_segment(segment)
        write_retired(self._files, self._disk, retired)
        self.retired = retired
        self.reader.leave(segment)
        self._left_open.append(segment)
        if self._await_lock.acquire(
            blocking=False
        ):  # otherwise the thread that uses it closes the file
            self._awaiting.leave(self._left_open.pop())
            self._await_lock.release()

    def close(self) -> None:
        """Close all files, without a sync."""
        self._log.close()
        self.reader.close()
        self._awaiting.close()
