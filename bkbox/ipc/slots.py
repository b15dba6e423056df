"""Slots of shared memory in which batches of frames travel between two processes.

The memory belongs to an anonymous memfd whose descriptor is handed over once, so nothing has a name that could be
left behind when processes are killed. A slot is owned by exactly one side at a time; messages on the link
(ipc/link.py) pass the ownership. The owner may write, the other side must not look.

A slot holds segments, each for one connection of the front-end:

    connection u32 | bytes u32 | frames u32 | the frames, each with its 4-byte length prefix

One without frames says that the connection is closed.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator

from bkbox.limits import RECORD_BODY_BYTES_MAX

SEGMENT_HEADER = struct.Struct("=III")

SLOT_BYTES = RECORD_BODY_BYTES_MAX + 64 * 1024
"""Room for the largest frame that can be configured and its segment header; untouched pages cost nothing."""

SLOT_COUNT = 8


class SlotArea:
    """SLOT_COUNT slots of SLOT_BYTES each over one memfd."""

    def __init__(self, fd: int) -> None:
        """Map the memfd ``fd``; the area owns the descriptor from here on."""
        self.fd = fd
        self._map = mmap.mmap(fd, SLOT_BYTES * SLOT_COUNT)
        self._view = memoryview(self._map)

    @classmethod
    def create(cls, name: str) -> SlotArea:
        """A fresh area; ``name`` only shows up in /proc."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(fd, SLOT_BYTES * SLOT_COUNT)
        return cls(fd)

    def slot(self, index: int) -> memoryview:
        """The bytes of one slot, to write and read in place."""
        if not 0 <= index < SLOT_COUNT:
            raise IndexError(f"slot {index} of {SLOT_COUNT}")
        return self._view[index * SLOT_BYTES : (index + 1) * SLOT_BYTES]

    def close(self) -> None:
        """Let go of the descriptor; the mapping goes with the last view of it."""
        os.close(self.fd)


class SlotWriter:
    """Fills one slot with segments."""

    def __init__(self, slot: memoryview) -> None:
        self._slot = slot
        self.used = 0

    def room(self) -> int:
        """Bytes of frames that one more segment may have."""
        return len(self._slot) - self.used - SEGMENT_HEADER.size

    def add(self, connection: int, frames: bytes | bytearray | memoryview, count: int) -> None:
        """Append a segment; the caller has looked at room()."""
        start = self.used + SEGMENT_HEADER.size
        end = start + len(frames)
        SEGMENT_HEADER.pack_into(self._slot, self.used, connection, len(frames), count)
        self._slot[start:end] = frames
        self.used = end


def segments(filled: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """(connection, frame count, frames) of each segment in the used part of a slot."""
    position = 0
    while position < len(filled):
        connection, size, count = SEGMENT_HEADER.unpack_from(filled, position)
        position += SEGMENT_HEADER.size
        yield connection, count, filled[position : position + size]
        position += size
