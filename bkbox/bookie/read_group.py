"""The fast-path reads of a batch: looked up, and served in place.

On the fast path are reads of one entry by its id that fence nothing and wait for nothing. The length of a response is
known from the index, so the response is put into the slot, in the order of arrival, before its entry is read; the
entries are then fetched to their places, many at once (entry_reader.py).

Data that is not in the page cache is not waited for: its reads go into another batch, the cold reads, which is served
when a background thread has waited for the disk.

A record that cannot be read or does not verify is rare and may cost something: everything since the last fetch is
served again, one by one, on the slow path (bookie/reading.py), which determines the response code. The same path
serves reads of entries that are not in the index.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import DiskError
from bkbox.native import memory
from bkbox.storage.entries.entry_reader import BROKEN, COLD, FETCHED, TOGETHER_MAX, Fetch, Range
from bkbox.storage.index.memtable import EntryLocation, EntryLookup
from bkbox.wire.v3_fast_path import (
    NO_LAC,
    put_read_head,
    put_read_tail,
    read_head_size,
    read_tail_size,
)

_V2_HEAD_BYTES = 28
_V2_READ = 0x02020000
"""Version 2, opcode READ, no flags."""

_V2_BATCH_HEAD_BYTES = 36
_V2_BATCH_READ = 0x02070000
_SIZE_BYTES = 4
_TOGETHER_MAX = TOGETHER_MAX
_BROKEN, _FETCHED, _COLD = BROKEN, FETCHED, COLD
_NO_LAC = NO_LAC


class ReadBatch:
    """Collects the fast-path reads of one batch, and serves them.

    ``ranges``: the bytes that it has to read from the disk, if another batch found that they were not in the page
    cache.
    """

    __slots__ = (
        "_begin",
        "_capacity",
        "_connection",
        "_entry",
        "_fetch",
        "_finder",
        "_lac_of",
        "_lacs",
        "_ledger",
        "_place",
        "_slow",
        "_txn",
        "_used",
        "_version",
        "ranges",
    )

    def __init__(
        self,
        finder: EntryLookup,
        fetch: Fetch,
        lac_of: Callable[[int], int],
        slow: Callable[[int, int, int, int], bytes],
    ) -> None:
        """``lac_of``: the LAC of a ledger to be sent with its entries, NO_LAC for none.

        ``slow``: takes version, transaction id, ledger and entry, and returns the complete response.
        """
        self._finder = finder
        self._fetch = fetch
        self._lac_of = lac_of
        self._slow = slow
        self._place = EntryLocation()
        self.ranges: list[Range] = []
        self._lacs: dict[int, int] = {}
        none = memoryview(array("q"))
        self._connection = self._version = self._ledger = self._entry = none
        self._txn = memoryview(array("Q"))
        self._used = self._begin = self._capacity = 0
        self._grow()

    def __len__(self) -> int:
        return self._used

    @property
    def served(self) -> int:
        """Entries that were served here since the start."""
        return self._fetch.fetched

    def _grow(self) -> None:
        capacity = max(1_024, 2 * self._capacity)
        self._connection = _wider(self._connection, capacity)
        self._version = _wider(self._version, capacity)
        self._ledger = _wider(self._ledger, capacity)
        self._entry = _wider(self._entry, capacity)
        self._txn = _wider_unsigned(self._txn, capacity)
        self._capacity = capacity

    # ---- adding -------------------------------------------------------------------------------------

    def add_v2(self, connection: int, version: int, ledger: int, entry: int) -> None:
        """A read of version 2."""
        self._add(connection, version, 0, ledger, entry)

    def add_v3(self, connection: int, txn: int, ledger: int, entry: int) -> None:
        """A read of version 3."""
        self._add(connection, 3, txn, ledger, entry)

    def _add(self, connection: int, version: int, txn: int, ledger: int, entry: int) -> None:
        index = self._used
        if index == self._capacity:
            self._grow()
        self._connection[index] = connection
        self._version[index] = version
        self._txn[index] = txn
        self._ledger[index] = ledger
        self._entry[index] = entry
        self._used = index + 1

    def clear(self) -> None:
        """Clear the batch."""
        self._used = 0

    # ---- responses ----------------------------------------------------------------------------------

    def serve(self, out: ResponseWriter, cold: ReadBatch | None = None) -> None:
        """Serve everything that was added, for each connection in the order of arrival. Raises EOFError.

        ``cold`` gets the reads that are not in the page cache; None: the disk is waited for.
        """
        fetch = self._fetch
        self._lacs = {}
        self._begin = 0
        fetch.count = 0
        fetch.waited = len(self.ranges) > 0
        out.mark()
        for index in range(self._used):
            connection = self._connection[index]
            if self._find(self._ledger[index], self._entry[index]):
                size = self._response_size(index)
                if fetch.count and (fetch.count == _TOGETHER_MAX or size > out.space(connection)):
                    self._fill(out, index, cold)
                at = self._put_head(out, index, out.reserve(connection, size, 1))
                fetch.add(self._ledger[index], self._entry[index], self._place, at)
            else:
                response = self._slow_response(index)
                if fetch.count and len(response) > out.space(connection):
                    self._fill(out, index, cold)
                out.put(connection, response, 1)
        if fetch.count:
            self._fill(out, self._used, cold)
        self._used = 0
        self.ranges = []

    def _find(self, ledger: int, entry: int) -> bool:
        """True if the index has an entry; ``_place`` is then the location of its record."""
        if ledger < 0 or entry < 0:
            return False
        try:
            return self._finder.find(ledger, entry, self._place)
        except DiskError:
            return False  # the slow path finds and reports it

    def _slow_response(self, index: int) -> bytes:
        return self._slow(
            self._version[index], self._txn[index], self._ledger[index], self._entry[index]
        )

    def _lac(self, ledger: int) -> int:
        lac = self._lacs.get(ledger)
        if lac is None:
            self._lacs[ledger] = lac = self._lac_of(ledger)
        return lac

    def _response_size(self, index: int) -> int:
        length = self._place.length
        if self._version[index] == 2:
            return _V2_HEAD_BYTES + length
        ledger = self._ledger[index]
        lac = self._lac(ledger)
        head = read_head_size(self._txn[index], 0, ledger, self._entry[index], length, lac)
        return head + length + read_tail_size(lac)

    def _put_head(self, out: ResponseWriter, index: int, at: int) -> int:
        """Put a response without its entry; returns the offset of the entry."""
        buffer = out.slot
        length = self._place.length
        ledger = self._ledger[index]
        entry = self._entry[index]
        if self._version[index] == 2:
            memory.put_u32(buffer, at, _V2_HEAD_BYTES - 4 + length)
            memory.put_u32(buffer, at + 4, _V2_READ)
            memory.put_u32(buffer, at + 8, 0)
            memory.put_i64(buffer, at + 12, ledger)
            memory.put_i64(buffer, at + 20, entry)
            return at + _V2_HEAD_BYTES
        lac = self._lac(ledger)
        at = put_read_head(buffer, at, self._txn[index], 0, ledger, entry, length, lac)
        put_read_tail(buffer, at + length, lac)
        return at

    def _fill(self, out: ResponseWriter, end: int, cold: ReadBatch | None) -> None:
        """Fetch the entries of the responses since ``_begin``, of which the last one is before ``end``."""
        done = self._fetch.fetch(out.slot, None if cold is None else cold.ranges)
        if done == _COLD and cold is not None:
            out.rewind()
            end_here = self._defer_cold(out, end, cold)
            done = self._fetch.fetch(out.slot)
        else:
            end_here = end
        if done == _BROKEN:
            out.rewind()
            for index in range(self._begin, end_here):
                out.put(self._connection[index], self._slow_response(index), 1)
        out.mark()
        self._begin = end

    def _defer_cold(self, out: ResponseWriter, end: int, cold: ReadBatch) -> int:
        """Move the cold reads to ``cold``, and put the other responses once more; returns their end, which is before
        ``end``.
        """
        fetch = self._fetch
        number = 0
        remaining = self._begin
        for index in range(self._begin, end):
            connection = self._connection[index]
            if self._find(self._ledger[index], self._entry[index]):
                number += 1
                if fetch.is_cold(number - 1):
                    cold._add(
                        connection,
                        self._version[index],
                        self._txn[index],
                        self._ledger[index],
                        self._entry[index],
                    )
                    continue
                size = self._response_size(index)
                at = self._put_head(out, index, out.reserve(connection, size, 1))
                fetch.add(self._ledger[index], self._entry[index], self._place, at)
            else:
                out.put(connection, self._slow_response(index), 1)
            self._move(index, remaining)
            remaining += 1
        return remaining

    def _move(self, index: int, to: int) -> None:
        self._connection[to] = self._connection[index]
        self._version[to] = self._version[index]
        self._txn[to] = self._txn[index]
        self._ledger[to] = self._ledger[index]
        self._entry[to] = self._entry[index]

    # ---- batch reads --------------------------------------------------------------------------------

    def serve_batch(
        self,
        out: ResponseWriter,
        connection: int,
        ledger: int,
        first: int,
        request_id: int,
        count_max: int,
        size_max: int,
        cold: list[Range] | None = None,
    ) -> int:
        """Serve a batch read of version 2: entries from ``first`` on, until one is not in the index.

        ``count_max``: entries at most, no bound if <= 0; ``size_max``: bytes of the frame at most, but for the first
        entry. FETCHED if that is done. COLD if some of it is not in the page cache: ``cold``, unless None, then has
        the ranges. BROKEN: the slow path has to find the failure.
        """
        fetch = self._fetch
        count = 0
        size = _V2_BATCH_HEAD_BYTES
        while (count_max <= 0 or count < count_max) and (count == 0 or size < size_max):
            if not self._find(ledger, first + count):
                break
            with_it = size + _SIZE_BYTES + self._place.length
            if count and with_it > size_max:
                break
            size = with_it
            count += 1
        if count == 0:
            return _BROKEN
        out.mark()
        at = out.reserve(connection, size, 1)
        memory.put_u32(out.slot, at, size - 4)
        memory.put_u32(out.slot, at + 4, _V2_BATCH_READ)
        memory.put_u32(out.slot, at + 8, 0)
        memory.put_i64(out.slot, at + 12, ledger)
        memory.put_i64(out.slot, at + 20, first)
        memory.put_i64(out.slot, at + 28, request_id)
        at += _V2_BATCH_HEAD_BYTES
        fetch.count = 0
        fetch.waited = cold is None
        any_cold = False
        for number in range(count):  # not to ``first + count``, which need not be an id
            entry = first + number
            done = _FETCHED if self._find(ledger, entry) else _BROKEN
            if done == _FETCHED:
                memory.put_u32(out.slot, at, self._place.length)
                at += _SIZE_BYTES
                fetch.add(ledger, entry, self._place, at)
                at += self._place.length
                if fetch.count == _TOGETHER_MAX or number == count - 1:
                    done = fetch.fetch(out.slot, cold)
            if done == _BROKEN:
                out.rewind()
                return _BROKEN
            if done == _COLD:
                any_cold = True
        if any_cold:
            out.rewind()
            return _COLD
        return _FETCHED


def _wider(column: memoryview, capacity: int) -> memoryview:
    wide = memoryview(array("q", bytes(8 * capacity)))
    wide[: len(column)] = column
    return wide


def _wider_unsigned(column: memoryview, capacity: int) -> memoryview:
    wide = memoryview(array("Q", bytes(8 * capacity)))
    wide[: len(column)] = column
    return wide
