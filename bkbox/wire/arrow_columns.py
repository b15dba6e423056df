"""Decodes responses to batch reads into columns, in the form of Arrow's arrays, without an object for any entry.

An entry is header (ledger, entry, LAC, length), digest and payload (wire/digest.py). In the response each follows its
size in 4 bytes. The body of the response has passed batch_reads.check_sizes.
"""

from __future__ import annotations

from array import array

from bkbox.native import memory

_PREFIX = 4
_HEADER = 32
_CRC32C = 4  # bytes of that digest

Columns = tuple[int, "array[int]", "array[int]", "array[int]", "array[int]", bytearray]


def columns(
    body: bytes, start: int, ledger: int, first: int, count: int, digest_size: int
) -> Columns:
    """Verify the entries ``first``, ``first`` + 1, …, at most ``count``, up to the first invalid one. Returns their
    number; their ids, LACs and lengths, in 8 bytes each; and their payloads one after the other, preceded by the
    offsets, in 4 bytes each, at which each begins and the last one ends. All arrays may be longer than needed.

    ``digest_size``: that of a CRC32C, or 0 if entries have none. ``start``: the offset of the first entry.
    """
    data = body
    end = len(body)
    before = _HEADER + digest_size
    rows = 0
    size = 0
    at = start
    while at < end and rows < count:
        entry_bytes = memory.i32(data, at)
        size += max(entry_bytes - before, 0)
        at += _PREFIX + entry_bytes
        rows += 1
    ids = array("q", bytes(8 * rows))
    lacs = array("q", bytes(8 * rows))
    lengths = array("q", bytes(8 * rows))
    offsets = array("i", bytes(4 * (rows + 1)))
    values = bytearray(size)
    id_at = ids
    lac_at = lacs
    length_at = lengths
    offset_at = offsets
    view = values
    number = 0
    put = 0
    while number < rows:
        at = start + _PREFIX
        start = at + memory.i32(data, start)
        payload = at + before
        if payload > start or memory.i64(data, at) != ledger:
            break
        if memory.i64(data, at + 8) != first + number:
            break
        if digest_size == _CRC32C:
            crc = memory.crc32c(data, at, at + _HEADER, 0)
            crc = memory.copy_crc32c(view, put, data, payload, start, crc)
            if crc != memory.u32(data, at + _HEADER):
                break
        else:
            memory.copy(view, put, data, payload, start)
        id_at[number] = first + number
        lac_at[number] = memory.i64(data, at + 16)
        length_at[number] = memory.i64(data, at + 24)
        put += start - payload
        number += 1
        offset_at[number] = put
    return number, ids, lacs, lengths, offsets, values
