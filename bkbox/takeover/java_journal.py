"""Java's journal: ``<id, hexadecimal>.txn`` files, and the mark from which they count, big-endian.

A file begins with "BKLG" and its version u32: 4 has 8 bytes of header, 5 and 6 fill a sector of 512 bytes; version 1 is
a file without a header. Then come records: length u32, and that many bytes, which begin with ledger i64 | entry i64.
Length 0 or the end of the file ends it. Length -0x100 is padding: a length, and as many bytes to skip.

A record with an entry id of 0 or more is an entry as on the wire. Others change the state of their ledger:

========  ==========  =============================================
entry id  versions    rest of the record
========  ==========  =============================================
-0x1000   3 and up    length u32 | master key
-0x2000   4 and up    nothing: the ledger is fenced
-0x8000   6           length u32 | explicit LAC packet
========  ==========  =============================================

The mark, ``lastMark`` in each ledger directory (``lastMark.<n>`` for the n-th of several journal directories), is file
id u64 | offset u64; the greatest counts. Everything before it is in entry logs and index. Source: Journal.java,
JournalChannel.java, BookieImpl.java.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bkbox.errors import DamagedError
from bkbox.storage.files import AppendFile, Files, ReadFile

MASTER_KEY_ENTRY = -0x1000
FENCE_ENTRY = -0x2000
EXPLICIT_LAC_ENTRY = -0x8000

_MAGIC = b"BKLG"
_HEADER = struct.Struct(">4sI")
_SECTOR_BYTES = 512
_VERSIONS = range(2, 7)
_SECTOR_SINCE = 5
_LENGTH = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_PADDING = -0x100
_MARK = struct.Struct(">QQ")
_NAME = re.compile(r"([0-9a-f]{1,16})\.txn")
_BLOCK_BYTES = 4 << 20


class Mark(NamedTuple):
    """A position in a journal."""

    file: int = 0
    offset: int = 0


class JournalRecord(NamedTuple):
    """A record: ``body`` is all of it for an entry, else what follows the two ids."""

    ledger: int
    entry: int
    body: bytes


def mark_name(journal: int, journals: int) -> str:
    """The file with the mark of one of the journal directories, counted from 0."""
    return "lastMark" if journals == 1 else f"lastMark.{journal}"


def read_mark(files: Files, ledger_dirs: Iterable[Path], name: str) -> Mark:
    """The greatest mark; 0, 0 if no directory has one. Raises DamagedError for a broken one, DiskError."""
    found = [Mark()]
    for folder in ledger_dirs:
        data = files.read_bytes(folder / name)
        if data is None:
            continue
        if len(data) < _MARK.size:
            raise DamagedError(f"{folder / name}: {len(data)} bytes are not a mark of the journal")
        found.append(Mark(*_MARK.unpack_from(data)))
    return max(found)


def encode_mark(mark: Mark) -> bytes:
    return _MARK.pack(*mark)


def files_since(files: Files, journal_dir: Path, mark: Mark) -> list[tuple[Path, int]]:
    """The files to replay, oldest first, each with the offset to begin at, 0 for its beginning. Raises DamagedError if
    the file of the mark is missing, DiskError.
    """
    names = (_NAME.fullmatch(name) for name in files.listdir(journal_dir))
    ids = sorted(int(found[1], 16) for found in names if found)
    wanted = [each for each in ids if each >= mark.file]
    if mark.file and wanted[:1] != [mark.file]:
        raise DamagedError(
            f"{journal_dir / journal_file_name(mark.file)} is missing: Java's bookie would not start either. Entries "
            "that it acknowledged last may be in it"
        )
    return [
        (journal_dir / journal_file_name(each), mark.offset if each == mark.file else 0)
        for each in wanted
    ]


def journal_file_name(file: int) -> str:
    return f"{file:x}.txn"


def records(file: ReadFile, path: Path, start: int) -> Iterator[JournalRecord]:
    """The records of a file from ``start`` on; 0 is its first. Raises DamagedError, DiskError."""
    size = file.size()
    version, first = _read_header(file, path)
    at, base, block = start or first, 0, b""
    while at + _LENGTH.size <= size:
        if not base <= at <= base + len(block) - 2 * _LENGTH.size:
            base, block = at, file.pread(at, _BLOCK_BYTES)
        length = _LENGTH.unpack_from(block, at - base)[0]
        if length == _PADDING and version >= _SECTOR_SINCE:
            if len(block) - (at - base) < 2 * _LENGTH.size:
                return
            at += 2 * _LENGTH.size + max(_LENGTH.unpack_from(block, at - base + 4)[0], 0)
            continue
        if length == 0:
            return
        if length < 0:
            raise DamagedError(f"{path}: a record of length {length} at offset {at}")
        at += _LENGTH.size
        if at + length > size:
            return  # the write that the end of the bookie interrupted
        body = block[at - base : at - base + length]
        if len(body) < length:
            body = file.pread(at, length)
        at += length
        if length < _IDS.size:
            raise DamagedError(f"{path}: a record of {length} bytes at offset {at - length}")
        ledger, entry = _IDS.unpack_from(body)
        yield JournalRecord(ledger, entry, body if entry >= 0 else _state_body(body, entry, path))


def _read_header(file: ReadFile, path: Path) -> tuple[int, int]:
    """The version of a file and the offset of its first record."""
    header = file.pread(0, _HEADER.size)
    if len(header) < _HEADER.size or header[: len(_MAGIC)] != _MAGIC:
        return 1, 0
    version = _HEADER.unpack(header)[1]
    if version not in _VERSIONS:
        raise DamagedError(f"{path}: a journal of version {version}, which is not known")
    return version, _SECTOR_BYTES if version >= _SECTOR_SINCE else _HEADER.size


def _state_body(body: bytes, entry: int, path: Path) -> bytes:
    rest = body[_IDS.size :]
    if entry not in (MASTER_KEY_ENTRY, EXPLICIT_LAC_ENTRY):
        return rest
    if len(rest) < _LENGTH.size:
        raise DamagedError(f"{path}: a record {entry} without a length")
    length = _LENGTH.unpack_from(rest)[0]
    if not 0 <= length <= len(rest) - _LENGTH.size:
        raise DamagedError(f"{path}: a record {entry} with a value of {length} bytes")
    return rest[_LENGTH.size : _LENGTH.size + length]


def write_journal(file: AppendFile, found: Iterable[JournalRecord]) -> None:
    """Write a file of version 6 with these records, durably."""
    file.truncate(0)
    data = bytearray(_HEADER.pack(_MAGIC, _VERSIONS[-1]).ljust(_SECTOR_BYTES, b"\0"))
    for record in found:
        body = _encoded(record)
        data += _LENGTH.pack(len(body)) + body
        if len(data) >= _BLOCK_BYTES:
            file.append(bytes(data))
            data.clear()
    file.append(bytes(data))
    file.fdatasync()


def _encoded(record: JournalRecord) -> bytes:
    if record.entry >= 0:
        return record.body
    start = _IDS.pack(record.ledger, record.entry)
    if record.entry in (MASTER_KEY_ENTRY, EXPLICIT_LAC_ENTRY):
        return start + _LENGTH.pack(len(record.body)) + record.body
    return start + record.body
