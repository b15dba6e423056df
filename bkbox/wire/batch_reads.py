"""Responses to batch reads: entries one after another, each after its size in 4 bytes.

An entry is header (ledger, entry, LAC, length), digest and payload (wire/digest.py). Functions take the whole body of
the response, and the offset of the first entry in it.
"""

from __future__ import annotations

from typing import TypeVar

from bkbox.errors import FrameError
from bkbox.native import memory, objects

_PREFIX = 4
_HEADER = 32
_CRC32C = 4
_PAYLOAD = 4

Entry = TypeVar("Entry", bound=tuple[int, int, int, int, bytes])


def check_sizes(body: bytes, start: int) -> None:
    """Raises FrameError unless the entries fill the body."""
    data = body
    end = len(body)
    at = start
    while at < end:
        size = memory.i32(data, at) if end - at >= _PREFIX else -1
        if not 0 <= size <= end - at - _PREFIX:
            raise FrameError(f"a batch of entries ends within one, {end - at} bytes are left")
        at += _PREFIX + size


def verified(
    body: bytes,
    start: int,
    ledger: int,
    first: int,
    count: int,
    digest_size: int,
    kind: type[Entry],
) -> list[Entry]:
    """The entries ``first``, ``first`` + 1, …, at most ``count``, up to the first invalid one.

    ``digest_size``: that of a CRC32C, or 0 if entries have none. ``kind``: the named tuple of ledger, entry, LAC,
    length and payload. ``body`` has passed check_sizes.
    """
    entries: list[Entry] = []
    data = body
    end = len(body)
    entry = first
    while start < end and entry < first + count:
        at = start + _PREFIX
        start = at + memory.i32(data, start)
        payload = at + _HEADER + digest_size
        if payload > start or memory.i64(data, at) != ledger or memory.i64(data, at + 8) != entry:
            break
        if digest_size == _CRC32C:
            crc = memory.crc32c(data, at, at + _HEADER, 0)
            if memory.crc32c(data, payload, start, crc) != memory.u32(data, at + _HEADER):
                break
        lac = memory.i64(data, at + 16)
        length = memory.i64(data, at + 24)
        fields = ledger, entry, lac, length, objects.part(data, payload, start)
        entries.append(objects.record(kind, fields))
        entry += 1
    return entries


def largest_payload(entries: list[Entry]) -> int:
    """Bytes of the largest payload; 0 if there is none. ``entries``: a list of what ``verified`` makes."""
    largest = 0
    for entry in entries:
        payload = objects.field(entry, _PAYLOAD)
        size = len(payload)
        if size > largest:
            largest = size
    return largest
