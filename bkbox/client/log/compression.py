"""The compressions of a log's entries. Their libraries are an extra, imported only when used.

zstd is the library that Python has from 3.14 on, in its version for older ones.
"""

from __future__ import annotations

import importlib
import sys
from enum import IntEnum
from typing import Any

from bkbox.base.text import error_text
from bkbox.errors import CompressionError, EncodingError

_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


class Compression(IntEnum):
    """The codes as stored in entries."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


def compress(kind: Compression, data: bytes) -> bytes:
    """Compress. Raises CompressionError."""
    match kind:
        case Compression.ZSTD:
            return bytes(_library(kind, _ZSTD).compress(data))
        case Compression.LZ4:
            return bytes(_library(kind, "lz4.block").compress(data, store_size=False))
        case Compression.NONE:
            return data


def decompress(kind: Compression, data: bytes, size: int) -> bytes:
    """Decompress data that must come to exactly ``size`` bytes; no more memory is used, whatever the data contains.
    Raises CompressionError, EncodingError.
    """
    found = data
    try:
        match kind:
            case Compression.ZSTD:
                library = _library(kind, _ZSTD)
                stream = library.ZstdDecompressor()
                found = stream.decompress(data, max_length=size + 1)
            case Compression.LZ4:
                library = _library(kind, "lz4.block")
                found = library.decompress(data, uncompressed_size=size)
    except CompressionError:
        raise
    except Exception as error:
        raise EncodingError(
            f"what is compressed with {kind.name} cannot be read: {error_text(error)}"
        ) from error
    if len(found) != size:
        raise EncodingError(f"{kind.name} gives {len(found)} bytes or more instead of {size}")
    return found


def check(kind: Compression) -> None:
    """Raises CompressionError if the library is missing."""
    compress(kind, b"")


def _library(kind: Compression, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CompressionError(
            f"compression {kind.name.lower()} needs the library {name.partition('.')[0]}: pip install 'bkbox[logs]'"
        ) from error
