"""Appending to a log made of segments: what the entry log and the journal have in common.

Rules:

- A segment exists, with its header and its name synced, before the first record goes into it.
- An append is one write. If it fails, the segment is cut back to where it was. No room alone
  leaves the log usable; any other failure, or a cut that fails, ends it: ``failed`` says why and
  every later call raises DiskFailedError.
- A failed sync ends the log too. It is never tried again: the kernel reports it once and may have
  dropped the pages.
- The first append after a sync starts with a SYNCED record that says how far the segment is
  durable, so that a later start knows what must be intact and what may be torn.
- A segment that ``roll`` gave a successor is whole: synced, sealed with a SEAL record, and synced again
  before the successor was made. Ids count from 1 without holes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from uuid import UUID

from bkbox.errors import BugError, DiskError, DiskFailedError, DiskFullError
from bkbox.storage.files import AppendFile, Files
from bkbox.storage.records import OFFSET, Kind, Location, Record
from bkbox.storage.segment import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentName,
    encode_records,
    encode_segment_header,
    parse_segment_file_name,
    segment_file_name,
)


def list_segments(files: Files, directory: Path) -> list[int]:
    """Ids of the segments in a directory, ascending."""
    ids = (parse_segment_file_name(name) for name in files.listdir(directory))
    return sorted(segment for segment in ids if segment is not None)


class SegmentLog:
    """Appends records to the last segment of ``directory``."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        magic: bytes,
        disk: UUID,
        segment_bytes_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._directory = directory
        self._magic = magic
        self._disk = disk
        self._segment_bytes_max = segment_bytes_max
        self._now_ms = now_ms
        self._file: AppendFile | None = None
        self._seed = 0
        self._synced = 0
        self._announced = 0
        self.segment = 1
        self.offset = SEGMENT_HEADER_BYTES
        self.failed: str | None = None

    def path_of(self, segment: int) -> Path:
        return self._directory / segment_file_name(segment)

    def name_of(self, segment: int) -> SegmentName:
        return SegmentName(self._magic, self._disk, segment)

    # ---- which segment ---------------------------------------------------------------

    def continue_in(self, segment: int, size: int) -> None:
        """Append to an existing segment that ends at ``size``; how much of it is durable is not
        known.
        """
        self.close()
        self._file = self._files.open_append(self.path_of(segment))
        self._files.fsync_dir(self._directory)  # its maker may have been killed before it did
        self._enter(segment, size)
        self._synced, self._announced = 0, size

    def start_at(self, segment: int) -> None:
        """The next append makes this segment."""
        self.close()
        self._enter(segment, SEGMENT_HEADER_BYTES)

    def create(self) -> None:
        """Make the segment that ``start_at`` named, header and name synced."""
        self.require_healthy()
        path = self.path_of(self.segment)
        file = self._files.open_append(path)
        try:
            if file.size() > SEGMENT_HEADER_BYTES:
                raise BugError(f"{path} exists already")
            file.truncate(0)  # what an attempt on a full disk may have left
            file.append(encode_segment_header(self.name_of(self.segment), self._now_ms()))
        except DiskFullError:
            file.close()
            with suppress(DiskError):
                self._files.unlink(path)
            raise
        except DiskError as error:
            self._fail(error)
        try:
            file.fdatasync()
            self._files.fsync_dir(self._directory)
        except DiskError as error:
            self._fail(error)
        self._file = file
        self._synced = self._announced = SEGMENT_HEADER_BYTES

    def _enter(self, segment: int, offset: int) -> None:
        self.segment, self.offset = segment, offset
        self._seed = self.name_of(segment).seed

    # ---- writing ---------------------------------------------------------------

    def is_full_for(self, records: Sequence[Record]) -> bool:
        """Whether these records belong into the next segment."""
        size = sum(RECORD_HEADER_BYTES + len(record.body) for record in records)
        begun = self.offset > SEGMENT_HEADER_BYTES
        return begun and self.offset + size > self._segment_bytes_max

    def append(self, records: Sequence[Record]) -> list[Location]:
        """Write records, unsynced, in one piece. DiskFullError: nothing of them is there;
        DiskFailedError.
        """
        self.require_healthy()
        if self._file is None:
            self.create()
        announce = self._synced > self._announced
        batch = list(records)
        if announce:
            batch.insert(0, Record(Kind.SYNCED, OFFSET.pack(self._synced)))
        data, offsets = encode_records(batch, self._seed, self.segment, self.offset)
        self._write(data)
        if announce:
            self._announced = self._synced
        return [
            Location(self.segment, offset, len(record.body))
            for offset, record in zip(offsets, batch, strict=True)
        ][announce:]

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        try:
            self._file.append(data)
        except DiskError as error:
            try:
                self._file.truncate(self.offset)
            except DiskError as second:
                self._fail(second)
            if isinstance(error, DiskFullError):
                raise
            self._fail(error)
        self.offset += len(data)

    def sync(self) -> None:
        """Make everything appended durable. DiskFailedError ends the log."""
        self.require_healthy()
        if self._file is None or self._synced == self.offset:
            return
        try:
            self._file.fdatasync()
        except DiskError as error:
            self._fail(error)
        self._synced = self.offset

    def roll(self, footer: int) -> None:
        """Seal the segment, whose last footer lies at ``footer`` (0 none); the next append makes
        the next one.
        """
        self.sync()
        self.append([Record(Kind.SEAL, OFFSET.pack(footer))])
        self.sync()
        self.start_at(self.segment + 1)

    # ---- the end ---------------------------------------------------------------

    def require_healthy(self) -> None:
        """Raises DiskFailedError once the log has failed."""
        if self.failed is not None:
            raise DiskFailedError(f"no writes after a failure: {self.failed}")

    def _fail(self, error: DiskError) -> NoReturn:
        self.failed = str(error)
        raise DiskFailedError(str(error)) from error

    def close(self) -> None:
        """Close the segment without syncing it."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
