"""The frames in the slots of the link between the front-end and a disk worker; slots.py has the format of a slot."""

from __future__ import annotations

from bkbox.native import memory

_HEADER_BYTES = 12
_HEAD_BYTES = 32
"""Bytes of a response that identify it in both versions: ids, or a header with a transaction id."""

Segment = tuple[int, int, memoryview]
"""Connection, number of frames, the frames."""

FrameSpan = tuple[int, int, int, int]
"""Connection, number of frames, start and end of the frames in an area of slots."""


def segments(slot: memoryview, used: int) -> list[Segment]:
    """The segments in the first ``used`` bytes of a slot."""
    found = []
    located: list[FrameSpan] = []
    locate(slot, 0, used, located)
    for connection, count, start, end in located:
        found.append((connection, count, slot[start:end]))
    return found


def heads(slot: memoryview, used: int) -> bytes:
    """Segments like those in the first ``used`` bytes of a slot, but with only the first bytes of each response:
    those that identify its request.
    """
    copied = bytearray(used)
    target = copied
    data = slot
    at = 0
    to = 0
    while at < used:
        end = at + _HEADER_BYTES + memory.u32(data, at + 4)
        memory.copy(target, to, data, at, at + _HEADER_BYTES)
        segment = to
        to += _HEADER_BYTES
        at += _HEADER_BYTES
        while at < end:
            length = memory.u32(data, at)
            size = min(length, _HEAD_BYTES)
            memory.put_u32(target, to, size)
            memory.copy(target, to + 4, data, at + 4, at + 4 + size)
            to += 4 + size
            at += 4 + length
        memory.put_u32(target, segment + 4, to - segment - _HEADER_BYTES)
    return bytes(copied[:to])


def locate(data: memoryview, at: int, used: int, found: list[FrameSpan]) -> None:
    """Append the spans of the segments in ``data`` from ``at`` to ``used``."""
    while at < used:
        start = at + _HEADER_BYTES
        end = start + memory.u32(data, at + 4)
        found.append((memory.u32(data, at), memory.u32(data, at + 8), start, end))
        at = end
