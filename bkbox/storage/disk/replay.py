"""Brings the index up to the entry log after a start, and finds the losses of a crash.

From the checkpoint on, every good record is put into the index again, in order; doing it twice changes nothing. Bad
regions are judged by scan.py, once all segments have been read. Then every segment that is not known to be durable is
made durable, in order, because later records will claim it:

- the last segment goes on where its torn tail begins, which becomes filler again (elsewhere it is cut off). The
  filled part stays filled, and a later start can tell an interrupted write from rot;
- any other bad region stays where it is, because good records follow it or because it had been durable: the segment
  notes it in a GAP record. Good data is never cut;
- a segment without a seal that has a successor, or that has a GAP, is sealed.

Segments without a single record, at the end of the log, were created ahead of their use and are removed.

A log that was cut off at a record looks whole. So its end is compared with the witnesses of a longer log: the tail
mark (tail.py), the stamp of the index, and, if there is no dirty marker, the checkpoint, behind which a clean stop
leaves nothing.

Entries of the stored index whose records are gone (in a bad region, past the end, in a missing segment) are removed
from it, so that repair sees that they are missing. That is only right if the ledgers then go to limbo: it happens
together with a non-empty ``lost`` or a ``dropped`` other than 0, which the caller has to act on.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.values import field, frozen_struct, struct
from bkbox.storage.disk.checkpoint import Checkpoint
from bkbox.storage.entries.entry_log import EntryLog
from bkbox.storage.entries.log_indexer import LogIndexer
from bkbox.storage.files import Files
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.stored_index import Stamp
from bkbox.storage.log.ledger_counts import LedgerCounts
from bkbox.storage.log.scan import Region, SegmentFindings, distrust_memory
from bkbox.storage.log.segment import FORMAT, SEGMENT_HEADER_BYTES
from bkbox.storage.log.segment_repair import cut_segment, finish_segment, sync_segment
from bkbox.storage.log.tail import TailMark

_ENDLESS = 1 << 63

UNRESOLVED_LOSS = "what an earlier start found missing has not been dealt with"
"""In ReplayReport.damaged while an untrusted replay waits for its ``checkpoint``."""


@frozen_struct
class Witnesses:
    """Witnesses of the log's length: the tail mark, the stamp of the index, others (segment and offset), and whether
    the last incarnation stopped clean.
    """

    tail: TailMark | None = None
    stamp: Stamp = Stamp()
    elsewhere: tuple[int, int] = (0, 0)
    is_clean: bool = False


NO_WITNESSES = Witnesses()


@struct
class LogReplay:
    """The result of a log's replay: what it read, cut, missed. ``lost``: data that had been durable and cannot be read,
    as text; ``synced_ms``: everything appended before was durable then, ms since 1970 (0: not known).
    """

    records: int = 0
    entries: int = 0
    bytes_read: int = 0
    bytes_cut: int = 0
    dropped: int = 0
    synced_ms: int = 0
    lost: list[str] = field(default_factory=list)


@frozen_struct
class ReplayReport:
    """The result of a disk's replay.

    ``damaged``: data that had been durable and cannot be read, as text. ``dropped_entries``: entries that the index
    knew and the log does not have. ``intact``: nothing that had been durable is missing. ``trusted``: nothing that
    was acknowledged can be missing, if all incarnations since the last clean moment had the present ``ack_after``.
    ``synced_ms``: everything acknowledged before this time was durable, ms since 1970; 0 if not known.
    """

    records: int
    entries: int
    bytes_read: int
    bytes_cut: int
    journal_records: int
    dropped_entries: int
    damaged: tuple[str, ...]
    trusted: bool
    intact: bool
    synced_ms: int


@struct
class _Segment:
    """One segment that was read: its last footer, the records after it, and its bad regions."""

    findings: SegmentFindings
    footer: int
    counts: LedgerCounts = field(default_factory=LedgerCounts)
    regions: list[Region] = field(default_factory=list)
    is_short: bool = False


def _written(segment: int, offset: int) -> int:
    """The last segment with a record, if the log ends at this location."""
    return segment if offset > SEGMENT_HEADER_BYTES else segment - 1


class LogReplayer:
    """One replay of an entry log; ``run`` leaves the log ready for appends, and everything before them durable."""

    def __init__(
        self,
        files: Files,
        log: EntryLog,
        index: LedgerIndex,
        *,
        host_crash: bool,
        is_journaled: bool = False,
        witnesses: Witnesses = NO_WITNESSES,
    ) -> None:
        """``is_journaled``: everything that the log does not prove durable is in a journal that is replayed next."""
        self._files = files
        self._log = log
        self._index = index
        self._host_crash = host_crash
        self._is_journaled = is_journaled
        self._witnesses = witnesses
        self._is_cut_short = False
        self._indexer = LogIndexer(files, index, self._sync_what_was_read)
        self._found = LogReplay()
        self._read: list[_Segment] = []
        self._first = 1
        self._start = SEGMENT_HEADER_BYTES
        self._existing: set[int] = set()
        self._missing: set[int] = set()
        self._lost_regions: dict[int, list[tuple[int, int]]] = {}

    def run(
        self, checkpoint: Checkpoint | None, before_change: Callable[[LogReplay], None]
    ) -> LogReplay:
        """Replay from the checkpoint, or from the first segment without one.

        ``before_change`` is called with the findings before anything is changed in the log or removed from the index
        so that a later start could not find it missing any more. DiskError, DiskFullError.
        """
        self._log.clear_retired()
        retired = self._log.retired
        existing = self._log.segments()
        self._first = min(existing, default=1)
        if checkpoint is not None:
            self._first, self._start = checkpoint.segment, checkpoint.offset
        has_records = self._start > SEGMENT_HEADER_BYTES
        while existing and self._is_unused(existing[-1]):
            self._remove(existing.pop())
        self._existing = set(existing)
        newest = existing[-1] if existing else 0
        if has_records and newest < self._first:
            self._note_missing(self._first)
        for number in range(self._first, newest + 1):
            if number in self._existing:
                self._read_segment(number, 0 if checkpoint is None else checkpoint.footer)
            elif number not in retired:
                self._note_missing(number)
        self._found.records, self._found.entries = self._indexer.records, self._indexer.entries
        for place, segment in enumerate(self._read):
            self._classify(segment, self._read[place + 1 :])
        self._compare_witnesses(checkpoint)
        if self._found.lost:
            before_change(self._found)
        goes_on = False
        for segment in self._read:
            goes_on = self._repair(segment, is_last=segment is self._read[-1])
        if not goes_on:
            tail = self._witnesses.tail
            seen = _written(*self._witnesses.elsewhere)
            if tail is not None:
                seen = max(seen, _written(tail.segment, tail.offset))
            self._log.start_at(max(newest, self._first + has_records - 1, retired.last, seen) + 1)
        if self._host_crash or self._found.lost:
            removals, self._found.dropped = self._index.find_lost(self._is_lost)
            if removals:
                before_change(self._found)
                self._index.drop(removals)
        return self._found

    def _is_unused(self, number: int) -> bool:
        """True if a segment at the end of the log has no record, and none that the checkpoint knows of."""
        if number < self._first or (number == self._first and self._start > SEGMENT_HEADER_BYTES):
            return False
        file = self._files.open_read(self._log.path_of(number))
        try:
            return file.size() <= SEGMENT_HEADER_BYTES
        finally:
            file.close()

    def _remove(self, number: int) -> None:
        path = self._log.path_of(number)
        self._files.unlink(path)
        self._files.fsync_dir(path.parent)

    def _note_missing(self, number: int) -> None:
        self._missing.add(number)
        self._found.lost.append(f"{self._log.path_of(number)} is missing")

    # ---- reading ---------------------------------------------------------------

    def _read_segment(self, number: int, footer: int) -> None:
        """Read one segment into the index; ``footer`` is the last one before the checkpoint."""
        at_checkpoint = number == self._first
        start = self._start if at_checkpoint else SEGMENT_HEADER_BYTES
        segment = _Segment(SegmentFindings(number, start, start), footer if at_checkpoint else 0)
        self._read.append(segment)  # before it is read: the index may be stored meanwhile
        path = self._log.path_of(number)
        if self._host_crash:
            distrust_memory(self._files, path)
        segment.findings = self._indexer.read(path, self._log.name_of(number), start)
        segment.counts = self._indexer.counts
        segment.footer = segment.findings.footer or segment.footer
        self._found.bytes_read += max(0, segment.findings.size - start)

    def _sync_what_was_read(self) -> None:
        """Sync the segments read: the index may be stored only as far as the log is durable."""
        for segment in self._read:
            sync_segment(self._files, self._log.path_of(segment.findings.segment))

    # ---- judging ---------------------------------------------------------------

    def _compare_witnesses(self, checkpoint: Checkpoint | None) -> None:
        """Compare the end of the log with the witnesses of a longer one."""
        tail, stamp = self._witnesses.tail, self._witnesses.stamp
        last = self._read[-1].findings if self._read else None
        end = (self._first, self._start) if last is None else (last.segment, last.size)
        seen = [
            ("its index", stamp.segment, stamp.offset),
            ("the record of the disks", *self._witnesses.elsewhere),
        ]
        if tail is not None:
            seen.append(("TAIL", tail.segment, tail.offset))
            self._found.synced_ms = tail.ms
        for witness, segment, offset in seen:
            if (segment, offset) > end and offset > SEGMENT_HEADER_BYTES:
                self._is_cut_short = True
                self._found.lost.append(
                    f"the entry log ends at {end[1]} of segment {end[0]}; {witness} has seen {offset} of segment "
                    f"{segment}"
                )
        for one in self._read:
            self._found.synced_ms = max(self._found.synced_ms, one.findings.synced_ms)
        if self._witnesses.is_clean and checkpoint is not None and self._found.records:
            self._found.lost.append(
                "the entry log goes on behind its checkpoint, and no dirty marker says why"
            )

    def _classify(self, segment: _Segment, following: list[_Segment]) -> None:
        findings = segment.findings
        path = self._log.path_of(findings.segment)
        start = self._start if findings.segment == self._first else SEGMENT_HEADER_BYTES
        is_proven = any(later.findings.proves for later in following)
        tail = self._witnesses.tail
        if tail is not None:  # it proves what a SYNCED record would
            findings.bound = max(findings.bound, tail.reaches(findings.segment))
            is_proven = is_proven or findings.segment < tail.segment
        self._lost_regions[findings.segment] = [(findings.size, _ENDLESS)]
        if findings.header_problem is not None:
            self._found.lost.append(findings.header_problem)
        if findings.size < start:
            segment.is_short = True
            self._found.lost.append(
                f"{path} ends at {findings.size}, before the checkpoint at {start}"
            )
            return
        segment.regions = findings.classify(
            is_last=not following,
            is_proven=is_proven,
            host_crash=self._host_crash,
            may_rot=self._is_journaled,
        )
        for region in segment.regions:
            self._lost_regions[findings.segment].append((region.start, region.end))
            if region.lost:
                self._found.lost.append(f"{path} bytes {region.start} to {region.end}")
        if following and not findings.is_sealed and (is_proven or not self._host_crash):
            self._found.lost.append(f"{path} ends at {findings.size} without a seal")

    # ---- repairing -------------------------------------------------------------

    def _repair(self, segment: _Segment, *, is_last: bool) -> bool:
        """Leave a segment durable, and whole but for the regions that it notes as lost; True if the log goes on in
        it.
        """
        if segment.is_short:
            return False
        findings, regions = segment.findings, segment.regions
        number, size = findings.segment, findings.size
        path, name = self._log.path_of(number), self._log.name_of(number)
        if findings.tail is not None and len(regions) == 1 and not regions[0].lost:
            size = findings.tail.start
            self._found.bytes_cut += findings.size - size
            regions = []
        unnoted = [region for region in regions if (region.start, region.end) not in findings.gaps]
        can_go_on = findings.format == FORMAT and not self._is_cut_short
        if is_last and not regions and can_go_on and not findings.is_sealed:
            self._log.continue_in(number, size, findings.size, segment.footer, segment.counts)
            self._log.sync()
            return True
        if size < findings.file_bytes:
            cut_segment(self._files, path, size)  # filler, and the rest of an interrupted write
        if findings.is_sealed and not unnoted:
            sync_segment(self._files, path)
        else:
            finish_segment(
                self._files,
                path,
                name,
                size,
                gaps=unnoted,
                footer=segment.footer,
                counts=segment.counts,
            )
        return False

    # ---- missing data --------------------------------------------------------------------------

    def _is_lost(self, segment: int, start: int, end: int) -> bool:
        if segment not in self._existing:
            if segment < self._first and segment not in self._missing:
                self._note_missing(segment)  # the checkpoint says that it was durable
            return True
        return any(
            start < bad_end and bad_start < end
            for bad_start, bad_end in self._lost_regions.get(segment, ())
        )
