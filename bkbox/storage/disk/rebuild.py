"""Builds a new index from the entry log alone: for a start whose index is missing or broken, and for
``bkbox index rebuild`` while the bookie is stopped.

The new index is built beside the old one and replaces it at the end, so that an interrupted rebuild changes nothing.
The checkpoint stays true, because the new index holds everything that the log holds, and the log is synced first.

Data that had been durable and cannot be read, part of a segment or a whole one, is in no index any more. So that it
is not denied, the checkpoint is then *held*, before the new index replaces the old one: every start finds that data
is missing, until phase one has dealt with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bkbox.base.values import frozen_struct, replaced
from bkbox.errors import BootError, DamagedError
from bkbox.storage.disk.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.entries.log_indexer import LogIndexer
from bkbox.storage.files import Files, remove_flat_dir
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.ordered_store import INDEX_DIR, LevelStore
from bkbox.storage.index.stored_index import Stamp
from bkbox.storage.log.removed_segments import RemovedSegments, read_retired
from bkbox.storage.log.scan import SegmentFindings
from bkbox.storage.log.segment import (
    ENTRY_LOG_DIR,
    ENTRY_LOG_MAGIC,
    SEGMENT_HEADER_BYTES,
    SegmentName,
    segment_file_name,
)
from bkbox.storage.log.segment_repair import sync_segment
from bkbox.storage.log.segmented_log import list_segments

_OLD = INDEX_DIR + ".old"

Progress = Callable[[int, int], None]
"""Called with the bytes read and the bytes to read."""


@frozen_struct
class RebuildReport:
    """The result of a rebuild. ``unreadable``: parts of the log that it could not read, as text."""

    records: int
    entries: int
    ledgers: int
    bytes_read: int
    unreadable: tuple[str, ...]


def rebuild_index(
    files: Files, disk: Path, *, keep_going: bool, progress: Progress
) -> RebuildReport:
    """Rebuild the index of a disk that the caller has locked.

    Raises DamagedError, with the old index in place, if a part of the log cannot be read, unless ``keep_going``;
    BootError for a disk that was never prepared; DiskError.
    """
    fresh = disk / (INDEX_DIR + ".new")
    remove_flat_dir(files, fresh)
    checkpoint = _checkpoint_of(files, disk)
    index = LedgerIndex(LevelStore(fresh, create=True))
    rebuild = _Rebuild(files, disk, index, checkpoint, progress)
    try:
        report = rebuild.run()
    finally:
        index.close()
    if report.unreadable and not keep_going:
        raise DamagedError(
            f"the entry log of {disk} cannot be read whole: {'; '.join(report.unreadable)}"
        )
    if report.unreadable and checkpoint is not None:
        write_checkpoint(files, disk, replaced(checkpoint, held=True))
    set_aside(files, disk)
    files.rename(fresh, disk / INDEX_DIR)
    files.fsync_dir(disk)
    remove_flat_dir(files, disk / _OLD)
    return report


def set_aside(files: Files, disk: Path) -> None:
    """Move the index away, if there is one: the next start rebuilds it. DiskError."""
    current, old = disk / INDEX_DIR, disk / _OLD
    if files.exists(current):
        remove_flat_dir(files, old)
        files.rename(current, old)
        files.fsync_dir(disk)


def _checkpoint_of(files: Files, disk: Path) -> Checkpoint | None:
    """The checkpoint, None if it is lost: the next start reads the whole log then, and detects the damage itself."""
    try:
        return read_checkpoint(files, disk)
    except DamagedError:
        return None


def _retired_of(files: Files, disk: Path) -> RemovedSegments:
    """The segments that were removed on purpose; if unknown, every gap counts as a loss."""
    try:
        return read_retired(files, disk)
    except DamagedError:
        return RemovedSegments()


class _Rebuild:
    def __init__(
        self,
        files: Files,
        disk: Path,
        index: LedgerIndex,
        checkpoint: Checkpoint | None,
        progress: Progress,
    ) -> None:
        self._index = index
        self._files = files
        self._disk = disk
        self._durable = (1, 0) if checkpoint is None else (checkpoint.segment, checkpoint.offset)
        """Segment and offset up to which the log was durable."""
        self._stamp = Stamp(0 if checkpoint is None else checkpoint.index, *self._durable)
        self._directory = disk / ENTRY_LOG_DIR
        self._progress = progress
        self._unreadable: list[str] = []

    def run(self) -> RebuildReport:
        identity = read_identity(self._files, self._disk)
        if identity is None:
            raise BootError(f"disk {self._disk} is not prepared: there is nothing to rebuild")
        retired = _retired_of(self._files, self._disk)
        found = list_segments(self._files, self._directory)
        segments = [segment for segment in found if segment not in retired]
        sizes = {segment: self._size_of(segment) for segment in segments}
        while segments and sizes[segments[-1]] <= SEGMENT_HEADER_BYTES:
            segments.pop()  # created ahead of its use
        total, done = sum(sizes.values()), 0
        indexer = LogIndexer(self._files, self._index, lambda: None)
        read = []
        for segment in segments:
            if segment >= self._durable[0]:
                sync_segment(self._files, self._path_of(segment))  # the index may not be ahead
            name = SegmentName(ENTRY_LOG_MAGIC, identity.uuid, segment)
            read.append(indexer.read(self._path_of(segment), name, 0))
            done += sizes[segment]
            self._progress(done, total)
        if done < total:
            self._progress(total, total)
        newest = max(segments[-1] if segments else 0, self._durable[0] - 1)
        for segment in sorted(set(range(1, newest + 1)) - set(segments)):
            if segment not in retired:
                self._unreadable.append(f"{self._path_of(segment)} is missing")
        for place, findings in enumerate(read):
            self._note(findings, read[place + 1 :])
        self._index.flush(self._stamp)
        ledgers = sum(1 for _ in self._index.ledgers())
        return RebuildReport(
            indexer.records, indexer.entries, ledgers, total, tuple(self._unreadable)
        )

    def _path_of(self, segment: int) -> Path:
        return self._directory / segment_file_name(segment)

    def _size_of(self, segment: int) -> int:
        file = self._files.open_read(self._path_of(segment))
        try:
            return file.size()
        finally:
            file.close()

    def _note(self, findings: SegmentFindings, following: list[SegmentFindings]) -> None:
        """Record unreadable regions that no GAP accounts for; the next start judges those that were never synced."""
        path = self._path_of(findings.segment)
        segment, offset = self._durable
        proven = findings.segment < segment or any(later.proves for later in following)
        if findings.segment == segment:
            findings.bound = max(findings.bound, offset)
        for region in findings.classify(is_last=not following, is_proven=proven, host_crash=True):
            if region.lost and (region.start, region.end) not in findings.gaps:
                self._unreadable.append(f"{path} bytes {region.start} to {region.end}")
        if findings.header_problem is not None:
            self._unreadable.append(findings.header_problem)
        if proven and not findings.is_sealed:
            self._unreadable.append(f"{path} ends at {findings.size} without a seal")
