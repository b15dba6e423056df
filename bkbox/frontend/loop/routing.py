"""Routing of requests: the disk of a ledger, and the request slot that is being filled for each disk.

The format of slots is that of ipc/slots.py. Frames of several connections may be interleaved: a segment ends where
frames of another connection follow.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Protocol

from bkbox.native import memory
from bkbox.native.memory import Data

_HEADER_BYTES = 12
_BYTES_AT = 4
_FRAMES_AT = 8
_FILL_BYTES = 1 << 20
"""Fill level from which a slot takes no more, except one larger frame: a small part of a slot is used again and
again, which costs no memory and stays in the processor's cache.
"""

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: spreads neighbours, and multiples of anything
_MASK = 0xFFFFFFFFFFFFFFFF
_BITS_LEAST = 8


class LedgerTable:
    """Ledger id to disk number, both not negative: a hash table with linear probing, at most half full."""

    __slots__ = ("_disks", "_keys", "_shift", "_size", "count")

    def __init__(self) -> None:
        self.count = 0
        self._make(_BITS_LEAST)

    def _make(self, bits: int) -> None:
        self._shift = 64 - bits
        self._size = 1 << bits
        self._keys = memoryview(array("q", bytes(8 * self._size)))
        self._disks = memoryview(array("i", [-1]) * self._size)

    def _find(self, ledger: int) -> int:
        """The ledger's position, or the free one for it."""
        unsigned = ledger
        at = ((unsigned * _GOLDEN) & _MASK) >> self._shift
        while self._disks[at] >= 0 and self._keys[at] != ledger:
            at = (at + 1) & (self._size - 1)
        return at

    def get(self, ledger: int) -> int:
        """The disk, -1 if the ledger is not known."""
        if ledger < 0:
            return -1
        return self._disks[self._find(ledger)]

    def put(self, ledger: int, disk: int) -> int:
        """Record the disk; returns the one recorded before, or -1."""
        at = self._find(ledger)
        before = self._disks[at]
        if before < 0:
            if 2 * self.count >= self._size:
                self._grow()
                at = self._find(ledger)
            self._keys[at] = ledger
            self.count += 1
        self._disks[at] = disk
        return before

    def _grow(self) -> None:
        keys, disks, size = self._keys, self._disks, self._size
        self._make(65 - self._shift)
        for old in range(size):
            if disks[old] >= 0:
                at = self._find(keys[old])
                self._keys[at] = keys[old]
                self._disks[at] = disks[old]


class SlotWaiter(Protocol):
    """Waits for a slot."""

    def on_slot_free(self) -> None:
        """Called once, when a slot may be free."""


class DiskQueue:
    """Frames queued for one disk."""

    __slots__ = ("_connection", "_frames", "_more", "_segment", "_slot", "limit", "used", "waiting")

    def __init__(self, more: Callable[[], memoryview | None]) -> None:
        """``more``: sends the present slot, if there is one, and returns the next; None if none is free. Connections
        that had to go without are in ``waiting``.
        """
        self._more = more
        self.waiting: list[SlotWaiter] = []
        self.limit = 0
        self.used = 0
        self._segment = -1
        self._connection = 0
        self._frames = 0

    def put(self, connection: int, data: Data, start: int, end: int) -> bool:
        """Copy the frame data[start:end]; False if no slot has space."""
        size = end - start
        needed = size + _HEADER_BYTES
        if needed > self.limit - self.used and not self._next_slot(needed):
            return False
        if self._segment < 0 or connection != self._connection:
            self._begin(connection)
        memory.copy(self._slot, self.used, data, start, end)
        self.used += size
        self._frames += 1
        memory.put_u32(
            self._slot, self._segment + _BYTES_AT, self.used - self._segment - _HEADER_BYTES
        )
        memory.put_u32(self._slot, self._segment + _FRAMES_AT, self._frames)
        return True

    def put_closed(self, connection: int) -> bool:
        """Record that a connection is closed, by a segment without frames; False if no slot has space."""
        if self.limit - self.used < _HEADER_BYTES and not self._next_slot(_HEADER_BYTES):
            return False
        self._begin(connection)
        self._segment = -1
        return True

    def _begin(self, connection: int) -> None:
        self._segment = self.used
        self._connection = connection
        self._frames = 0
        self.used += _HEADER_BYTES
        memory.put_u32(self._slot, self._segment, connection)
        memory.put_u32(self._slot, self._segment + _BYTES_AT, 0)
        memory.put_u32(self._slot, self._segment + _FRAMES_AT, 0)

    def _next_slot(self, needed: int) -> bool:
        view = self._more()
        self.finish()
        if view is None:
            return False
        self._slot = view
        self.limit = max(_FILL_BYTES, needed)
        return True

    def finish(self) -> int:
        """Leave the present slot to its owner; returns its used bytes. The next frame takes a slot again."""
        used = self.used
        self.used = 0
        self.limit = 0
        self._segment = -1
        return used


class Routes:
    """The routes of one front-end. ``lanes``: by disk number, None if the disk is out of service. ``over``: ledgers
    whose owner is over its quota; None while there are none, which saves the look-up.
    """

    __slots__ = ("lanes", "over", "table")

    def __init__(self) -> None:
        self.table = LedgerTable()
        self.lanes: list[DiskQueue | None] = []
        self.over: LedgerTable | None = None

    def is_over(self, ledger: int) -> bool:
        """True if the ledger accepts no normal adds."""
        return self.over is not None and self.over.get(ledger) >= 0

    def lane(self, ledger: int) -> DiskQueue | None:
        """The queue of the ledger's disk; None if there is none, or the ledger is not known, or is recorded under a
        number that no disk has.
        """
        disk = self.table.get(ledger)
        if disk < 0 or disk >= len(self.lanes):
            return None
        return self.lanes[disk]
