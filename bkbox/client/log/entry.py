"""The format of a log's entries: records, or the state that exactly-once appends need. Pure.

All integers are big-endian. An entry is

=====  ================================================================================================
bytes  what
=====  ================================================================================================
3      ``bkl``
1      format, 1
1      kind: 1 records, 2 state
1      compression of the rest (compression.py)
8      id of the last entry of this ledger that holds state, or of this one
4      size of the rest when it is not compressed
..     the rest
=====  ================================================================================================

The rest of records is, for each: time in ms since 1970 (8), size of the payload (4), size of the writer id (1), the
writer id in UTF-8, the sequence number (8) if there is a writer id, the payload. The rest of state is defined by
sequences.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

from bkbox.base.limits import FRAME_BYTES_MAX
from bkbox.base.text import error_text
from bkbox.base.values import frozen_struct
from bkbox.client.log.compression import Compression, compress, decompress
from bkbox.errors import EncodingError

MAGIC = b"bkl"
FORMAT = 1

HEADER = struct.Struct(">3sBBBqI")
_RECORD = struct.Struct(">qIB")
_SEQUENCE = struct.Struct(">q")

WRITER_ID_BYTES_MAX = 255
RECORD_OVERHEAD_BYTES = _RECORD.size + _SEQUENCE.size
"""Bytes of a record beside its payload and its writer id, at most."""

RAW_BYTES_MAX = 64 * FRAME_BYTES_MAX
"""Bytes of a decompressed entry, at most."""


class Kind(IntEnum):
    RECORDS = 1
    STATE = 2


@frozen_struct
class RawRecord:
    """A record without its position. Without a ``writer_id`` the ``sequence`` is meaningless."""

    payload: bytes
    timestamp_ms: int
    writer_id: str = ""
    sequence: int = -1

    @property
    def size(self) -> int:
        """Bytes in an entry that is not compressed, at most."""
        return len(self.payload) + len(self.writer_id.encode()) + RECORD_OVERHEAD_BYTES


@frozen_struct
class LogEntry:
    """A decoded entry. ``state``: the bytes of sequences.py, for kind STATE; ``state_entry``: see the module."""

    kind: Kind
    state_entry: int
    records: tuple[RawRecord, ...]
    state: bytes


def encode_records(
    records: Iterable[RawRecord], state_entry: int, compression: Compression
) -> bytes:
    """Encode records as an entry. Raises CompressionError."""
    parts: list[bytes] = []
    for record in records:
        writer_id = record.writer_id.encode()
        parts.append(_RECORD.pack(record.timestamp_ms, len(record.payload), len(writer_id)))
        if writer_id:
            parts += (writer_id, _SEQUENCE.pack(record.sequence))
        parts.append(record.payload)
    return _encode(Kind.RECORDS, state_entry, b"".join(parts), compression)


def encode_state(state: bytes, state_entry: int, compression: Compression) -> bytes:
    """Encode state as an entry. Raises CompressionError."""
    return _encode(Kind.STATE, state_entry, state, compression)


def decode(data: bytes) -> LogEntry:
    """Decode an entry. Raises EncodingError, CompressionError."""
    if len(data) < HEADER.size:
        raise EncodingError(f"an entry of {len(data)} bytes is none of a log")
    magic, version, kind, compression, state_entry, size = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise EncodingError("an entry does not begin as those of a log do")
    if version != FORMAT:
        raise EncodingError(
            f"an entry of a log has format {version}; this version of bkbox reads {FORMAT}"
        )
    if size > RAW_BYTES_MAX:
        raise EncodingError(f"an entry of a log says that it comes to {size} bytes")
    try:
        kind, compression = Kind(kind), Compression(compression)
    except ValueError as error:
        raise EncodingError(f"an entry of a log: {error}") from None
    body = decompress(compression, data[HEADER.size :], size)
    if kind is Kind.STATE:
        return LogEntry(kind, state_entry, (), body)
    return LogEntry(kind, state_entry, tuple(_records(body)), b"")


def _records(body: bytes) -> Iterable[RawRecord]:
    at = 0
    try:
        while at < len(body):
            timestamp_ms, size, id_size = _RECORD.unpack_from(body, at)
            at += _RECORD.size
            writer_id, sequence = "", -1
            if id_size:
                writer_id = body[at : at + id_size].decode()
                at += id_size
                (sequence,) = _SEQUENCE.unpack_from(body, at)
                at += _SEQUENCE.size
            payload = body[at : at + size]
            at += size
            if at > len(body):
                raise EncodingError("the records of an entry of a log are cut off")
            yield RawRecord(payload, timestamp_ms, writer_id, sequence)
    except (struct.error, UnicodeDecodeError) as error:
        raise EncodingError(
            f"the records of an entry of a log cannot be read: {error_text(error)}"
        ) from None


def _encode(kind: Kind, state_entry: int, body: bytes, compression: Compression) -> bytes:
    size, packed = len(body), compress(compression, body)
    if len(packed) >= size:
        packed, compression = body, Compression.NONE
    return HEADER.pack(MAGIC, FORMAT, kind, compression, state_entry, size) + packed
