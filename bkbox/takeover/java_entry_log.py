"""Java's entry log files: ``<log id, hexadecimal>.log``, big-endian.

=========  ==========================================================================
header     "BKLO" | version u32 (0, 1) | offset of the ledgers map u64 | ledgers u32,
           filled with zeros to 1024 bytes
entry      length u32 | ledger i64 | entry i64 | rest of the entry as on the wire
map        length u32 | ledger i64 = -1 | entry i64 = -2 | ledgers u32 |
           (ledger i64 | bytes u64)*; at most 10,000 ledgers, then the next one
=========  ==========================================================================

An entry's position is the offset of its ledger id, and the bytes of a ledger in the map include the length fields. A
length that is not positive is padding, which ends at the next byte that begins a positive one. Records of negative
ledgers are not entries. A map exists once the file is complete: its offset is 0 before. Files have no checksums: the
map alone shows that entries before it are missing. Source: DefaultEntryLogger.java, directentrylogger/Header.java.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bkbox.base.text import counted, quoted
from bkbox.errors import DamagedError
from bkbox.storage.files import AppendFile, ReadFile

HEADER_BYTES = 1024
LENGTH_BYTES = 4
ENTRY_BYTES_MIN = 32
"""Ledger, entry, LAC and length of an entry as on the wire."""
LOG_ID_MAX = 2**31 - 1

_MAGIC = b"BKLO"
_HEADER = struct.Struct(">4sIQI")
_VERSION = 1
_LENGTH = struct.Struct(">i")
_START = struct.Struct(">iqq")
_MAP = struct.Struct(">iqqI")
_MAP_ITEM = struct.Struct(">qQ")
_MAP_LEDGER = -1
_MAP_ENTRY = -2
_MAP_LEDGERS_MAX = 10_000
_NAME = re.compile(r"([0-9a-f]{1,16})\.log")
_BLOCK_BYTES = 4 << 20


def log_file_name(log_id: int) -> str:
    return f"{log_id:x}.log"


def parse_log_file_name(name: str) -> int | None:
    """The id of an entry log file, None for any other file (``.log.compacting``, ``.log.compacted`` among them)."""
    found = _NAME.fullmatch(name)
    return int(found[1], 16) if found else None


class JavaEntry(NamedTuple):
    """An entry: its position in the file, and its bytes as on the wire."""

    position: int
    ledger: int
    entry: int
    body: bytes


class EntryLogScan:
    """Iterates over the entries of a file in order. ``damage``, once that has ended: why entries may be missing, as
    text; empty if none is. A file without a map may end in the middle of an entry: what the bookie had promised of it
    is in the journal.
    """

    def __init__(self, file: ReadFile, path: Path) -> None:
        """Raises DamagedError if this is no entry log, DiskError."""
        self._file = file
        self._size = file.size()
        header = file.pread(0, HEADER_BYTES)
        self.damage = ""
        self._map_at = 0
        if len(header) < HEADER_BYTES:
            self._size = 0  # created, and not written to before the bookie ended
            return
        magic, version, self._map_at, self._ledgers = _HEADER.unpack_from(header)
        if magic != _MAGIC or version > _VERSION:
            raise DamagedError(
                f"{path}: not an entry log of a known version ({quoted(magic)}, version {version})"
            )

    def __iter__(self) -> Iterator[JavaEntry]:
        found: dict[int, int] = {}
        mapped: dict[int, int] = {}
        at, base, block = HEADER_BYTES, 0, b""
        while at + LENGTH_BYTES <= self._size:
            if not base <= at <= base + len(block) - _START.size:
                base, block = at, self._file.pread(at, _BLOCK_BYTES)
            if len(block) - (at - base) < _START.size:
                break
            length, ledger, entry = _START.unpack_from(block, at - base)
            if length <= 0:
                at = self._after_padding(at)
                continue
            position, end = at + LENGTH_BYTES, at + LENGTH_BYTES + length
            if end > self._size:
                break
            at = end
            if ledger < 0:
                if (ledger, entry) == (_MAP_LEDGER, _MAP_ENTRY):
                    mapped.update(_parse_map(self._file.pread(position, length)))
                continue
            if entry < 0 or length < ENTRY_BYTES_MIN:
                self.damage = f"offset {position}: entry {entry} of {length} bytes"
                continue
            found[ledger] = found.get(ledger, 0) + LENGTH_BYTES + length
            body = block[position - base : end - base]
            if len(body) < length:
                body = self._file.pread(position, length)
            yield JavaEntry(position, ledger, entry, body)
        if not self.damage:
            self.damage = self._compared(found, mapped)

    def _after_padding(self, at: int) -> int:
        """The first offset behind ``at`` where a positive length begins; the end of the file if there is none."""
        at += 1
        while at + LENGTH_BYTES <= self._size:
            block = self._file.pread(at, _BLOCK_BYTES)
            zeros = len(block) - len(block.lstrip(b"\0"))
            offset = max(zeros - (LENGTH_BYTES - 1), 0)
            while offset + LENGTH_BYTES <= len(block):
                if _LENGTH.unpack_from(block, offset)[0] > 0:
                    return at + offset
                offset += 1
            at += max(offset, 1)
        return self._size

    def _compared(self, found: dict[int, int], mapped: dict[int, int]) -> str:
        if not self._map_at:
            return ""
        if len(mapped) < self._ledgers:
            return f"its map names {len(mapped)} of {counted(self._ledgers, 'ledger')}"
        for ledger, size in mapped.items():
            if found.get(ledger, 0) < size:
                return f"ledger {ledger} has {found.get(ledger, 0)} of {size} bytes"
        return ""


def _parse_map(body: bytes) -> dict[int, int]:
    offset = _MAP.size - LENGTH_BYTES
    usable = len(body) - (len(body) - offset) % _MAP_ITEM.size
    return dict(_MAP_ITEM.iter_unpack(body[offset:usable]))


class EntryLogWriter:
    """Writes a file from its beginning; ``end`` completes it."""

    def __init__(self, file: AppendFile) -> None:
        """Anything in the file is cut away. DiskFullError, DiskFailedError."""
        self._file = file
        self._position = HEADER_BYTES
        self._ledgers: dict[int, int] = {}
        self._buffer = bytearray()
        file.truncate(0)
        file.append(_HEADER.pack(_MAGIC, _VERSION, 0, 0).ljust(HEADER_BYTES, b"\0"))

    def append(self, ledger: int, body: bytes | memoryview) -> int:
        """Append an entry as on the wire; its position."""
        size = LENGTH_BYTES + len(body)
        self._buffer += _LENGTH.pack(len(body))
        self._buffer += body
        self._ledgers[ledger] = self._ledgers.get(ledger, 0) + size
        at = self._position + LENGTH_BYTES
        self._position += size
        if len(self._buffer) >= _BLOCK_BYTES:
            self._flush()
        return at

    def end(self) -> None:
        """Append the map, enter it in the header, and make the file durable."""
        at = self._position
        items = sorted(self._ledgers.items())
        for first in range(0, len(items), _MAP_LEDGERS_MAX):
            part = items[first : first + _MAP_LEDGERS_MAX]
            length = _MAP.size - LENGTH_BYTES + _MAP_ITEM.size * len(part)
            self._buffer += _MAP.pack(length, _MAP_LEDGER, _MAP_ENTRY, len(part))
            self._buffer += b"".join(_MAP_ITEM.pack(*item) for item in part)
        self._flush()
        self._file.fdatasync()
        if items:
            self._file.seek(0)
            self._file.append(_HEADER.pack(_MAGIC, _VERSION, at, len(items)))
            self._file.fdatasync()

    def _flush(self) -> None:
        self._file.append(bytes(self._buffer))
        self._buffer.clear()
