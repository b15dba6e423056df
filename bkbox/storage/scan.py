"""Reading back a segment after a start: its records, and which of its bad regions had been durable.

What a bad region means depends on what the segment's SYNCED records prove and on how the last run
ended:

- A segment that has a successor was synced as a whole before that was made: a bad region in it is
  *lost*.
- After a host crash, what lies at or after the proven bound of the last segment need not have
  reached the disk, in any order: a bad region there is merely *torn*. Nothing that was promised
  after a sync was in it.
- After a process crash all that write(2) took is there: only a tail that ends inside a record, as
  a killed write leaves it, is torn.
- A GAP record repeats the judgement of an earlier start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bkbox.errors import DamagedError
from bkbox.storage.files import Files
from bkbox.storage.records import GAP_BODY, OFFSET, Kind
from bkbox.storage.segment import (
    SEGMENT_HEADER_BYTES,
    ScannedRecord,
    SegmentName,
    TornTail,
    check_segment_header,
    scan,
)

_BATCH_BYTES = 4 << 20
_BATCH_RECORDS = 8_192


class Region(NamedTuple):
    """Bytes [start, end) of a segment without a good record; ``lost`` = they had been durable."""

    start: int
    end: int
    lost: bool


@dataclass(slots=True)
class SegmentFindings:
    """What a scan of one segment found.

    ``size`` of the file, ``bound`` up to which its SYNCED records prove it durable, ``footer`` =
    offset of the last footer seen (0 none), ``bad`` = (start, end) of bad regions, ``tail`` = the
    last of them if it reaches the end.
    """

    segment: int
    size: int
    bound: int = SEGMENT_HEADER_BYTES
    footer: int = 0
    sealed: bool = False
    header_problem: str | None = None
    bad: list[tuple[int, int]] = field(default_factory=list)
    tail: TornTail | None = None
    gaps: dict[tuple[int, int], bool] = field(default_factory=dict)

    @property
    def is_stillborn(self) -> bool:
        """Whether the crash came while the segment was being made, so that no record was ever in
        it.
        """
        return self.header_problem is not None and self.size <= SEGMENT_HEADER_BYTES

    def note(self, record: ScannedRecord) -> None:
        """Take in what a record says about its segment."""
        self.sealed = record.kind is Kind.SEAL
        if record.kind is Kind.SYNCED:
            self.bound = max(self.bound, OFFSET.unpack(record.body)[0])
        elif record.kind is Kind.FOOTER:
            self.footer = record.offset
        elif record.kind is Kind.GAP:
            start, end, lost = GAP_BODY.unpack(record.body)
            self.gaps[start, end] = bool(lost)

    def judge(self, *, is_last: bool, host_crash: bool) -> list[Region]:
        """The bad regions, each with whether it had been durable."""
        regions = []
        for start, end in self.bad:
            lost = self.gaps.get((start, end))
            if lost is None:
                cut = self.tail is not None and self.tail.short and self.tail.start == start
                unproven = host_crash and start >= self.bound
                lost = not (is_last and (cut or unproven))
            regions.append(Region(start, end, lost))
        return regions


def read_segment(
    files: Files,
    path: Path,
    name: SegmentName,
    start: int,
    on_records: Callable[[list[ScannedRecord]], None],
) -> SegmentFindings:
    """Scan a segment from ``start``, hand its good records on in order, in batches that end at
    each footer.

    Raises FormatVersionError for a newer format, DiskError where the file cannot be read. A wrong
    header is noted, and does not keep the records from being read: they do not depend on it.
    """
    file = files.open_read(path)
    try:
        findings = SegmentFindings(name.segment, file.size())
        try:
            check_segment_header(file.pread(0, SEGMENT_HEADER_BYTES), name, path)
        except DamagedError as error:
            findings.header_problem = str(error)
        batch: list[ScannedRecord] = []
        batch_bytes = 0
        for item in scan(file, name, start):
            if not isinstance(item, ScannedRecord):
                findings.bad.append((item.start, item.end))
                findings.tail = item if isinstance(item, TornTail) else None
                findings.sealed = False
                continue
            findings.note(item)
            batch.append(item)
            batch_bytes += len(item.body)
            full = batch_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_RECORDS
            if full or item.kind is Kind.FOOTER:
                on_records(batch)
                batch, batch_bytes = [], 0
        if batch:
            on_records(batch)
        return findings
    finally:
        file.close()
