"""The journal of a disk, for ``ack_after = journal``: the records of the entry log, synced before they are
acknowledged.

``<journal dir>/<disk uuid>/<segment id>.log``, in the format of segment.py with a magic of its own. After every stop
that was not clean it is read from the segment that the checkpoint names: everything acknowledged since is in it, in
order. Every checkpoint starts a new segment and gives up those before it. A later run never continues a segment, and
none is ever sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from bkbox.storage.files import Files
from bkbox.storage.log.durable_log import DurableLog
from bkbox.storage.log.scan import SegmentFindings, distrust_memory, read_segment
from bkbox.storage.log.segment import JOURNAL_MAGIC, SEGMENT_HEADER_BYTES, ScannedRecord
from bkbox.storage.log.segmented_log import Part, SegmentLog, list_segments
from bkbox.storage.log.tail import TailMark


class Journal(DurableLog):
    """Appends to, replays and retires the journal segments of one disk."""

    def __init__(
        self,
        files: Files,
        journal_dir: Path,
        disk: UUID,
        segment_bytes_max: int,
        checkpoint_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._directory = journal_dir / str(disk)
        files.mkdir(self._directory)
        files.fsync_dir(journal_dir)
        super().__init__(
            SegmentLog(
                files,
                self._directory,
                JOURNAL_MAGIC,
                disk,
                segment_bytes_max,
                now_ms,
                expected_bytes=min(segment_bytes_max, checkpoint_bytes),
            )
        )
        self._retired = 0
        """The last segment that was given up."""

    @property
    def segment(self) -> int:
        """Id of the segment that is appended to."""
        return self._log.segment

    def segments(self) -> list[int]:
        """Ids of the segments that exist, ascending."""
        return list_segments(self._files, self._directory)

    def start(self, first: int) -> None:
        """Start the segment after all existing ones, and not before ``first``."""
        existing = self.segments()
        self._files.fsync_dir(self._directory)  # a segment whose creator was killed leaves no gap
        self._start(max(first, existing[-1] + 1 if existing else 1))

    def next_segment(self) -> None:
        """Continue in the next segment, which exists when this returns; the next sync covers the one before it, too."""
        self._log.roll(None)
        self._log.create()

    def _start(self, segment: int) -> None:
        self._log.start_at(segment)
        self._log.create()

    def append(self, parts: Sequence[Part], size: int) -> None:
        """Write parts, of ``size`` bytes, unsynced. DiskFullError: none of them was written; DiskFailedError."""
        if self._log.is_full_for(size):
            self.next_segment()
        self._log.append(parts, size)

    def replay(
        self,
        first: int,
        on_record: Callable[[ScannedRecord], None],
        tail: TailMark | None = None,
    ) -> list[str]:
        """Hand on all records from segment ``first``, in order. Returns the data that was durable and cannot be read,
        as text. ``tail``: how far the journal was known to be durable.
        """
        lost: list[str] = []
        existing = [segment for segment in self.segments() if segment >= first]
        read: list[SegmentFindings] = []
        for segment in range(first, max(existing, default=first) + 1):
            path, name = self._log.path_of(segment), self._log.name_of(segment)
            if segment in existing:
                distrust_memory(self._files, path)
                read.append(read_segment(self._files, path, name, 0, on_record))
            else:
                lost.append(f"{path} is missing")
        seen = (0, 0) if tail is None else (tail.journal_segment, tail.journal_offset)
        last = (read[-1].segment, read[-1].size) if read else (0, 0)
        if seen > last and seen[0] >= first and seen[1] > SEGMENT_HEADER_BYTES:
            lost.append(
                f"the journal ends at {last[1]} of segment {last[0]}; TAIL has seen {seen[1]} of segment {seen[0]} "
                "durable"
            )
        for place, findings in enumerate(read):
            path = self._log.path_of(findings.segment)
            if findings.segment == seen[0]:
                findings.bound = max(findings.bound, seen[1])
            # The last batch of an incarnation need not have been synced, whichever segment it is in.
            is_proven = any(later.proves for later in read[place + 1 :])
            is_proven = is_proven or findings.segment < seen[0]
            for start, end, was_durable in findings.classify(
                is_last=True, is_proven=is_proven, host_crash=True
            ):
                if was_durable:
                    lost.append(f"{path} bytes {start} to {end}")
            if findings.header_problem is not None and not findings.is_empty:
                lost.append(findings.header_problem)
        return lost

    def retire(self, before: int | None) -> list[Path]:
        """Give up the segments before ``before``, all if None, after a durable checkpoint that says so. Returns the
        files to remove. DiskError.
        """
        if before is not None:
            self._log.drop(before)
        old = [
            segment
            for segment in self.segments()
            if segment > self._retired and (before is None or segment < before)
        ]
        self._retired = max(old, default=self._retired)
        return [self._log.path_of(segment) for segment in old]

    def close(self) -> None:
        """Close the segment without syncing it."""
        self._log.close()
