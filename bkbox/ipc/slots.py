"""Slots of shared memory in which batches of frames travel between two processes.

The memory belongs to an anonymous memfd whose descriptor is handed over once, so nothing has a name that could be
left behind when processes are killed. A slot is owned by exactly one side at a time; messages on the link
(ipc/link.py) pass the ownership. The owner may write, the other side must not look.

A slot holds segments, each for one connection of the front-end:

    connection u32 | bytes u32 | frames u32 | the frames, each with its 4-byte length prefix

with numbers in big-endian. One without frames says that the connection is closed.
"""

from __future__ import annotations

import mmap
import os

from bkbox.base.limits import RECORD_BODY_BYTES_MAX

SLOT_BYTES = RECORD_BODY_BYTES_MAX + 64 * 1024
"""Room for the largest frame that can be configured and its segment header; untouched pages cost nothing."""

SLOT_COUNT = 8


class SlotArea:
    """SLOT_COUNT slots of SLOT_BYTES each over one memfd. ``view``: all of it; ``slots``: each of them."""

    def __init__(self, fd: int) -> None:
        """Map the memfd ``fd``; the area owns the descriptor from here on."""
        self.fd = fd
        self.view = view = memoryview(mmap.mmap(fd, SLOT_BYTES * SLOT_COUNT))
        self.slots = [view[i * SLOT_BYTES : (i + 1) * SLOT_BYTES] for i in range(SLOT_COUNT)]

    @classmethod
    def create(cls, name: str) -> SlotArea:
        """A fresh area; ``name`` only shows up in /proc."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.fchmod(fd, 0o600)  # it is made with all rights for everybody
        os.ftruncate(fd, SLOT_BYTES * SLOT_COUNT)
        return cls(fd)

    def close(self) -> None:
        """Let go of the descriptor; the mapping goes with the last view of it."""
        os.close(self.fd)
