"""The journal of a disk, for ``ack_after = journal``: the records of the entry log, synced before
they are acknowledged.

``<journal dir>/<disk uuid>/<segment id>.log``, in the format of segment.py with a magic of its
own. It is read only after a host crash, from the segment that the checkpoint names: all that was
acknowledged since is in it, in order. Every checkpoint starts a new segment and removes those
before it. A segment is never continued by a later run and never sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from bkbox.storage.files import Files
from bkbox.storage.records import Record
from bkbox.storage.scan import read_segment
from bkbox.storage.segment import JOURNAL_MAGIC, ScannedRecord
from bkbox.storage.segmentlog import SegmentLog, list_segments


class Journal:
    """Appends to, replays and retires the journal segments of one disk."""

    def __init__(
        self,
        files: Files,
        journal_dir: Path,
        disk: UUID,
        segment_bytes_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._directory = journal_dir / str(disk)
        files.mkdir(self._directory)
        files.fsync_dir(journal_dir)
        self._log = SegmentLog(
            files, self._directory, JOURNAL_MAGIC, disk, segment_bytes_max, now_ms
        )

    @property
    def segment(self) -> int:
        """Id of the segment that is appended to."""
        return self._log.segment

    @property
    def failed(self) -> str | None:
        return self._log.failed

    def segments(self) -> list[int]:
        """Ids of the segments that exist, ascending."""
        return list_segments(self._files, self._directory)

    def start(self, first: int) -> None:
        """Start the segment after all that exist, and not before ``first``."""
        existing = self.segments()
        self._start(max(first, existing[-1] + 1 if existing else 1))

    def next_segment(self) -> None:
        """Sync, and go on in the next segment, which exists when this returns."""
        self._log.sync()
        self._start(self._log.segment + 1)

    def _start(self, segment: int) -> None:
        self._log.start_at(segment)
        self._log.create()

    def append(self, records: Sequence[Record]) -> None:
        """Write records, unsynced. DiskFullError: nothing of them is there; DiskFailedError."""
        if self._log.is_full_for(records):
            self.next_segment()
        self._log.append(records)

    def sync(self) -> None:
        """Make everything appended durable. DiskFailedError ends the journal."""
        self._log.sync()

    def replay(self, first: int, on_records: Callable[[list[ScannedRecord]], None]) -> list[str]:
        """Hand on all records from segment ``first``, in order; returns what was durable and
        cannot be read, in words.
        """
        lost: list[str] = []
        existing = [segment for segment in self.segments() if segment >= first]
        for segment in range(first, max(existing, default=first) + 1):
            path = self._log.path_of(segment)
            if segment not in existing:
                lost.append(f"{path} is missing")
                continue
            findings = read_segment(self._files, path, self._log.name_of(segment), 0, on_records)
            # The last batch of a run need not have been synced, whichever segment it is in.
            for start, end, was_durable in findings.judge(is_last=True, host_crash=True):
                if was_durable:
                    lost.append(f"{path} bytes {start} to {end}")
            if findings.header_problem is not None and not findings.is_stillborn:
                lost.append(findings.header_problem)
        return lost

    def retire(self, before: int | None) -> None:
        """Remove the segments before ``before``, all if None; a checkpoint that says so is
        durable.
        """
        old = [segment for segment in self.segments() if before is None or segment < before]
        for segment in old:
            self._files.unlink(self._log.path_of(segment))
        if old:
            self._files.fsync_dir(self._directory)

    def close(self) -> None:
        """Close the segment without syncing it."""
        self._log.close()
