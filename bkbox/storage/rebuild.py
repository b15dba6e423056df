"""A new index from the entry log alone: what ``bkbox index rebuild`` does while the bookie is
stopped.

The new index is built beside the old one and takes its place in the end, so that an interrupted
rebuild changes nothing. Nothing else on the disk is changed: the checkpoint stays true, because
the new index holds all that the log holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bkbox.errors import BootError, DamagedError
from bkbox.storage.entrylog import ENTRY_LOG_DIR
from bkbox.storage.files import Files, remove_flat_dir
from bkbox.storage.identity import read_identity
from bkbox.storage.index import LedgerIndex, changes_of
from bkbox.storage.orderedstore import INDEX_DIR, LevelStore
from bkbox.storage.records import Kind, Location, Record
from bkbox.storage.scan import SegmentFindings, read_segment
from bkbox.storage.segment import (
    ENTRY_LOG_MAGIC,
    ScannedRecord,
    SegmentName,
    segment_file_name,
)
from bkbox.storage.segmentlog import list_segments

Progress = Callable[[int, int], None]
"""Called with the bytes read and the bytes to read."""


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild read. ``unreadable``: parts of the log that it could not read, in words."""

    records: int
    entries: int
    ledgers: int
    bytes_read: int
    unreadable: tuple[str, ...]


def rebuild_index(
    files: Files, disk: Path, *, keep_going: bool, progress: Progress
) -> RebuildReport:
    """Rebuild the index of a disk that the caller has locked.

    Raises DamagedError, with the old index in place, where a part of the log cannot be read,
    unless ``keep_going``; BootError for a disk that was never prepared; DiskError.
    """
    fresh, old = disk / (INDEX_DIR + ".new"), disk / (INDEX_DIR + ".old")
    remove_flat_dir(files, fresh)
    rebuild = _Rebuild(files, disk, LedgerIndex(LevelStore(fresh, create=True)), progress)
    try:
        report = rebuild.run()
    finally:
        rebuild.index.close()
    if report.unreadable and not keep_going:
        raise DamagedError(
            f"the entry log of {disk} cannot be read whole: {'; '.join(report.unreadable)}"
        )
    current = disk / INDEX_DIR
    remove_flat_dir(files, old)
    if files.exists(current):
        files.rename(current, old)
    files.rename(fresh, current)
    files.fsync_dir(disk)
    remove_flat_dir(files, old)
    return report


class _Rebuild:
    def __init__(self, files: Files, disk: Path, index: LedgerIndex, progress: Progress) -> None:
        self.index = index
        self._files = files
        self._disk = disk
        self._directory = disk / ENTRY_LOG_DIR
        self._progress = progress
        self._records = self._entries = 0
        self._unreadable: list[str] = []

    def run(self) -> RebuildReport:
        identity = read_identity(self._files, self._disk)
        if identity is None:
            raise BootError(f"disk {self._disk} is not prepared: there is nothing to rebuild")
        segments = list_segments(self._files, self._directory)
        sizes = {segment: self._size_of(segment) for segment in segments}
        total, done = sum(sizes.values()), 0
        for segment in segments:
            path = self._directory / segment_file_name(segment)
            findings = read_segment(
                self._files,
                path,
                SegmentName(ENTRY_LOG_MAGIC, identity.uuid, segment),
                0,
                lambda batch, segment=segment: self._apply(segment, batch),  # type: ignore[misc]
            )
            self._note(path, findings, is_last=segment == segments[-1])
            done += sizes[segment]
            self._progress(done, total)
        self.index.flush()
        ledgers = sum(1 for _ in self.index.ledgers())
        return RebuildReport(self._records, self._entries, ledgers, total, tuple(self._unreadable))

    def _size_of(self, segment: int) -> int:
        file = self._files.open_read(self._directory / segment_file_name(segment))
        try:
            return file.size()
        finally:
            file.close()

    def _apply(self, segment: int, batch: list[ScannedRecord]) -> None:
        records = [Record(item.kind, item.body) for item in batch]
        locations = [Location(segment, item.offset, len(item.body)) for item in batch]
        self.index.apply(changes_of(records, locations))
        self._records += len(batch)
        self._entries += sum(item.kind is Kind.ENTRY for item in batch)

    def _note(self, path: Path, findings: SegmentFindings, *, is_last: bool) -> None:
        """Take down what cannot be read and is not accounted for by a GAP; the next start judges a
        torn tail.
        """
        for region in findings.judge(is_last=is_last, host_crash=True):
            if region.lost and (region.start, region.end) not in findings.gaps:
                self._unreadable.append(f"{path} bytes {region.start} to {region.end}")
        if findings.header_problem is not None and not (is_last and findings.is_stillborn):
            self._unreadable.append(findings.header_problem)
        if not is_last and not findings.sealed:
            self._unreadable.append(f"{path} ends at {findings.size} without a seal")
