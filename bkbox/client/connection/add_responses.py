"""Responses to adds on one connection: matched to the adds that were sent, batch by batch.

The outstanding responses of one connection for one ledger are a sequence of *slots* in the order of sending. A slot
has a key: the entry id in version 2, the transaction id in version 3. Bookies mostly respond in order, so the next
slot is tried first. Equal keys (an entry that was sent again) get their responses in the order of sending.

Layout of the response of version 2: length 4, packet header 4, code 4, ledger 8, entry 8. Version 3: v3_fast_path.py.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

from bkbox.errors import FrameError
from bkbox.native import memory
from bkbox.native.memory import Data
from bkbox.wire.v3_fast_path import FastResponseV3

_PREFIX = 4
_V2_ADD_RESPONSE_BYTES = 28
_V2_LENGTH = 24
_V2_ADD = 0x0201
_V3_ADD = 1  # as in wire/v3_fast_path.py
_SLOTS = 64


class OutstandingAdds:
    """The slots of one ledger on one connection. Slot numbers only grow and are never reused.

    ``sends`` belongs to the sender: what it has sent, in order.
    """

    __slots__ = (
        "_done",
        "_head",
        "_highest",
        "_keys",
        "_mask",
        "_next",
        "_sorted",
        "sends",
        "tail",
    )

    def __init__(self) -> None:
        self.sends: deque[Any] = deque()
        self._keys = memoryview(array("q", bytes(8 * _SLOTS)))
        self._done = memoryview(bytearray(_SLOTS))
        self._mask = _SLOTS - 1
        self._head = 0
        self.tail = 0
        """The slot of the next add that is sent."""
        self._next = 0
        self._highest = -1
        self._sorted = True

    def push(self, first: int, count: int) -> None:
        """Record that ``count`` keys were sent, from ``first`` on."""
        self._grow(count)
        for key in range(first, first + count):
            self._push(key)

    def push_each(self, keys: tuple[int, ...]) -> None:
        """Record that these keys were sent, ascending."""
        self._grow(len(keys))
        for key in keys:
            self._push(key)

    def _push(self, key: int) -> None:
        if self._head == self.tail:
            self._sorted = True
        elif key <= self._highest:
            self._sorted = False
        self._highest = key
        self._keys[self.tail & self._mask] = key
        self._done[self.tail & self._mask] = 0
        self.tail += 1

    def _grow(self, count: int) -> None:
        capacity = self._mask + 1
        while self.tail - self._head + count > capacity:
            capacity *= 2
        if capacity == self._mask + 1:
            return
        keys = memoryview(array("q", bytes(8 * capacity)))
        done = memoryview(bytearray(capacity))
        for slot in range(self._head, self.tail):
            keys[slot & (capacity - 1)] = self._keys[slot & self._mask]
            done[slot & (capacity - 1)] = self._done[slot & self._mask]
        self._keys = keys
        self._done = done
        self._mask = capacity - 1

    def is_open(self, slot: int) -> bool:
        """True if the slot's response has not arrived."""
        return slot >= self._head and not self._done[slot & self._mask]

    def close(self, first: int, last: int) -> None:
        """Close these slots: they have their responses, or will never get one."""
        for slot in range(first, last + 1):
            self._close(slot)

    def pop(self, key: int) -> int:
        """Close and return the slot that a response with this key is for; -1 if there is none."""
        slot = self._find(key)
        if slot >= 0:
            self._close(slot)
        return slot

    def _close(self, slot: int) -> None:
        if slot < self._head:
            return
        self._done[slot & self._mask] = 1
        self._next = slot + 1
        while self._head < self.tail and self._done[self._head & self._mask]:
            self._head += 1

    def _find(self, key: int) -> int:
        slot = self._next
        if (
            self._sorted
            and self._head <= slot < self.tail
            and self._keys[slot & self._mask] == key
            and not self._done[slot & self._mask]
        ):
            return slot
        slot = self._lower(key) if self._sorted else self._head
        while slot < self.tail:
            if self._keys[slot & self._mask] == key and not self._done[slot & self._mask]:
                return slot
            if self._sorted:
                return -1
            slot += 1
        return -1

    def _lower(self, key: int) -> int:
        low = self._head
        high = self.tail
        while low < high:
            middle = (low + high) // 2
            if self._keys[middle & self._mask] < key:
                low = middle + 1
            else:
                high = middle
        return low


class _Runs:
    """Collects consecutive slots with the same code into tuples (owed, first slot, last slot, code)."""

    __slots__ = ("code", "first", "found", "last", "outstanding")

    def __init__(self, found: list[tuple[OutstandingAdds, int, int, int]]) -> None:
        self.found = found
        self.outstanding: OutstandingAdds | None = None
        self.first = 0
        self.last = 0
        self.code = 0

    def add(self, outstanding: OutstandingAdds, slot: int, code: int) -> None:
        if outstanding is self.outstanding and slot == self.last + 1 and code == self.code:
            self.last = slot
            return
        self.end()
        self.outstanding = outstanding
        self.first = slot
        self.last = slot
        self.code = code

    def end(self) -> None:
        if self.outstanding is not None:
            self.found.append((self.outstanding, self.first, self.last, self.code))
        self.outstanding = None


def match_v2(
    data: Data,
    start: int,
    end: int,
    adds: dict[int, OutstandingAdds],
    found: list[tuple[OutstandingAdds, int, int, int]],
) -> int:
    """Match responses of version 2 from data[start] on; returns the offset of the first frame that is not a response
    to an add.

    ``adds``: the outstanding adds, by ledger. ``found`` receives the slots with a response, with the code's number in
    version 2. Raises FrameError for a response to no request; matches before it count.
    """
    runs = _Runs(found)
    outstanding = None
    ledger = -1
    while (
        end - start >= _V2_ADD_RESPONSE_BYTES
        and memory.u32(data, start) == _V2_LENGTH
        and memory.u16(data, start + 4) == _V2_ADD
    ):
        if outstanding is None or memory.i64(data, start + 12) != ledger:
            ledger = memory.i64(data, start + 12)
            outstanding = adds.get(ledger)
        slot = -1 if outstanding is None else outstanding.pop(memory.i64(data, start + 20))
        if slot < 0 or outstanding is None:
            runs.end()
            entry = memory.i64(data, start + 20)
            raise FrameError(f"a response without a request: add of entry {entry}, ledger {ledger}")
        runs.add(outstanding, slot, memory.i32(data, start + 8))
        start += _V2_ADD_RESPONSE_BYTES
    runs.end()
    return start


def match_v3(
    data: Data,
    start: int,
    end: int,
    adds: dict[int, OutstandingAdds],
    found: list[tuple[OutstandingAdds, int, int, int]],
    response: FastResponseV3,
) -> int:
    """The same for plain responses of version 3, with its codes. A response to no request is left for the caller."""
    runs = _Runs(found)
    outstanding = None
    ledger = -1
    while end - start > _PREFIX:
        size = memory.i32(data, start)
        if size <= 0 or size > end - start - _PREFIX:
            break
        if response.parse(data, start + _PREFIX, start + _PREFIX + size) != _V3_ADD:
            break
        if outstanding is None or response.ledger != ledger:
            ledger = response.ledger
            outstanding = adds.get(ledger)
        if outstanding is None:
            break
        slot = outstanding.pop(response.txn)
        if slot < 0:
            break
        runs.add(outstanding, slot, response.code)
        start += _PREFIX + size
    runs.end()
    return start


def whole_frames(data: Data, start: int, end: int, limit: int) -> int:
    """The end of the last whole frame. Raises FrameError for a frame that is empty or larger than ``limit``."""
    while end - start >= _PREFIX:
        size = memory.i32(data, start)
        if size <= 0 or size > limit - _PREFIX:
            raise FrameError(f"frame of {size} bytes: 1 to {limit - _PREFIX} are allowed")
        if size > end - start - _PREFIX:
            break
        start += _PREFIX + size
    return start
