"""Counts that bound all front-ends of a bookie together, in memory that they share.

The memory has a region for each front-end, which writes it alone and reads all others. A region is an array of 8-byte
cells: whether its owner lives, its connections, its connections by peer, and the rate limits of the identities whose
requests it takes (security/rates.py). Nothing is locked: the owner counts first, and then compares the sum with the
limit, so two front-ends at once may both refuse the last place, and never both give it. The supervisor marks the region
of a front-end that has ended: its connections are gone.

A table of a region has sets of rows of two cells, key and value, and a key belongs into one of the sets. Where all rows
of a set are in use (more than a hundred thousand peers at once), a further key of it is not counted for the others.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator

from bkbox.security.connection_limits import key_of_peer

_ALIVE, _CONNECTIONS = 0, 1
_HEADER_CELLS = 512
_ROW_CELLS = 2
_WAYS = 16
_PEER_SETS = 1 << 13
_RATE_SETS = 1 << 9
_SET_CELLS = _WAYS * _ROW_CELLS
_REGION_CELLS = _HEADER_CELLS + (_PEER_SETS + _RATE_SETS) * _SET_CELLS
_CELL_BYTES = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


class _Table:
    """One table of one region. Keys are not 0, which marks a free row."""

    def __init__(self, cells: memoryview, sets: int) -> None:
        self._cells = cells
        self._shift = 64 - (sets.bit_length() - 1)

    def _rows(self, key: int) -> range:
        start = (((key * _GOLDEN) & _MASK) >> self._shift) * _SET_CELLS
        return range(start, start + _SET_CELLS, _ROW_CELLS)

    def get(self, key: int) -> int:
        """The value of a key, 0 without one."""
        cells = self._cells
        for row in self._rows(key):
            if cells[row] == key:
                value: int = cells[row + 1]
                return value
        return 0

    def put(self, key: int, value: int, spare_below: int) -> None:
        """Set the value of a key, if there is a row for it: its own, or one whose value is below ``spare_below``."""
        cells = self._cells
        spare = -1
        for row in self._rows(key):
            if cells[row] == key:
                cells[row + 1] = value
                return
            if spare < 0 and cells[row + 1] < spare_below:
                spare = row
        if spare >= 0:
            cells[spare + 1] = value
            cells[spare] = key


class _Region:
    """The counts of one front-end."""

    def __init__(self, cells: memoryview) -> None:
        self.cells = cells
        rates = _HEADER_CELLS + _PEER_SETS * _SET_CELLS
        self.peers = _Table(cells[_HEADER_CELLS:rates], _PEER_SETS)
        self.rates = _Table(cells[rates:], _RATE_SETS)


class SharedMemory:
    """The memory, as the supervisor has it. ``fd``: its descriptor, for each front-end."""

    def __init__(self, count: int) -> None:
        self.fd = os.memfd_create("bkbox-counts", os.MFD_CLOEXEC)
        os.fchmod(self.fd, 0o600)
        os.ftruncate(self.fd, count * _REGION_CELLS * _CELL_BYTES)
        self._regions = _regions(self.fd, count)

    def on_ended(self, number: int) -> None:
        """A front-end has ended: nothing of its region counts any more."""
        self._regions[number].cells[_ALIVE] = 0

    def close(self) -> None:
        """Closes the descriptor; the memory is unmapped with its last view."""
        os.close(self.fd)


class SharedCounts:
    """The counts, as the front-end of this number has them."""

    def __init__(self, fd: int, number: int, count: int) -> None:
        """Maps the memory; the caller keeps the descriptor. Clears what an earlier process has left in its region."""
        self._regions = _regions(fd, count)
        self._own = self._regions[number]
        cells = self._own.cells
        cells[:] = memoryview(bytes(len(cells) * _CELL_BYTES)).cast("q")
        cells[_ALIVE] = 1

    def _living(self) -> Iterator[_Region]:
        return (region for region in self._regions if region.cells[_ALIVE])

    # ---- connections --------------------------------------------------------------------------------

    def set_connections(self, own: int) -> None:
        """Set the number of this front-end's connections."""
        self._own.cells[_CONNECTIONS] = own

    def connections(self) -> int:
        """The connections of all front-ends."""
        return sum(region.cells[_CONNECTIONS] for region in self._living())

    def has_surplus(self) -> bool:
        """True if this front-end has clearly more connections than the average of those that live."""
        of_each = [region.cells[_CONNECTIONS] for region in self._living()]
        average = sum(of_each) / len(of_each)
        own: int = self._own.cells[_CONNECTIONS]
        return own > average + max(2, average / 8)

    def set_of_peer(self, peer: str, own: int) -> None:
        """Set the number of this front-end's connections from a peer."""
        self._own.peers.put(key_of_peer(peer), own, spare_below=1)

    def of_peer(self, peer: str) -> int:
        """The connections from a peer to all front-ends."""
        key = key_of_peer(peer)
        return sum(region.peers.get(key) for region in self._living())

    # ---- rate limits --------------------------------------------------------------------------------

    def own_full_ns(self, key: int) -> int:
        """When the bucket of this key is full, as this front-end has set it."""
        return self._own.rates.get(key)

    def others_full_ns(self, key: int) -> int:
        """When the bucket of this key is full, as another front-end has set it last."""
        others = (each for each in self._living() if each is not self._own)
        return max((each.rates.get(key) for each in others), default=0)

    def set_full_ns(self, key: int, full_ns: int) -> None:
        """Set when the bucket of this key is full. A bucket that is full already need not be remembered."""
        self._own.rates.put(key, full_ns, spare_below=time.monotonic_ns())


def _regions(fd: int, count: int) -> list[_Region]:
    size = _REGION_CELLS * _CELL_BYTES
    cells = memoryview(mmap.mmap(fd, count * size)).cast("q")
    return [
        _Region(cells[number * _REGION_CELLS : (number + 1) * _REGION_CELLS])
        for number in range(count)
    ]
