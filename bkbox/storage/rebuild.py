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
from bkbox.storage.index import LedgerIndex
from bkbox.storage.logindexer import LogIndexer
from bkbox.storage.orderedstore import INDEX_DIR, LevelStore
from bkbox.storage.scan import SegmentFindings
from bkbox.storage.segment import (
    ENTRY_LOG_MAGIC,
    SEGMENT_HEADER_BYTES,
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
        self._unreadable: list[str] = []

    def run(self) -> RebuildReport:
        identity = read_identity(self._files, self._disk)
        if identity is None:
            raise BootError(f"disk {self._disk} is not prepared: there is nothing to rebuild")
        segments = list_segments(self._files, self._directory)
        sizes = {segment: self._size_of(segment) for segment in segments}
        while segments and sizes[segments[-1]] <= SEGMENT_HEADER_BYTES:
            segments.pop()  # made ahead of its use
        total, done = sum(sizes.values()), 0
        indexer = LogIndexer(self._files, self.index, lambda: None)
        read = []
        for segment in segments:
            name = SegmentName(ENTRY_LOG_MAGIC, identity.uuid, segment)
            read.append(indexer.read(self._path_of(segment), name, 0))
            done += sizes[segment]
            self._progress(done, total)
        if done < total:
            self._progress(total, total)
        for place, findings in enumerate(read):
            self._note(findings, read[place + 1 :])
        self.index.flush()
        ledgers = sum(1 for _ in self.index.ledgers())
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
        """Take down what cannot be read and is not accounted for by a GAP; the next start judges what was merely
        written.
        """
        path = self._path_of(findings.segment)
        proven = any(later.proves for later in following)
        for region in findings.judge(is_last=not following, is_proven=proven, host_crash=True):
            if region.lost and (region.start, region.end) not in findings.gaps:
                self._unreadable.append(f"{path} bytes {region.start} to {region.end}")
        if findings.header_problem is not None:
            self._unreadable.append(findings.header_problem)
        if proven and not findings.is_sealed:
            self._unreadable.append(f"{path} ends at {findings.size} without a seal")
