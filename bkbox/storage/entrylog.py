"""The entry log of a disk: all entries and ledger states in order of arrival; see segmentlog.py
for its rules.

``<disk>/entrylog/<segment id, ten digits>.log``. What else a disk says about ledgers is derived
from it.

Footers say what is in a segment without reading it again: each counts the entries and bytes per
ledger since the footer before it, and points to that one. One is written at every checkpoint and
before the seal, so counts survive a restart: what came after the last footer is counted again by
the replay, which reads it anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from uuid import UUID

from bkbox.errors import DamagedError
from bkbox.limits import FOOTER_LEDGERS_MAX, OPEN_SEGMENTS_MAX
from bkbox.storage.files import Files, ReadFile
from bkbox.storage.index import Change, Run
from bkbox.storage.records import FOOTER_ITEM, GAP_BODY, OFFSET, Kind, Location, Record
from bkbox.storage.segment import (
    ENTRY_LOG_MAGIC,
    RECORD_HEADER_BYTES,
    SegmentName,
    decode_record,
)
from bkbox.storage.segmentlog import SegmentLog, list_segments

ENTRY_LOG_DIR = "entrylog"


class Tally:
    """Entries and bytes per ledger."""

    def __init__(self) -> None:
        self.counts: dict[int, tuple[int, int]] = {}

    def add(self, changes: Iterable[Change]) -> None:
        """Count the entries of runs; other changes count nothing."""
        for change in changes:
            if isinstance(change, Run):
                entries, size = self.counts.get(change.ledger, (0, 0))
                self.counts[change.ledger] = (
                    entries + len(change.lengths),
                    size + sum(change.lengths),
                )


class EntryLog:
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
        self._log = SegmentLog(
            files, self._directory, ENTRY_LOG_MAGIC, uuid, segment_bytes_max, now_ms
        )
        self._tally = Tally()
        self._footer = 0
        self._open: OrderedDict[int, tuple[ReadFile, int]] = OrderedDict()

    # ---- where it stands ---------------------------------------------------------------

    @property
    def position(self) -> Location:
        """Segment and offset of the next append; length 0."""
        return Location(self._log.segment, self._log.offset, 0)

    @property
    def footer(self) -> int:
        """Offset of the last footer of the segment, 0 where it has none."""
        return self._footer

    @property
    def failed(self) -> str | None:
        return self._log.failed

    def segments(self) -> list[int]:
        """Ids of the segments that exist, ascending."""
        return list_segments(self._files, self._directory)

    def path_of(self, segment: int) -> Path:
        return self._log.path_of(segment)

    def name_of(self, segment: int) -> SegmentName:
        return self._log.name_of(segment)

    def require_healthy(self) -> None:
        """Raises DiskFailedError once a write or a sync has failed."""
        self._log.require_healthy()

    def continue_in(self, segment: int, size: int, footer: int, tally: Tally) -> None:
        """Append to an existing segment; ``tally`` counts what came after its last footer."""
        self._log.continue_in(segment, size)
        self._tally = tally
        self._footer = footer

    def start_at(self, segment: int) -> None:
        """The next append makes this segment."""
        self._log.start_at(segment)
        self._tally = Tally()
        self._footer = 0

    # ---- writing ---------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> list[Location]:
        """Write records, unsynced, into one segment. DiskFullError: nothing of them is there;
        DiskFailedError.
        """
        if self._log.is_full_for(records):
            self.seal()
        return self._log.append(records)

    def count(self, changes: Iterable[Change]) -> None:
        """Count, for the footer, entries that were appended to the present segment."""
        self._tally.add(changes)

    def write_footer(self) -> None:
        """Append a footer for what came since the last one, unsynced; nothing if nothing came."""
        counts = self._tally.counts
        ledgers = sorted(counts)
        for start in range(0, len(ledgers), FOOTER_LEDGERS_MAX):
            part = ledgers[start : start + FOOTER_LEDGERS_MAX]
            items = (FOOTER_ITEM.pack(ledger, *counts[ledger]) for ledger in part)
            body = OFFSET.pack(self._footer) + b"".join(items)
            [location] = self._log.append([Record(Kind.FOOTER, body)])
            self._footer = location.offset
            for ledger in part:
                del counts[ledger]

    def write_gaps(self, gaps: Iterable[tuple[int, int, bool]]) -> None:
        """Append a note of (start, end, lost) for parts of the segment that cannot be read."""
        self._log.append([Record(Kind.GAP, GAP_BODY.pack(*gap)) for gap in gaps])

    def seal(self) -> None:
        """Footer, seal and sync the segment; the next append makes the next one."""
        self._log.sync()
        self.write_footer()
        self._log.roll(self._footer)
        self._footer = 0

    def sync(self) -> None:
        """Make everything appended durable. DiskFailedError ends the log."""
        self._log.sync()

    # ---- reading ---------------------------------------------------------------

    def read(self, location: Location) -> Record:
        """The record at a location. DamagedError if it does not verify, DiskError if it cannot be
        read.
        """
        segment, offset, length = location
        file, seed = self._open_segment(segment)
        data = file.pread(offset, RECORD_HEADER_BYTES + length)
        record = decode_record(data, seed, segment, offset)
        if record is None or len(record.body) != length:
            raise DamagedError(
                f"{self.path_of(segment)}: no good record of {length} bytes at offset {offset}"
            )
        return record

    def _open_segment(self, segment: int) -> tuple[ReadFile, int]:
        if (found := self._open.get(segment)) is not None:
            self._open.move_to_end(segment)
            return found
        path = self.path_of(segment)
        if not self._files.exists(path):
            raise DamagedError(f"{path} is missing")
        while len(self._open) >= OPEN_SEGMENTS_MAX:
            _, (oldest, _) = self._open.popitem(last=False)
            oldest.close()
        self._open[segment] = found = self._files.open_read(path), self.name_of(segment).seed
        return found

    def read_footers(self, segment: int, last: int) -> dict[int, tuple[int, int]]:
        """Entries and bytes per ledger that the footers of a segment count, following them from
        the ``last`` one.
        """
        total: dict[int, tuple[int, int]] = {}
        while last:
            file, _ = self._open_segment(segment)
            length = int.from_bytes(file.pread(last, RECORD_HEADER_BYTES)[4:8], "big")
            kind, body = self.read(Location(segment, last, length))
            if kind is not Kind.FOOTER:
                raise DamagedError(f"{self.path_of(segment)}: no footer at offset {last}")
            for ledger, entries, size in FOOTER_ITEM.iter_unpack(body[OFFSET.size :]):
                before = total.get(ledger, (0, 0))
                total[ledger] = before[0] + entries, before[1] + size
            [last] = OFFSET.unpack_from(body)
        return total

    def close(self) -> None:
        """Close all files; syncs nothing."""
        self._log.close()
        for file, _ in self._open.values():
            file.close()
        self._open.clear()
