"""The index files of Java's interleaved and sorted storage: one for each ledger, big-endian.

``<bits 8-15 of the id>/<bits 0-7>/<id>.idx``, all hexadecimal without leading zeros. The header fills 1024 bytes:
"BKLE" | version u32 (0, 1) | length u32 | master key | state u32 (1 fenced) and, in version 1, length u32 | packet of
the explicit LAC. Entry n's location follows at 1024 + 8 n: log id u32 | position u32, zeros if there is no such entry.
The file ends with a whole page (by default 8192 bytes) of
locations, of which at least one is not zeros. Source: FileInfo.java, IndexPersistenceMgr.java.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from bkbox.errors import DamagedError
from bkbox.storage.files import Files
from bkbox.takeover.java_ledger import JavaLedger

HEADER_BYTES = 1024
LOCATION = struct.Struct(">II")
PAGE_BYTES = 8192
"""Size of a page by default."""

_MAGIC = b"BKLE"
_VERSION = 1
_WORD = struct.Struct(">I")
_FENCED = 1
_FOLDER = re.compile(r"[0-9a-f]{1,2}")
_NAME = re.compile(r"([0-9a-f]{1,16})\.(?:idx|rloc)")


def index_file_path(folder: Path, ledger: int) -> Path:
    return folder / f"{ledger >> 8 & 0xFF:x}" / f"{ledger & 0xFF:x}" / f"{ledger:x}.idx"


def index_files(files: Files, folder: Path) -> Iterator[tuple[int, Path]]:
    """Ledger id and path of each index file below a ledger directory. DiskError."""
    for high in filter(_FOLDER.fullmatch, files.listdir(folder)):
        for low in filter(_FOLDER.fullmatch, files.listdir(folder / high)):
            for name in files.listdir(folder / high / low):
                if found := _NAME.fullmatch(name):
                    yield int(found[1], 16), folder / high / low / name


def decode_header(data: bytes, path: Path) -> JavaLedger | None:
    """The state in a header, None if the file was created and its header not written yet. DamagedError."""
    if not data.strip(b"\0"):
        return None
    try:
        if data[: len(_MAGIC)] != _MAGIC:
            raise DamagedError(f"{path}: not a ledger index")
        at = len(_MAGIC)
        version = _WORD.unpack_from(data, at)[0]
        if version > _VERSION:
            raise DamagedError(f"{path}: a ledger index of version {version}, which is not known")
        key, at = _value(data, at + _WORD.size)
        bits = _WORD.unpack_from(data, at)[0]
        lac = b""
        if version >= 1:
            lac, _ = _value(data, at + _WORD.size)
    except struct.error as error:
        raise DamagedError(f"{path}: the header of the ledger index is cut off") from error
    return JavaLedger(key, bool(bits & _FENCED), lac or None)


def _value(data: bytes, at: int) -> tuple[bytes, int]:
    length = _WORD.unpack_from(data, at)[0]
    end = at + _WORD.size + length
    if end > len(data):
        raise struct.error
    return data[at + _WORD.size : end], end


def encode_header(ledger: JavaLedger) -> bytes:
    """The header of version 1."""
    lac = ledger.explicit_lac or b""
    fields = (
        _MAGIC,
        _WORD.pack(_VERSION),
        _WORD.pack(len(ledger.master_key)),
        ledger.master_key,
        _WORD.pack(_FENCED * ledger.fenced),
        _WORD.pack(len(lac)),
        lac,
    )
    return b"".join(fields).ljust(HEADER_BYTES, b"\0")
