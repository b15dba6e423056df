"""Bringing the index up to the entry log after a start, and finding out what a crash took.

From the checkpoint on, every good record is applied to the index again, in order; doing it twice
changes nothing. Bad regions are judged by scan.py. Then, for the last segment:

- a torn tail is cut off, and the segment goes on from there;
- any other bad region stays where it is, because good records follow it or because what is there
  had been durable: the segment notes it in a GAP record, is sealed, and the next one is begun.
  Good data is never cut.

Entries of the index whose records are gone (in a bad region, past the end, in a missing segment)
are taken out of it, so that repair sees that they are missing. That is only right where the
ledgers then go to limbo: it happens together with ``lost`` not being empty or ``dropped`` not
being 0, which the caller has to act on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bkbox.storage.checkpoint import Checkpoint
from bkbox.storage.entrylog import EntryLog, Tally
from bkbox.storage.files import Files
from bkbox.storage.index import LedgerIndex, changes_of
from bkbox.storage.records import Kind, Location, Record
from bkbox.storage.scan import Region, SegmentFindings, read_segment
from bkbox.storage.segment import SEGMENT_HEADER_BYTES, ScannedRecord


@dataclass(slots=True)
class LogReplay:
    """What a replay read, cut and missed. ``lost`` says, in words, what had been durable and
    cannot be read.
    """

    records: int = 0
    entries: int = 0
    bytes_read: int = 0
    bytes_cut: int = 0
    dropped: int = 0
    lost: list[str] = field(default_factory=list)


class LogReplayer:
    """One replay of an entry log; ``run`` leaves the log ready for appends."""

    def __init__(
        self, files: Files, log: EntryLog, index: LedgerIndex, *, host_crash: bool
    ) -> None:
        self._files = files
        self._log = log
        self._index = index
        self._host_crash = host_crash
        self._found = LogReplay()
        self._tally = Tally()
        self._gone: dict[int, list[tuple[int, int]]] = {}
        self._first = 1
        self._existing: set[int] = set()
        self._missing: set[int] = set()

    def run(
        self, checkpoint: Checkpoint | None, before_drop: Callable[[LogReplay], None]
    ) -> LogReplay:
        """Replay from the checkpoint, or from the first segment where there is none.

        ``before_drop`` is called with what was found before anything is taken out of the index: a
        later start will not find it missing any more. DiskError, DiskFullError.
        """
        existing = self._log.segments()
        self._existing = set(existing)
        newest = existing[-1] if existing else 0
        first = checkpoint.segment if checkpoint is not None else min(existing, default=1)
        if checkpoint is not None and newest < first:
            if checkpoint.offset > SEGMENT_HEADER_BYTES:
                self._note_missing(first)
            self._log.start_at(first + (checkpoint.offset > SEGMENT_HEADER_BYTES))
        elif newest == 0:
            self._log.start_at(1)
        self._first = first
        for segment in range(first, newest + 1):
            if segment not in existing:
                self._note_missing(segment)
                continue
            at = checkpoint if checkpoint is not None and checkpoint.segment == segment else None
            self._replay_segment(segment, at, is_last=segment == newest)
        if self._host_crash or self._found.lost:
            gone, self._found.dropped = self._index.find_gone(self._is_gone)
            if gone:
                before_drop(self._found)
                self._index.drop(gone)
        return self._found

    def _note_missing(self, segment: int) -> None:
        self._missing.add(segment)
        self._found.lost.append(f"{self._log.path_of(segment)} is missing")

    # ---- one segment ---------------------------------------------------------------

    def _replay_segment(self, segment: int, at: Checkpoint | None, *, is_last: bool) -> None:
        path = self._log.path_of(segment)
        start = SEGMENT_HEADER_BYTES if at is None else at.offset
        self._tally = Tally()
        findings = read_segment(
            self._files,
            path,
            self._log.name_of(segment),
            start,
            lambda batch: self._apply(segment, batch),
        )
        if is_last and findings.is_stillborn and start <= SEGMENT_HEADER_BYTES:
            self._files.unlink(path)
            self._files.fsync_dir(path.parent)
            self._existing.remove(segment)
            self._log.start_at(segment)
            return
        self._found.bytes_read += max(0, findings.size - start)
        if findings.header_problem is not None:
            self._found.lost.append(findings.header_problem)
        if findings.size < start:
            self._found.lost.append(
                f"{path} ends at {findings.size}, before the checkpoint at {start}"
            )
            self._gone.setdefault(segment, []).append((findings.size, 1 << 63))
            if is_last:
                self._log.start_at(segment + 1)
            return
        regions = findings.judge(is_last=is_last, host_crash=self._host_crash)
        for region in regions:
            if region.lost:
                self._found.lost.append(f"{path} bytes {region.start} to {region.end}")
        self._gone.setdefault(segment, []).extend((start, end) for start, end, _ in regions)
        if is_last:
            self._go_on(findings, regions, 0 if at is None else at.footer)
        elif not findings.sealed:
            self._found.lost.append(f"{path} ends at {findings.size} without a seal")
        self._gone[segment].append((findings.size, 1 << 63))

    def _go_on(self, findings: SegmentFindings, regions: list[Region], footer: int) -> None:
        """Make the last segment, or the one after it, ready for appends."""
        segment, size = findings.segment, findings.size
        footer = findings.footer or footer
        tail = findings.tail
        noted = all((start, end) in findings.gaps for start, end, _ in regions)
        if findings.sealed and noted:
            self._log.start_at(segment + 1)
        elif not regions:
            self._log.continue_in(segment, size, footer, self._tally)
        elif len(regions) == 1 and tail is not None and not regions[0].lost:
            self._cut(segment, tail.start)
            self._found.bytes_cut += size - tail.start
            self._log.continue_in(segment, tail.start, footer, self._tally)
        else:
            self._log.continue_in(segment, size, footer, self._tally)
            self._log.write_gaps(regions)
            self._log.seal()

    def _cut(self, segment: int, size: int) -> None:
        file = self._files.open_append(self._log.path_of(segment))
        try:
            file.truncate(size)
            file.fdatasync()
        finally:
            file.close()

    def _apply(self, segment: int, batch: list[ScannedRecord]) -> None:
        records = [Record(item.kind, item.body) for item in batch]
        locations = [Location(segment, item.offset, len(item.body)) for item in batch]
        changes = changes_of(records, locations)
        self._index.apply(changes)
        if batch[-1].kind is Kind.FOOTER:
            self._tally = Tally()  # what came before is counted in it
        else:
            self._tally.add(changes)
        self._found.records += len(batch)
        self._found.entries += sum(item.kind is Kind.ENTRY for item in batch)

    # ---- what the index must not point to ------------------------------------------------------

    def _is_gone(self, segment: int, start: int, end: int) -> bool:
        if segment not in self._existing:
            if segment < self._first and segment not in self._missing:
                self._note_missing(segment)  # the checkpoint says that it was durable
            return True
        return any(
            start < bad_end and bad_start < end
            for bad_start, bad_end in self._gone.get(segment, ())
        )
