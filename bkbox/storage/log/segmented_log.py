"""Appends to a log made of segments: the common part of the entry log and the journal.

Rules:

- A segment exists, with its header and its name synced, before the first record goes into it.
- An append is one write. If it fails, the segment is cut back to where it was. Lack of space alone leaves the log
  usable. Any other failure, or a cut that fails, ends it: ``failed`` gives the reason and every later call raises
  DiskFailedError.
- A sync is begun and ended on the log's thread and may run on another one, while more is appended and the next one is
  begun. They run one at a time, in the order in which they were begun, and end in it. Data appended before a sync
  began, or was last extended, is durable once it has ended.
- A failed sync ends the log too. It is never retried, nor is another one run after it: the kernel reports it once and
  may have dropped the pages.
- The first append after a sync starts with a SYNCED record that says how far the segment is durable, so that a later
  start knows what must be intact and what may be torn. If no append follows, ``prove`` writes one: an idle log proves
  its own end, once that record is synced.
- A full segment gets a last record, SEAL (entry log only), and is left for the next one without waiting. The next
  sync syncs it before anything else. So a SYNCED record in a segment proves that all segments before it are whole; a
  SEAL proves nothing. Ids count from 1 without gaps.
- While syncs are small, two in a row, the segment is filled ahead of its records: a file system takes half as long to
  sync overwritten blocks as to sync newly allocated ones. It costs another write of each byte, which is why large
  syncs do without. Filler is cut off behind a SEAL, or by the next start (segment.py): elsewhere a lost host could
  leave zeros of the cut where a record may have been.
- A sync also creates the segment after the present one, once that is nearly full, so that no append waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn, Protocol
from uuid import UUID

from bkbox.base.values import field, struct
from bkbox.errors import BugError, DiskError, DiskFailedError, DiskFullError
from bkbox.storage.files import AppendFile, Files
from bkbox.storage.log.records import OFFSET, SYNCED_BODY, Kind, Location, Record
from bkbox.storage.log.segment import (
    FILLED_BYTES_MAX,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentName,
    encode_segment_header,
    filler,
    parse_segment_file_name,
    put_record,
    segment_file_name,
)


class RecordBatch(Protocol):
    """Records that are appended together (bookie/add_group.py). ``record_bytes``: their size."""

    record_bytes: int

    def pack(self, buffer: bytearray, at: int, seed: int, segment: int, offset: int, /) -> int:
        """Write the records to ``buffer`` from ``at``; ``offset`` is their location in the segment; returns the end."""
        ...


Part = Record | RecordBatch
"""The unit of an append: a record, or a batch of entries."""

_SYNCED_BYTES = RECORD_HEADER_BYTES + SYNCED_BODY.size
_BUFFER_BYTES_MAX = 4 << 20
"""Size, in bytes, from which the buffer of an append is freed after it."""

_SMALL_SYNC_BYTES = 96 << 10
_FILL_BYTES = 256 << 10
_BLOCK_BYTES = 4 << 10
assert _SMALL_SYNC_BYTES + _FILL_BYTES <= FILLED_BYTES_MAX


def list_segments(files: Files, directory: Path) -> list[int]:
    """Ids of the segments in a directory, ascending."""
    ids = (parse_segment_file_name(name) for name in files.listdir(directory))
    return sorted(segment for segment in ids if segment is not None)


def record_bytes(parts: Sequence[Part]) -> int:
    """Bytes of parts in a segment."""
    size = 0
    for part in parts:
        if isinstance(part, Record):
            size += RECORD_HEADER_BYTES + len(part.body)
        else:
            size += part.record_bytes
    return size


@struct
class LogSync:
    """A sync that was begun; ``run`` may be called on another thread, once. ``filled``: end of the filled part of the
    file when it began or was last extended, at ``began_ms`` since 1970.
    """

    segment: int
    offset: int
    filled: int
    began_ms: int
    left: list[tuple[int, AppendFile]]
    file: AppendFile | None
    make_next: Callable[[], AppendFile] | None
    error: DiskError | None = None
    _made: AppendFile | None = None
    _making: Lock = field(default_factory=Lock)

    def run(self) -> None:
        """Sync; a failure is raised by ``end_sync``."""
        if self.error is not None:
            return
        try:
            for _, file in self.left:
                file.fdatasync()
                file.close()
            if self.file is not None:
                self.file.fdatasync()
        except DiskError as error:
            self.error = error
            return
        with self._making:
            if self.make_next is not None:
                try:
                    self._made = self.make_next()
                except DiskFullError:
                    pass  # the append that needs the segment will report it
                except DiskError as error:
                    self.error = error
                self.make_next = None

    @property
    def makes_next(self) -> bool:
        """True if it will create the next segment, or has."""
        return self.make_next is not None or self._made is not None

    def pop_next(self) -> AppendFile | None:
        """The next segment, if this sync has created it; it will not create it any more."""
        with self._making:
            made, self._made, self.make_next = self._made, None, None
            return made


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
        *,
        expected_bytes: int | None = None,
    ) -> None:
        """``expected_bytes``: size at which a segment is left for the next one; None: ``segment_bytes_max``."""
        self._files = files
        self._directory = directory
        self._magic = magic
        self._disk = disk
        self._segment_bytes_max = segment_bytes_max
        self._nearly_full_bytes = (expected_bytes or segment_bytes_max) // 4 * 3
        self._now_ms = now_ms
        self._file: AppendFile | None = None
        self._left: list[tuple[int, AppendFile]] = []
        self._next: AppendFile | None = None
        self._syncing: list[LogSync] = []
        """Syncs that were begun and not ended, in order."""
        self._was_small = True
        """The sync that was begun last is small."""
        self._buffer = bytearray()
        self._written_back = SEGMENT_HEADER_BYTES
        self._filled = 0
        self._seed = 0
        self._synced = self._announced = SEGMENT_HEADER_BYTES
        self._synced_filled = self._synced_ms = 0
        self._unproven = 0
        """End of the last record that a SYNCED record has to prove; 0 if the present segment has none."""
        self._left_unproven = False
        self._durable_end = 0, 0, 0
        self.generation = 0
        """The generation of the start that appends; stored in SYNCED records."""
        self.segment = 1
        self.offset = SEGMENT_HEADER_BYTES
        self.failed: str | None = None

    def path_of(self, segment: int) -> Path:
        return self._directory / segment_file_name(segment)

    def name_of(self, segment: int) -> SegmentName:
        return SegmentName(self._magic, self._disk, segment)

    # ---- which segment ---------------------------------------------------------------

    def continue_in(self, segment: int, end: int, torn_end: int) -> None:
        """Append to an existing segment behind its last record, at ``end``; how much of it is durable is not known.
        The rest of an interrupted write, up to ``torn_end``, becomes filler again; filler stays. DiskError.
        """
        self.close()
        file = self._file = self._files.open_append(self.path_of(segment))
        self._files.fsync_dir(self._directory)  # its creator may have been killed before it did
        self._enter(segment, end)
        self._synced, self._announced = 0, end
        if file.size() - end > FILLED_BYTES_MAX:
            self._cut(file)
            return
        file.seek(end)
        if torn_end > end:
            file.fill(end, filler(self._seed, end, torn_end))
        self._filled = file.size()

    def start_at(self, segment: int) -> None:
        """Set the segment that the next append creates."""
        self.close()
        self._enter(segment, SEGMENT_HEADER_BYTES)
        self._synced = self._announced = SEGMENT_HEADER_BYTES

    def create(self) -> None:
        """Create the next segment, header and name synced, unless a sync has created it."""
        self.require_healthy()
        file, self._next = self._next, None
        for sync in self._syncing:
            file = sync.pop_next() or file
        if file is None:
            try:
                file = self._make(self.segment)
            except DiskFullError:
                raise
            except DiskError as error:
                self._fail(error)
        self._file = file
        self._synced = self._announced = SEGMENT_HEADER_BYTES

    def _make(self, segment: int) -> AppendFile:
        """Create a segment; after a failure the rest of it is no segment."""
        path = self.path_of(segment)
        file = self._files.open_append(path)
        try:
            if file.size() > SEGMENT_HEADER_BYTES:
                raise BugError(f"{path} exists already")
            file.truncate(0)  # the rest of an attempt on a full disk
            file.append(encode_segment_header(self.name_of(segment), self._now_ms()))
            file.fdatasync()
            self._files.fsync_dir(self._directory)
        except DiskError as error:
            file.close()
            if isinstance(error, DiskFullError):
                with suppress(DiskError):
                    self._files.unlink(path)
            raise
        return file

    def _enter(self, segment: int, offset: int) -> None:
        self.segment, self.offset = segment, offset
        self._written_back = self._filled = offset
        self._synced_filled = self._unproven = 0
        self._seed = self.name_of(segment).seed

    # ---- writing ---------------------------------------------------------------

    def is_full_for(self, size: int) -> bool:
        """True if parts of this size belong into the next segment."""
        return self.offset > SEGMENT_HEADER_BYTES and self.offset + size > self._segment_bytes_max

    def append(self, parts: Sequence[Part], size: int) -> list[Location]:
        """Write parts, of ``size`` bytes, unsynced, in one piece; returns the location of each. DiskFullError: none
        of them was written; DiskFailedError.
        """
        if self.failed is not None:
            self.require_healthy()
        if self._file is None:
            self.create()
        if len(self._buffer) < size + _SYNCED_BYTES:
            self._buffer = bytearray(size + _SYNCED_BYTES)
        at = 0
        announce = self._synced > self._announced
        if announce:
            at = self._put_synced()
        locations = []
        for part in parts:
            offset = self.offset + at
            if isinstance(part, Record):
                locations.append(Location(self.segment, offset, len(part.body)))
                at = put_record(self._buffer, at, part, self._seed, self.segment, offset)
            else:
                locations.append(Location(self.segment, offset, part.record_bytes))
                at = part.pack(self._buffer, at, self._seed, self.segment, offset)
        with memoryview(self._buffer) as buffer, buffer[:at] as packed:
            self._write(packed)
        if len(self._buffer) > _BUFFER_BYTES_MAX:
            self._buffer = bytearray()
        self._unproven = self.offset
        if announce:
            self._announced = self._synced
            self._left_unproven = False  # a sync of this segment covers those that were left before
        return locations

    def _put_synced(self) -> int:
        """Pack a SYNCED record about the last sync; returns its bytes."""
        body = SYNCED_BODY.pack(self._synced, self._synced_filled, self._synced_ms, self.generation)
        record = Record(Kind.SYNCED, body)
        return put_record(self._buffer, 0, record, self._seed, self.segment, self.offset)

    @property
    def is_proven(self) -> bool:
        """True if SYNCED records prove everything appended durable."""
        return self._unproven <= self._announced and not self._left_unproven

    def prove(self) -> None:
        """Append, unsynced, the SYNCED record that the next append would begin with. Everything appended has to be
        durable. DiskFullError: it was not written; DiskFailedError.
        """
        self.require_healthy()
        if not self.is_durable:
            raise BugError("a proof that a log is durable, which it is not")
        if self._file is None:
            self.create()
        if len(self._buffer) < _SYNCED_BYTES:
            self._buffer = bytearray(_SYNCED_BYTES)
        size = self._put_synced()
        with memoryview(self._buffer) as buffer, buffer[:size] as packed:
            self._write(packed)
        self._announced = self._synced
        self._left_unproven = False

    def _write(self, data: memoryview) -> None:
        assert self._file is not None
        size = len(data)
        try:
            self._file.append(data)
        except DiskError as error:
            self._cut(self._file)
            if isinstance(error, DiskFullError):
                raise
            self._fail(error)
        self.offset += size

    def _cut(self, file: AppendFile) -> None:
        """Cut off everything beyond the last record."""
        try:
            file.truncate(self.offset)
        except DiskError as error:
            self._fail(error)
        self._filled = self.offset

    def _fill(self, file: AppendFile) -> None:
        """Fill ahead, if little is left of the filled part."""
        if self._filled - self.offset >= _SMALL_SYNC_BYTES:
            return
        start = max(self._filled, self.offset)
        end = min(start + _FILL_BYTES, self._segment_bytes_max) // _BLOCK_BYTES * _BLOCK_BYTES
        if end <= start:
            return
        try:
            file.fill(start, filler(self._seed, start, end))
            self._filled = end
        except DiskError as error:
            self._cut(file)
            if not isinstance(error, DiskFullError):
                self._fail(error)

    def roll(self, footer: int | None) -> None:
        """Leave the segment, whose last footer lies at ``footer`` (0 none, None: it is a journal's, gets no seal and
        keeps its filler); the next append goes into the next one. DiskFullError: the log stays in this segment.
        """
        self.require_healthy()
        if footer is not None:
            seal = [Record(Kind.SEAL, OFFSET.pack(footer))]
            self.append(seal, record_bytes(seal))
            if self._file is not None and self._filled > self.offset:
                self._cut(self._file)
        if self._file is not None:
            self._left.append((self.segment, self._file))
            self._file = None
            self._left_unproven = True
        self._enter(self.segment + 1, SEGMENT_HEADER_BYTES)
        self._synced = self._announced = SEGMENT_HEADER_BYTES

    def drop(self, before: int) -> None:
        """The segments before ``before`` need not become durable any more."""
        for segment, file in self._left:
            if segment < before:
                file.close()
        self._left = [left for left in self._left if left[0] >= before]

    # ---- durability ---------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        """True if everything appended is durable."""
        return not self._syncing and not self._left and self._synced == self.offset

    def begin_sync(self) -> LogSync:
        """Begin a sync of everything appended so far; ``run`` it, then ``end_sync``. That of a log that has failed
        fails, too."""
        failure: DiskError | None = None
        if self.failed is not None:
            failure = DiskFailedError(self.failed)
        elif self._file is not None:
            try:
                self._fill_for_sync(self._file)
            except DiskFailedError as error:
                failure = error  # of this sync: its callers have to get it
        nearly_full = self.offset > self._nearly_full_bytes
        is_made = self._next is not None or any(each.makes_next for each in self._syncing)
        following = self.segment + 1
        sync = LogSync(
            self.segment,
            self.offset,
            self._filled,
            self._now_ms(),
            self._left,
            self._file,
            (lambda: self._make(following)) if nearly_full and not is_made else None,
            failure,
        )
        self._left = []
        self._syncing.append(sync)
        return sync

    def extend_sync(self, sync: LogSync) -> None:
        """Extend a sync that does not run yet, the last one that was begun, to everything appended so far."""
        sync.segment, sync.offset, sync.filled = self.segment, self.offset, self._filled
        sync.began_ms = self._now_ms()
        sync.file = self._file
        sync.left += self._left
        self._left = []
        self._was_small &= self._is_small()

    def _is_small(self) -> bool:
        return self.offset - self._synced <= _SMALL_SYNC_BYTES

    def _fill_for_sync(self, file: AppendFile) -> None:
        """Fill ahead if this sync and the one before are small."""
        was_small, self._was_small = self._was_small, self._is_small()
        if was_small and self._was_small:
            self._fill(file)

    def end_sync(self, sync: LogSync) -> None:
        """End a sync that has run. DiskFailedError ends the log."""
        if self._syncing.pop(0) is not sync:
            raise BugError("a sync of a log ends before one that was begun earlier")
        made = sync.pop_next()
        if made is not None:
            # Of this segment or the next one: a new segment takes over what an earlier sync has created of it.
            self._next = made
        if sync.error is not None:
            self._fail(sync.error)
        self._synced_ms = sync.began_ms
        self._durable_end = sync.segment, sync.offset, sync.began_ms
        if sync.segment == self.segment:
            self._synced = max(self._synced, sync.offset)
            self._synced_filled = min(sync.filled, self._filled)

    @property
    def durable_end(self) -> tuple[int, int, int]:
        """Segment and offset up to which the last sync made the log durable, and when it began, ms since 1970."""
        return self._durable_end

    def begin_writeback(self, size: int) -> Callable[[], None] | None:
        """If ``size`` bytes of the segment were not written back yet: a call, for any thread, that starts their
        write-back.
        """
        if self._file is None or self.offset - self._written_back < size:
            return None
        start, self._written_back = self._written_back, self.offset
        return self._file.writeback(start, self.offset - start)

    def sync(self) -> None:
        """Make everything appended durable, now. DiskFailedError ends the log."""
        self.require_healthy()
        if not self.is_durable:
            sync = self.begin_sync()
            sync.run()
            self.end_sync(sync)

    # ---- the end ---------------------------------------------------------------

    def require_healthy(self) -> None:
        """Raises DiskFailedError once the log has failed."""
        if self.failed is not None:
            raise DiskFailedError(f"no writes after a failure: {self.failed}")

    def _fail(self, error: DiskError) -> NoReturn:
        self.failed = str(error)
        raise DiskFailedError(str(error)) from error

    def close(self) -> None:
        """Close the files without syncing them."""
        for file in (self._file, self._next, *(file for _, file in self._left)):
            if file is not None:
                file.close()
        self._file = self._next = None
        self._left = []
