"""One segment of a log: the layout of its bytes, and reading it from any state that a crash may have left.

Segment header, 64 bytes, big-endian, written and synced before any record:

    magic 8 | format u16 | flags u16 (0) | segment id u32 | disk uuid 16 |
    created ms since 1970 u64 | zeros 20 | crc32c u32

Record: header of 16 bytes, then the body:

    crc32c u32 | body length u32 | segment id u32 | mark u8 (0xb5) | kind u8 | header check u16

The header check is the low half of the CRC32C of magic, disk uuid, segment id, offset of the record (of these only
the segment id is in the record), length, segment id, mark and kind; the checksum continues that CRC over the body. So
a record verifies only at the position it was written for, and a search for the next good record after a bad one does
not take the payload of an entry, or a block's previous content, for a record. The header check distinguishes a record
that was cut short from one whose length is wrong.

After the last record there may be filler: a pattern of 8 bytes that depends on the segment and lies at multiples of
8. A segment was filled with it ahead of its records (segmented_log.py). It is no part of the segment, which ends
where its filler begins. Behind a SEAL, where nothing was ever written, zeros up to the end of a page count as filler.

A scan finds, in order: good records, ``Damage`` (a bad region with a good record after it), at most one ``TornTail``
(a bad region that reaches the end of the file or its filler) and at most one ``Unwritten`` (filler). It judges
nothing: whether a region may be cut or has lost something that was promised depends on what was synced, see scan.py.
To that end it reports of each bad region which part may never have been written (``Untouched``): a write interrupted
by a host crash leaves whole sectors of previous content, and rot does not.

Format 2 differs from format 1 in the SYNCED record (records.py). Segments of format 1 are read, and never appended
to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from bkbox.base.limits import RECORD_BODY_BYTES_MAX
from bkbox.base.values import frozen_struct
from bkbox.errors import DamagedError, FormatVersionError
from bkbox.native.checksum import crc32c
from bkbox.storage.files import ReadFile
from bkbox.storage.log.records import OFFSET, Buffer, Kind, Record

ENTRY_LOG_DIR = "entrylog"
ENTRY_LOG_MAGIC = b"BKBOXLOG"
JOURNAL_MAGIC = b"BKBOXJNL"
FORMAT = 2

SEGMENT_HEADER = struct.Struct(">8sHHI16sQ20x")
SEGMENT_HEADER_BYTES = 64
_CRC = struct.Struct(">I")
_CHECKED = struct.Struct(">IIBB")
_RECORD_HEADER = struct.Struct(">IIIBBH")
RECORD_HEADER_BYTES = _RECORD_HEADER.size
_MARK = 0xB5
_KINDS = frozenset(int(kind) for kind in Kind)
_SEGMENT_AT = 8  # offset of the segment id in a record header

FILLED_BYTES_MAX = 512 << 10
"""Largest distance that a segment is filled ahead of its records."""

_CHUNK_BYTES = 1 << 20
_FILLER_BYTES = 8
_SECTOR_BYTES = 512
_PAGE_BYTES = 4_096


@frozen_struct
class SegmentName:
    """Identity of a segment: log (magic), disk, id. Everything a checksum depends on besides offset and content."""

    magic: bytes
    disk: UUID
    segment: int

    @property
    def seed(self) -> int:
        return int(crc32c(self.magic + self.disk.bytes + _CRC.pack(self.segment)))


def segment_file_name(segment: int) -> str:
    """File name of a segment: ten decimal digits, so that names sort as ids do."""
    return f"{segment:010d}.log"


def parse_segment_file_name(name: str) -> int | None:
    """The id in a file name, None for other files."""
    stem, dot, suffix = name.partition(".")
    if dot and suffix == "log" and len(stem) == 10 and stem.isdecimal() and stem.isascii():
        return int(stem)
    return None


def encode_segment_header(name: SegmentName, created_ms: int) -> bytes:
    """The 64 bytes a segment starts with."""
    fields = SEGMENT_HEADER.pack(name.magic, FORMAT, 0, name.segment, name.disk.bytes, created_ms)
    return fields + _CRC.pack(crc32c(fields))


def decode_segment_header(data: bytes, path: Path) -> tuple[SegmentName, int]:
    """The segment that a header names, and its format. Raises DamagedError if the header is short or wrong,
    FormatVersionError if the format is newer.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        raise DamagedError(f"{path}: the segment header is cut short")
    fields, checksum = data[: SEGMENT_HEADER.size], data[SEGMENT_HEADER.size :]
    if _CRC.unpack(checksum)[0] != crc32c(fields):
        raise DamagedError(f"{path}: wrong checksum in the segment header")
    magic, version, _flags, segment, disk, _created = SEGMENT_HEADER.unpack(fields)
    if magic in (ENTRY_LOG_MAGIC, JOURNAL_MAGIC) and version > FORMAT:
        raise FormatVersionError(f"{path}: format {version}, this version reads up to {FORMAT}")
    return SegmentName(magic, UUID(bytes=disk), segment), version


def check_segment_header(data: bytes, name: SegmentName, path: Path) -> int:
    """The format of the segment. Raises what decode_segment_header does, and DamagedError if the header is of another
    segment.
    """
    found, version = decode_segment_header(data, path)
    if found != name:
        raise DamagedError(f"{path}: the header belongs to another segment or disk")
    return version


def filler(seed: int, start: int, end: int) -> bytes:
    """The filler of a segment with this seed from ``start`` to ``end``.

    Not zeros, which a lost write leaves, too, and nothing that an entry can hold unless its writer knows the disk's
    uuid.
    """
    unit = crc32c(b"filler", seed).to_bytes(4, "big") + crc32c(b"unwritten", seed).to_bytes(
        4, "big"
    )
    phase = start % _FILLER_BYTES
    return (unit * ((end - start) // _FILLER_BYTES + 2))[phase : phase + end - start]


def put_record(
    buffer: bytearray, at: int, record: Record, seed: int, segment: int, offset: int
) -> int:
    """Write a record to ``buffer`` from ``at`` on, as it lies at ``offset`` of a segment; returns its end.

    Batches of entries do the same for each of theirs (bookie/add_group.py).
    """
    kind, body = record
    length = len(body)
    check = _header_crc(seed, offset, length, segment, kind)
    checksum = crc32c(body, check)
    _RECORD_HEADER.pack_into(buffer, at, checksum, length, segment, _MARK, kind, check & 0xFFFF)
    end = at + RECORD_HEADER_BYTES + length
    buffer[at + RECORD_HEADER_BYTES : end] = body
    return end


def decode_record(data: Buffer, seed: int, segment: int, offset: int) -> Record | None:
    """The record that is the whole of data, read at ``offset``; None if it does not verify."""
    header = _decode_header(data, seed, segment, offset)
    if header is None or header.length != len(data) - RECORD_HEADER_BYTES:
        return None
    body = data[RECORD_HEADER_BYTES:]
    if crc32c(body, header.crc) != header.checksum:
        return None
    return Record(Kind(header.kind), body)


class _Header(NamedTuple):
    checksum: int
    length: int
    kind: int
    crc: int


def _header_crc(seed: int, offset: int, length: int, segment: int, kind: int) -> int:
    checked = _CHECKED.pack(length, segment, _MARK, kind)
    return int(crc32c(checked, crc32c(OFFSET.pack(offset), seed)))


def _decode_header(data: Buffer, seed: int, segment: int, offset: int) -> _Header | None:
    """The header at the start of data, None if it does not verify."""
    if len(data) < RECORD_HEADER_BYTES:
        return None
    checksum, length, found, mark, kind, check = _RECORD_HEADER.unpack_from(data)
    if (found, mark) != (segment, _MARK) or kind not in _KINDS or length > RECORD_BODY_BYTES_MAX:
        return None
    crc = _header_crc(seed, offset, length, segment, kind)
    return _Header(checksum, length, kind, crc) if crc & 0xFFFF == check else None


@frozen_struct
class ScannedRecord:
    """A good record and the offset of its header."""

    offset: int
    kind: Kind
    body: bytes

    @property
    def end(self) -> int:
        return self.offset + RECORD_HEADER_BYTES + len(self.body)


@frozen_struct
class Untouched:
    """The sectors of an invalid record that may still hold their previous content.

    ``filler``: one is filler, or lies beyond the end of the file. ``zeros_at``: offset of the last one that is zeros,
    -1 if none is; zeros are previous content only where the file had not been filled.
    """

    filler: bool = False
    zeros_at: int = -1


@frozen_struct
class Damage:
    """Bytes [start, end) hold no good record, and a good one follows."""

    start: int
    end: int
    untouched: Untouched = Untouched()


@frozen_struct
class TornTail:
    """Bytes [start, end) hold no good record, and nothing but filler follows.

    ``short``: they may be the beginning of a record, as an interrupted write leaves it; otherwise they are a whole,
    wrong record.
    """

    start: int
    end: int
    short: bool
    untouched: Untouched = Untouched()


@frozen_struct
class Unwritten:
    """Bytes [start, end of file) are filler."""

    start: int


RecordConsumer = Callable[[bytes, int, int], tuple[int, int]]
"""Takes records out of a chunk: called with its bytes, the offset of the first of them, and the offset where a record
begins. Returns the offset of the first record that it did not take; and, if that is not whole in the chunk, the bytes
of it that a chunk has to have for it to go on, otherwise 0.
"""


def scan(
    file: ReadFile, name: SegmentName, start: int, consume: RecordConsumer | None = None
) -> Iterator[ScannedRecord | Damage | TornTail | Unwritten]:
    """All of a segment from ``start``, where a record begins, to its end, but for the taken records. Raises
    DiskError.
    """
    reader = _Reader(file, name)
    offset = max(start, SEGMENT_HEADER_BYTES)
    while offset < reader.size:
        if consume is not None:
            consumed, offset = offset, reader.consumed_from(offset, consume)
            if offset > consumed:
                continue
        record = reader.record_at(offset)
        if record is not None:
            yield record
            offset = record.end
            continue
        filled = reader.filled_from(offset)
        if reader.is_sealed_at(offset) and reader.is_cleared(offset, filled):
            filled = offset
        found = reader.next_good(offset + 1) if filled > offset else None
        if found is None:
            if filled > offset:
                short = reader.is_cut_at(offset, filled)
                untouched = Untouched(filler=True) if short else reader.untouched(offset)
                yield TornTail(offset, filled, short, untouched)
            if filled < reader.size:
                yield Unwritten(filled)
            return
        yield Damage(offset, found, reader.untouched(offset))
        offset = found


class _Reader:
    """Records of one file through a window of it in memory."""

    def __init__(self, file: ReadFile, name: SegmentName) -> None:
        self._file = file
        self._seed = name.seed
        self._segment = name.segment
        self.size = file.size()
        self._base = 0
        self._window = b""

    def _bytes(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
        if offset < self._base or offset + length > self._base + len(self._window):
            self._base = offset
            self._window = self._file.pread(offset, max(length, _CHUNK_BYTES))
        at = offset - self._base
        return self._window[at : at + length]

    def consumed_from(self, offset: int, consume: RecordConsumer) -> int:
        """The offset of the first record, from ``offset`` on, that is not taken."""
        needed = RECORD_HEADER_BYTES
        while offset + needed <= self.size:
            self._bytes(offset, needed)
            reached, more = consume(self._window, self._base, offset)
            if more == 0 or (reached == offset and more <= needed):
                return reached
            offset, needed = reached, more
        return offset

    def _header(self, offset: int) -> _Header | None:
        data = self._bytes(offset, RECORD_HEADER_BYTES)
        return _decode_header(data, self._seed, self._segment, offset)

    def record_at(self, offset: int) -> ScannedRecord | None:
        header = self._header(offset)
        if header is None or offset + RECORD_HEADER_BYTES + header.length > self.size:
            return None
        data = self._bytes(offset, RECORD_HEADER_BYTES + header.length)
        record = decode_record(data, self._seed, self._segment, offset)
        return None if record is None else ScannedRecord(offset, record.kind, bytes(record.body))

    def filled_from(self, offset: int) -> int:
        """The offset, not before ``offset``, from which on everything is filler; the end of the file if nothing is."""
        start = max(offset, self.size - FILLED_BYTES_MAX)
        data = self._bytes(start, self.size - start)
        expected = filler(self._seed, start, self.size)
        # Halves the undecided part, so that each byte is compared about twice.
        other, filled = 0, len(data)
        while other < filled:
            middle = (other + filled) // 2
            if data[middle:filled] == expected[middle:filled]:
                filled = middle
            else:
                other = middle + 1
        return start + filled

    def is_sealed_at(self, end: int) -> bool:
        """True if a SEAL ends there."""
        start = end - RECORD_HEADER_BYTES - OFFSET.size
        record = self.record_at(start) if start >= SEGMENT_HEADER_BYTES else None
        return record is not None and record.kind is Kind.SEAL

    def is_cleared(self, start: int, end: int) -> bool:
        """True if it is zeros to the end of a page at most. A file that is cut has the rest of its last page cleared,
        and that may be durable before the cut is.
        """
        page_end = start - start % -_PAGE_BYTES
        return end <= page_end and not any(self._bytes(start, end - start))

    def is_cut_at(self, offset: int, end: int) -> bool:
        """True if a record that may begin at ``offset`` is not whole at ``end``, where the file ends or its filler
        begins.

        A whole record may end with a few bytes that are filler by chance, but an interrupted write ends with a page.
        """
        if offset + RECORD_HEADER_BYTES > end:
            return True
        header = self._header(offset)
        if header is None:
            return False
        missing = offset + RECORD_HEADER_BYTES + header.length - end
        at_page = end == self.size or end % _SECTOR_BYTES == 0
        return missing >= (1 if at_page else _FILLER_BYTES)

    def untouched(self, offset: int) -> Untouched:
        """The part of the invalid record at an offset that may never have been written. A sector is written as a
        whole or not at all; of a record whose header is bad no more than the header is known.
        """
        header = self._header(offset)
        end = offset + RECORD_HEADER_BYTES + (0 if header is None else header.length)
        if end > self.size:
            return Untouched(filler=True)
        filled, zeros_at = False, -1
        start = offset
        while start < end:
            stop = min(start - start % _SECTOR_BYTES + _SECTOR_BYTES, self.size)
            sector = self._bytes(start, stop - start)
            if sector[:_FILLER_BYTES] == filler(
                self._seed, start, min(start + _FILLER_BYTES, stop)
            ):
                filled = True
            elif not any(sector):
                zeros_at = start
            start = stop
        return Untouched(filled, zeros_at)

    def next_good(self, offset: int) -> int | None:
        """The first offset from ``offset`` on where a record verifies."""
        pattern = _CRC.pack(self._segment) + bytes((_MARK,))
        position = offset + _SEGMENT_AT
        while position + len(pattern) <= self.size:
            chunk = self._file.pread(position, _CHUNK_BYTES)
            at = chunk.find(pattern)
            while at >= 0:
                candidate = position + at - _SEGMENT_AT
                if self.record_at(candidate) is not None:
                    return candidate
                at = chunk.find(pattern, at + 1)
            if len(chunk) < len(pattern):
                return None
            position += len(chunk) - len(pattern) + 1
        return None
