"""Slots of shared memory that carry batches of frames between two processes.

The memory is an anonymous memfd whose descriptor is passed once, so no name is left behind when processes are killed.
Invariant: a slot is owned by exactly one side at a time; messages on the link (ipc/link.py) pass the ownership. Only
the owner accesses the slot.

A slot holds segments, each for one connection of the front-end:

    connection u32 | bytes u32 | frames u32 | the frames, each with its 4-byte length prefix

Numbers are big-endian. A segment without frames means that the connection is closed.
"""

from __future__ import annotations

import mmap
import os

from bkbox.base.limits import RECORD_BODY_BYTES_MAX

SLOT_BYTES = RECORD_BODY_BYTES_MAX + 64 * 1024
"""Space for the largest frame that can be configured and its segment header; untouched pages cost nothing."""

SLOT_COUNT = 8


class SlotArea:
    """SLOT_COUNT slots of SLOT_BYTES each over one memfd. ``view``: the whole area; ``slots``: one view per slot."""

    def __init__(self, fd: int) -> None:
        """Maps the memfd ``fd``; the area owns the descriptor from here on."""
        self.fd = fd
        self.view = view = memoryview(mmap.mmap(fd, SLOT_BYTES * SLOT_COUNT))
        self.slots = [view[i * SLOT_BYTES : (i + 1) * SLOT_BYTES] for i in range(SLOT_COUNT)]

    @classmethod
    def create(cls, name: str) -> SlotArea:
        """Creates an area; ``name`` is visible in /proc only."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.fchmod(fd, 0o600)  # memfd_create makes it accessible to all users
        os.ftruncate(fd, SLOT_BYTES * SLOT_COUNT)
        return cls(fd)

    def close(self) -> None:
        """Closes the descriptor; the memory is unmapped with its last view."""
        os.close(self.fd)
