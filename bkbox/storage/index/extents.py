"""An extent: the locations of up to EXTENT_ENTRIES_MAX entries of one ledger in one segment. The value of an index
key.

An entry is found in the value without decoding it. Integers are big-endian:

    version u8 (2) | columns u8 | count u16 | segment u32 | offset u64 | length u32 | columns, count u32 each

The id of the first entry is in the key, ``offset`` is that of its record. Entries ascend. A column is present only if
it is needed; in this order:

========  ==  ==================================================================================================
ids        1  entry id less that of the first entry. Without it the ids are consecutive
offsets    2  offset of the record less ``offset``. Without it each record begins where the one before it ends
lengths    4  bytes of the entry. Without it all have ``length``, which is 0 otherwise
========  ==  ==================================================================================================

So an extent of equally long, adjacent entries is 20 bytes. One of a ledger whose entries are striped over bookies and
lie among those of other ledgers is 12 bytes per entry.
"""

from __future__ import annotations

from array import array

from bkbox.base.limits import EXTENT_ENTRIES_MAX, RECORD_BODY_BYTES_MAX
from bkbox.errors import DamagedError
from bkbox.native import memory

RUN_VERSION = 2

_VERSION = RUN_VERSION
_ENTRIES_MAX = EXTENT_ENTRIES_MAX
_HEAD_BYTES = 20
_RECORD_HEADER_BYTES = 16
_IDS = 1
_OFFSETS = 2
_LENGTHS = 4
_LENGTH_MAX = RECORD_BODY_BYTES_MAX
_REACH_MAX = 2**32 - 1
_OFFSET_HIGH_MAX = 2**16 - 1  # an offset of 2**48 or more is in no segment
_ID_MAX = 2**63 - 1


class Extent:
    """Entries ``first`` to ``last`` of a ledger, not always all of them, as encoded in ``value``."""

    __slots__ = (
        "_columns",
        "_data",
        "count",
        "first",
        "last",
        "ledger",
        "offset",
        "segment",
        "value",
    )

    def __init__(self, ledger: int, first: int, value: bytes) -> None:
        """Raises DamagedError if ``value`` is no extent of this version."""
        self.ledger = ledger
        self.first = first
        self.value = value
        self._data = value
        size = len(value)
        if size < _HEAD_BYTES or value[0] != _VERSION:
            raise DamagedError(
                f"the run from entry {first} of ledger {ledger} is not of version {_VERSION}"
            )
        self._columns = value[1]
        self.count = _u32(self._data, 0) & 0xFFFF
        self.segment = _u32(self._data, 4)
        columns = self._columns
        wide = (columns & 1) + (columns >> 1 & 1) + (columns >> 2 & 1)
        if (
            self.count == 0
            or columns > 7
            or size != _HEAD_BYTES + 4 * self.count * wide
            or _u32(self._data, 8) > _OFFSET_HIGH_MAX
            or self.first > _ID_MAX - self._id(self.count - 1)
            or not self._is_plausible()
        ):
            raise DamagedError(f"the run from entry {first} of ledger {ledger} is malformed")
        self.offset = _u32(self._data, 8)
        self.offset = self.offset << 32 | _u32(self._data, 12)
        self.last = first + self._id(self.count - 1)

    def _is_plausible(self) -> bool:
        """True if ids ascend from that of the key and no length, which sizes buffers, exceeds a record's."""
        at = _HEAD_BYTES
        if self._columns & _IDS:
            if _u32(self._data, at) != 0:
                return False
            for index in range(1, self.count):
                if _u32(self._data, at + 4 * index) <= _u32(self._data, at + 4 * index - 4):
                    return False
            at += 4 * self.count
        if self._columns & _OFFSETS:
            at += 4 * self.count
        longest = _u32(self._data, 16)
        if self._columns & _LENGTHS:
            for index in range(self.count):
                longest = max(longest, _u32(self._data, at + 4 * index))
        return longest <= _LENGTH_MAX

    def _id(self, index: int) -> int:
        if self._columns & _IDS:
            return _u32(self._data, _HEAD_BYTES + 4 * index)
        return index

    def index_of(self, entry: int) -> int:
        """The index of an entry in the extent, from 0; -1 if it has no such entry."""
        if entry < self.first or entry > self.last:
            return -1
        distance = entry - self.first
        if not self._columns & _IDS:
            return distance
        low = 0
        high = min(self.count, distance + 1)
        while low < high:
            middle = (low + high) >> 1
            if _u32(self._data, _HEAD_BYTES + 4 * middle) < distance:
                low = middle + 1
            else:
                high = middle
        if low == self.count or _u32(self._data, _HEAD_BYTES + 4 * low) != distance:
            return -1
        return low

    def offset_of(self, index: int) -> int:
        """Offset of the record of the index-th entry."""
        columns = self._columns
        at = _HEAD_BYTES
        if columns & _IDS:
            at += 4 * self.count
        if columns & _OFFSETS:
            return self.offset + _u32(self._data, at + 4 * index)
        if not columns & _LENGTHS:
            return self.offset + index * (self.length_of(0) + _RECORD_HEADER_BYTES)
        offset = self.offset + index * _RECORD_HEADER_BYTES
        for number in range(index):
            offset += _u32(self._data, at + 4 * number)
        return offset

    def length_of(self, index: int) -> int:
        """Bytes of the index-th entry."""
        columns = self._columns
        if not columns & _LENGTHS:
            return _u32(self._data, 16)
        at = _HEAD_BYTES
        if columns & _IDS:
            at += 4 * self.count
        if columns & _OFFSETS:
            at += 4 * self.count
        return _u32(self._data, at + 4 * index)

    def entries(self) -> list[tuple[int, int, int]]:
        """(entry id, offset, length) of each entry."""
        found = []
        offset = self.offset
        for index in range(self.count):
            if self._columns & _OFFSETS:
                offset = self.offset_of(index)
            length = self.length_of(index)
            found.append((self.first + self._id(index), offset, length))
            offset += _RECORD_HEADER_BYTES + length
        return found

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges (first, last), both included, of consecutive entries, ascending."""
        if not self._columns & _IDS:
            return [(self.first, self.last)]
        found = []
        start = last = self.first
        for index in range(1, self.count):
            entry = self.first + self._id(index)
            if entry != last + 1:
                found.append((start, last))
                start = entry
            last = entry
        found.append((start, last))
        return found


def _u32(data: bytes, at: int) -> int:
    high = data[at]  # unsigned in C, where it would be shifted into the sign
    return high << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


class ExtentEncoder:
    """Encodes extents from entries in ascending order; reusable."""

    __slots__ = (
        "_columns",
        "_end",
        "_first",
        "_ids",
        "_last",
        "_length",
        "_lengths",
        "_offset",
        "_offsets",
        "_segment",
        "count",
    )

    def __init__(self) -> None:
        self.count = 0
        """Number of entries of the extent so far."""
        self._columns = 0
        self._segment = self._offset = self._length = 0
        self._first = self._last = self._end = 0
        self._ids = memoryview(array("I", bytes(4 * _ENTRIES_MAX)))
        self._offsets = memoryview(array("I", bytes(4 * _ENTRIES_MAX)))
        self._lengths = memoryview(array("I", bytes(4 * _ENTRIES_MAX)))

    def add(self, entry: int, segment: int, offset: int, length: int) -> bool:
        """Add one more entry of the same ledger; False if it has to begin the next extent."""
        index = self.count
        if index == 0:
            self._columns = 0
            self._segment = segment
            self._first = entry
            self._offset = offset
            self._length = length
        else:
            if (
                index == _ENTRIES_MAX
                or segment != self._segment
                or entry - self._first > _REACH_MAX
                or offset < self._offset
                or offset - self._offset > _REACH_MAX
            ):
                return False
            if entry != self._last + 1:
                self._columns |= _IDS
            if offset != self._end:
                self._columns |= _OFFSETS
            if length != self._length:
                self._columns |= _LENGTHS
        self._ids[index] = entry - self._first
        self._offsets[index] = offset - self._offset
        self._lengths[index] = length
        self._last = entry
        self._end = offset + _RECORD_HEADER_BYTES + length
        self.count = index + 1
        return True

    def end(self, ledger: int) -> Extent:
        """The extent of the added entries, at least one; the next ``add`` begins another one."""
        columns = self._columns
        wide = (columns & 1) + (columns >> 1 & 1) + (columns >> 2 & 1)
        value = bytearray(_HEAD_BYTES + 4 * self.count * wide)
        view = value
        memory.put_u32(view, 0, _VERSION << 24 | columns << 16 | self.count)
        memory.put_u32(view, 4, self._segment)
        memory.put_i64(view, 8, self._offset)
        memory.put_u32(view, 16, 0 if columns & _LENGTHS else self._length)
        at = _HEAD_BYTES
        if columns & _IDS:
            for index in range(self.count):
                memory.put_u32(view, at, self._ids[index])
                at += 4
        if columns & _OFFSETS:
            for index in range(self.count):
                memory.put_u32(view, at, self._offsets[index])
                at += 4
        if columns & _LENGTHS:
            for index in range(self.count):
                memory.put_u32(view, at, self._lengths[index])
                at += 4
        self.count = 0
        return Extent(ledger, self._first, bytes(value))
