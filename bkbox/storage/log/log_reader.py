"""The reading side of a log: single records of its segments, by location.

Segments stay open, OPEN_SEGMENTS_MAX of them. Only readahead.py reads ahead, because it knows the index: the next
bytes of a segment are as a rule another ledger's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bkbox.base.limits import OPEN_SEGMENTS_MAX
from bkbox.errors import DamagedError, DiskError
from bkbox.storage.files import Files, ReadFile
from bkbox.storage.log.records import Location, Record
from bkbox.storage.log.segment import RECORD_HEADER_BYTES, SegmentName, decode_record

_BUFFER_BYTES = 64 << 10


class LogReader:
    """The segments of one log. Reads raise DiskError; DamagedError if the segment is missing."""

    def __init__(
        self, files: Files, path_of: Callable[[int], Path], name_of: Callable[[int], SegmentName]
    ) -> None:
        self._files = files
        self._path_of = path_of
        self._name_of = name_of
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._probe = self._buffer[:1]
        self._open: OrderedDict[int, tuple[ReadFile, int]] = OrderedDict()

    def read(self, location: Location) -> Record:
        """The record at a location. DamagedError if it does not verify."""
        segment, offset, length = location
        file, seed = self._segment(segment)
        data = file.pread(offset, RECORD_HEADER_BYTES + length)
        record = decode_record(data, seed, segment, offset)
        if record is None or len(record.body) != length:
            raise DamagedError(
                f"{self._path_of(segment)}: no good record of {length} bytes at offset {offset}"
            )
        return record

    def length_at(self, segment: int, offset: int) -> int:
        """The length of a record's body, as its header gives it; not verified."""
        file, _ = self._segment(segment)
        return int.from_bytes(file.pread(offset, RECORD_HEADER_BYTES)[4:8], "big")

    def seed_of(self, segment: int) -> int:
        """The seed of the checksums of a segment's records."""
        return self._segment(segment)[1]

    def read_into(self, segment: int, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer``; returns the number of bytes, fewer only if the segment ends."""
        return self._segment(segment)[0].read_into(offset, buffer)

    def read_cached(self, segment: int, offset: int, buffer: memoryview) -> int:
        """As read_into, but only as far as no wait for the disk is needed."""
        return self._segment(segment)[0].read_cached(offset, buffer)

    def await_read(self, segment: int, offset: int, size: int) -> None:
        """Wait until bytes are in memory. Errors are left to the later read of them."""
        end = offset + size
        with suppress(DiskError):
            while offset < end:
                buffer = self._buffer[: end - offset]
                self._segment(segment)[0].read_into(offset, buffer)
                offset += len(buffer)

    def is_cached(self, segment: int, offset: int) -> bool:
        """True if a byte is in memory."""
        return self._segment(segment)[0].read_cached(offset, self._probe) > 0

    def want(self, segment: int, offset: int, size: int) -> None:
        """Start reading bytes into memory, without waiting."""
        self._segment(segment)[0].want(offset, size)

    def release(self, segment: int, offset: int, size: int) -> None:
        """Let bytes leave memory."""
        self._segment(segment)[0].release(offset, size)

    def _segment(self, segment: int) -> tuple[ReadFile, int]:
        if (found := self._open.get(segment)) is not None:
            self._open.move_to_end(segment)
            return found
        path = self._path_of(segment)
        if not self._files.exists(path):
            raise DamagedError(f"{path} is missing")
        while len(self._open) >= OPEN_SEGMENTS_MAX:
            _, (oldest, _) = self._open.popitem(last=False)
            oldest.close()
        found = self._files.open_read(path), self._name_of(segment).seed
        self._open[segment] = found
        return found

    def size_of(self, segment: int) -> int:
        """Bytes of a segment's file."""
        return self._segment(segment)[0].size()

    def leave(self, segment: int) -> None:
        """Close a segment, if it is open."""
        found = self._open.pop(segment, None)
        if found is not None:
            found[0].close()

    def close(self) -> None:
        """Close all files."""
        for file, _ in self._open.values():
            file.close()
        self._open.clear()
