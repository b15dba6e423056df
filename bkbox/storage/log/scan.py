"""Reads back a segment after a start: its records, and which of its bad regions had been durable.

The meaning of a bad region depends on the SYNCED records and on how the last incarnation ended:

- A SYNCED record in a segment proves that everything before the offset that it names was durable, and that every
  segment before this one was, as a whole: a bad region there is *lost*.
- After a host crash, data not proven durable need not have reached the disk, in any order: a bad region there is
  merely *torn*, if its first record can be: some sector of it holds its previous content, filler, zeros (where the
  file had not been filled), or lies beyond the end of the file. Then the sync that it waited for never ended, and
  nothing that was promised after a sync is in it. A record that was written whole, and is wrong, is *lost*.
- After a process crash everything that write(2) took is there. Only a tail of the last segment is torn: one that ends
  inside a record, as a killed write leaves it, or one that begins with filler, as a start leaves it that was killed
  while it turned a torn tail into filler.
- A GAP record repeats the judgement of an earlier start.

A SEAL says that a segment was left for the next one. It proves nothing by itself, but if it is missing from a segment
of which everything was durable, the end of that segment is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bkbox.base.values import field, struct
from bkbox.errors import DamagedError
from bkbox.storage.files import Files
from bkbox.storage.log.records import GAP_BODY, OFFSET, SYNCED_BODY, Kind, is_sound
from bkbox.storage.log.segment import (
    SEGMENT_HEADER_BYTES,
    ScannedRecord,
    SegmentName,
    TornTail,
    Untouched,
    Unwritten,
    check_segment_header,
    scan,
)

OnRecord = Callable[[ScannedRecord], None]

EntryConsumer = Callable[[bytes, int, int, OnRecord], tuple[int, int]]
"""As segment.RecordConsumer, with a consumer for the records that are not kept."""


class Region(NamedTuple):
    """Bytes [start, end) of a segment without a good record; ``lost`` = they had been durable."""

    start: int
    end: int
    lost: bool


@struct
class SegmentFindings:
    """The result of a scan of one segment.

    ``format`` of the segment, 0 if its header is bad; ``size`` of the file without filler, ``file_bytes`` with it;
    ``bound`` up to which its SYNCED records prove it durable (0: there is none), and the other fields of the last of
    them: ``filled`` up to which the file was durably filled, ``synced_ms`` when (0 not known); ``footer`` = offset of
    the last footer seen (0 none); ``seal_end`` = end of the last SEAL; ``bad`` = (start, end) of bad regions, each
    with the part of its first record that may never have been written; ``tail`` = the last of them if only filler
    follows.
    """

    segment: int
    size: int
    file_bytes: int
    bound: int = 0
    filled: int = 0
    synced_ms: int = 0
    format: int = 0
    footer: int = 0
    seal_end: int = 0
    header_problem: str | None = None
    bad: dict[tuple[int, int], Untouched] = field(default_factory=dict)
    tail: TornTail | None = None
    gaps: dict[tuple[int, int], bool] = field(default_factory=dict)

    @property
    def is_sealed(self) -> bool:
        """True if it ends with a SEAL."""
        return self.seal_end == self.size

    @property
    def is_empty(self) -> bool:
        """True if it has no byte of a record: the crash came when it was created, or soon after."""
        return self.size <= SEGMENT_HEADER_BYTES

    @property
    def proves(self) -> bool:
        """True if it proves that all segments before it are durable."""
        return self.bound > 0

    def note(self, record: ScannedRecord) -> None:
        """Update the findings by a record about its segment."""
        if record.kind is Kind.SYNCED:
            self.bound = max(self.bound, OFFSET.unpack_from(record.body)[0])
            if len(record.body) == SYNCED_BODY.size:
                _, self.filled, self.synced_ms, _ = SYNCED_BODY.unpack(record.body)
        elif record.kind is Kind.FOOTER:
            self.footer = record.offset
        elif record.kind is Kind.SEAL:
            self.seal_end = record.end
        elif record.kind is Kind.GAP:
            start, end, lost = GAP_BODY.unpack(record.body)
            self.gaps[start, end] = bool(lost)

    def classify(
        self, *, is_last: bool, is_proven: bool, host_crash: bool, may_rot: bool = False
    ) -> list[Region]:
        """The bad regions, each with whether it had been durable. ``is_proven``: a later record proves all of this
        segment durable. ``may_rot``: data not proven durable may be rotten, because all of it is somewhere else as
        well.
        """
        regions = []
        for (start, end), untouched in self.bad.items():
            lost = self.gaps.get((start, end))
            if lost is None and host_crash:
                torn = untouched.filler or untouched.zeros_at >= self.filled
                lost = is_proven or start < self.bound or not (torn or may_rot)
            elif lost is None:
                cut = self.tail is not None and self.tail.start == start and untouched.filler
                lost = not (is_last and cut)
            regions.append(Region(start, end, lost))
        return regions


def distrust_memory(files: Files, path: Path) -> None:
    """Have the next reads of a segment come from the disk. After a failed sync the system may treat pages as written
    that it could not write: later syncs would not write them either, and the next host crash loses them. DiskError.
    """
    file = files.open_read(path)
    file.release(0, 0)
    file.close()


def read_segment(
    files: Files,
    path: Path,
    name: SegmentName,
    start: int,
    on_record: OnRecord,
    consume: EntryConsumer | None = None,
) -> SegmentFindings:
    """Scan a segment from ``start``, and hand on its good records in order, but for those that ``consume`` keeps.

    These do not get into the findings. Raises FormatVersionError for a newer format, DiskError if the file cannot be
    read, DamagedError for a good record that cannot have been written. A wrong header is noted, and does not keep the
    records from being read: they do not depend on it.
    """

    def note(record: ScannedRecord) -> None:
        if not is_sound(record.kind, record.body):
            raise DamagedError(
                f"{path}: the record at {record.offset} is of kind {record.kind.name} and cannot be"
            )
        findings.note(record)
        on_record(record)

    def consume_noting(chunk: bytes, base: int, at: int) -> tuple[int, int]:
        assert consume is not None
        return consume(chunk, base, at, note)

    file = files.open_read(path)
    try:
        size = file.size()
        findings = SegmentFindings(name.segment, size, size)
        try:
            header = file.pread(0, SEGMENT_HEADER_BYTES)
            findings.format = check_segment_header(header, name, path)
        except DamagedError as error:
            findings.header_problem = str(error)
        for item in scan(file, name, start, consume_noting if consume is not None else None):
            if isinstance(item, ScannedRecord):
                note(item)
            elif isinstance(item, Unwritten):
                findings.size = item.start
            else:
                findings.bad[item.start, item.end] = item.untouched
                findings.tail = item if isinstance(item, TornTail) else None
        return findings
    finally:
        file.close()
