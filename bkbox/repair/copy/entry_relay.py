"""Entries that go on to another bookie as they came: out of the response to a batch read, into frames of adds.

An entry is header (ledger, entry, LAC, length), digest and payload (wire/digest.py). In the response each stands after
its size in 4 bytes; in a frame of version 2 after the length of the frame, the packet header and the master key
(wire/v2.py). Functions take the whole body of the response, which has passed clientreads.check_sizes, and where the
entries begin in it.
"""

from __future__ import annotations

from array import array

from bkbox.native import memory

_PREFIX = 4
_V2_HEAD = 28  # length 4, packet header 4, master key 20
_V2_ADD = 0x02010000
_KEY_BYTES = 20
_HEADER = 32
_CRC32C = 4  # bytes of that digest


def count_right(
    body: bytes, start: int, ledger: int, first: int, count: int, digest_size: int
) -> int:
    """The number of entries ``first``, ``first`` + 1, …, at most ``count``, before the first wrong one.

    ``digest_size``: that of a CRC32C, or 0 where entries have none.
    """
    data = body
    end = len(body)
    found = 0
    while start < end and found < count:
        at = start + _PREFIX
        start = at + memory.i32(data, start)
        payload = at + _HEADER + digest_size
        if payload > start or memory.i64(data, at) != ledger:
            break
        if memory.i64(data, at + 8) != first + found:
            break
        if digest_size == _CRC32C:
            crc = memory.crc32c(data, at, at + _HEADER, 0)
            if memory.crc32c(data, payload, start, crc) != memory.u32(data, at + _HEADER):
                break
        found += 1
    return found


def add_frames(
    body: bytes, start: int, count: int, key: bytes, flags: int
) -> tuple[bytearray, array[int]]:
    """The first ``count`` entries, which are there, as adds of version 2 with these ``flags``; and where each begins,
    and the last one ends.
    """
    if len(key) != _KEY_BYTES:
        raise ValueError("a master key of 20 bytes is needed")
    data = body
    master_key = key
    offsets = array("q", bytes(8 * (count + 1)))
    places = offsets
    size = 0
    at = start
    number = 0
    while number < count:
        entry_bytes = memory.i32(data, at)
        places[number] = size
        size += _V2_HEAD + entry_bytes
        at += _PREFIX + entry_bytes
        number += 1
    places[count] = size
    frames = bytearray(size)
    buffer = frames
    at = start
    number = 0
    while number < count:
        entry_bytes = memory.i32(data, at)
        begin = places[number]
        memory.put_i32(buffer, begin, _V2_HEAD + entry_bytes - _PREFIX)
        memory.put_i32(buffer, begin + 4, _V2_ADD | flags)
        memory.copy(buffer, begin + 8, master_key, 0, _KEY_BYTES)
        memory.copy(buffer, begin + _V2_HEAD, data, at + _PREFIX, at + _PREFIX + entry_bytes)
        at += _PREFIX + entry_bytes
        number += 1
    return frames, offsets
