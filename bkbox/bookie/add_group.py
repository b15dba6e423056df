"""The adds of one write of a disk worker: received in the order of arrival, stored grouped by ledger, responded
to in order.

Entries lie where they came in (``area``: the request slots of the link), or, if Python decoded them, in a buffer of
the batch. Per add, in the order of arrival, the columns hold

==========  ========================================================================================================
at          offset of the entry in the area; -1 - offset in the own buffer; unused for a response without an entry
size        bytes of the entry, at least 24; 0: this is a response that Python makes (``mark``), txn is its number
after       the next add of the same ledger, -1 for the last one
connection  the connection to respond to
txn         transaction id of version 3, which is less than NOT_ANSWERED; NO_TXN for version 2; NOT_ANSWERED for an
            entry whose response is a mark
offset      offset of the record in its segment, once packed
==========  ========================================================================================================

Grouping by ledger makes consecutive entries of a ledger adjacent in the log, and so one extent of the index.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from bkbox.native import memory
from bkbox.wire.v3_fast_path import add_response_size, put_add_response

if TYPE_CHECKING:
    from bkbox.bookie.response_writer import ResponseWriter
    from bkbox.storage.index.memtable import Memtable
    from bkbox.storage.log.ledger_counts import LedgerCounts

ENTRY_BYTES_MIN = 24
"""Ledger id, entry id and LAC: the smallest entry."""

NO_TXN = 2**64 - 1
"""Not a transaction id: a response of version 2."""

NO_RESPONSE = 2**64 - 2
"""Not a transaction id: no response."""

Buffer = bytes | bytearray | memoryview

_RECORD_HEADER_BYTES = 16
_RECORD_MARK = 0xB5
_RECORD_ENTRY = 1
_V2_RESPONSE_BYTES = 28
_V2_ADD = 0x02010000
"""Version 2, opcode ADD, no flags."""

_CAPACITY = 1_024

_TOGETHER_MAX = 1_024
"""Responses that are written in one piece."""


class AdmittedLedger:
    """A ledger that accepts normal adds with this master key, and its adds in the present batch."""

    __slots__ = (
        "bytes",
        "count",
        "first",
        "key_end",
        "key_middle",
        "key_start",
        "lac",
        "last",
        "ledger",
    )

    def __init__(self, ledger: int, key: bytes) -> None:
        """``key``: 20 bytes, stored as three integers."""
        self.ledger = ledger
        self.key_start = memory.i64(key, 0)
        self.key_middle = memory.i64(key, 8)
        self.key_end = memory.i32(key, 16)
        self.first = self.last = -1
        self.count = 0
        self.bytes = 0
        """Bytes of the entries of the batch."""
        self.lac = -1
        """The highest LAC field among the adds of the batch."""


class AddBatch:
    """One batch; reusable after ``begin``. A ledger is grouped in one batch at a time, until ``ungroup``."""

    __slots__ = (
        "_after",
        "_at",
        "_capacity",
        "_connection",
        "_data",
        "_offset",
        "_own",
        "_size",
        "_txn",
        "_used",
        "entries",
        "groups",
        "record_bytes",
        "recovered",
    )

    def __init__(self) -> None:
        self._data: memoryview = memoryview(b"")
        self.groups: list[AdmittedLedger] = []
        """The ledgers with adds in the batch, in the order of their first add."""
        self.entries = 0
        self.record_bytes = 0
        """Bytes of the records of all entries."""
        self.recovered = 0
        """Number of entries of recovery adds added from the area."""
        self._own = bytearray()
        self._used = 0
        self._capacity = _CAPACITY
        self._at = _column("q", _CAPACITY)
        self._size = _column("q", _CAPACITY)
        self._after = _column("q", _CAPACITY)
        self._connection = _column("q", _CAPACITY)
        self._txn = _column("Q", _CAPACITY)
        self._offset = _column("q", _CAPACITY)

    def __len__(self) -> int:
        """Number of adds and marks."""
        return self._used

    def begin(self, area: memoryview) -> None:
        """Clear the batch; entries of the next one lie in ``area``."""
        self._data = area
        self.ungroup()
        self.entries = 0
        self.record_bytes = 0
        self.recovered = 0
        self._used = 0
        if self._own:
            self._own = bytearray()

    def ungroup(self) -> None:
        """The entries are stored, or never will be: the ledgers may be in another batch, and only the responses are
        left.
        """
        for group in self.groups:
            group.first = group.last = -1
            group.count = 0
            group.bytes = 0
            group.lac = -1
        self.groups = []

    def _grow(self) -> None:
        capacity = 2 * self._capacity
        self._at = _wider(self._at, "q", capacity)
        self._size = _wider(self._size, "q", capacity)
        self._after = _wider(self._after, "q", capacity)
        self._connection = _wider(self._connection, "q", capacity)
        self._txn = _wider(self._txn, "Q", capacity)
        self._offset = _wider(self._offset, "q", capacity)
        self._capacity = capacity

    # ---- adding -------------------------------------------------------------------------------------

    def add_from_area(
        self, group: AdmittedLedger, connection: int, txn: int, at: int, size: int
    ) -> None:
        """Add an admitted entry of the area, of ``size`` >= ENTRY_BYTES_MIN bytes."""
        self._link(group, connection, txn, at, size, memory.i64(self._data, at + 16))

    def put(self, group: AdmittedLedger, entry: Buffer) -> None:
        """Add an admitted entry that lies anywhere, and whose response is a mark; it is copied."""
        at = len(self._own)
        self._own += entry
        lac = int.from_bytes(entry[16:24], "big", signed=True)
        self._link(group, 0, NO_RESPONSE, -1 - at, len(entry), lac)

    def _link(
        self, group: AdmittedLedger, connection: int, txn: int, at: int, size: int, lac: int
    ) -> None:
        index = self._used
        if index == self._capacity:
            self._grow()
        self._at[index] = at
        self._size[index] = size
        self._after[index] = -1
        self._connection[index] = connection
        self._txn[index] = txn
        if group.first < 0:
            group.first = index
            group.lac = lac
            self.groups.append(group)
        else:
            self._after[group.last] = index
            if lac > group.lac:
                group.lac = lac
        group.last = index
        group.count += 1
        group.bytes += size
        self._used = index + 1
        self.entries += 1
        self.record_bytes += _RECORD_HEADER_BYTES + size

    def mark(self, connection: int, number: int) -> None:
        """Reserve the place of a response that is made elsewhere: ``respond`` requests it by its number."""
        index = self._used
        if index == self._capacity:
            self._grow()
        self._size[index] = 0
        self._connection[index] = connection
        self._txn[index] = number
        self._used = index + 1

    # ---- storing ------------------------------------------------------------------------------------

    def pack(self, buffer: bytearray, at: int, seed: int, segment: int, offset: int) -> int:
        """Write the records (segment.py has their layout), grouped by ledger, to ``buffer`` from ``at`` on.

        ``buffer`` has ``record_bytes`` from there; ``offset`` is their location in the segment. Returns the end.
        """
        out = buffer
        area = self._data
        own = self._own
        for group in self.groups:
            index = group.first
            while index >= 0:
                source = self._at[index]
                size = self._size[index]
                body = at + _RECORD_HEADER_BYTES
                memory.put_i64(out, body, offset)  # overwritten by the entry below
                crc = memory.crc32c(out, body, body + 8, seed)
                memory.put_u32(out, at + 4, size)
                memory.put_u32(out, at + 8, segment)
                out[at + 12] = _RECORD_MARK
                out[at + 13] = _RECORD_ENTRY
                crc = memory.crc32c(out, at + 4, at + 14, crc)
                memory.put_u16(out, at + 14, crc & 0xFFFF)
                if source >= 0:
                    crc = memory.copy_crc32c(out, body, area, source, source + size, crc)
                else:
                    source = -1 - source
                    crc = memory.copy_crc32c(out, body, own, source, source + size, crc)
                memory.put_u32(out, at, crc)
                self._offset[index] = offset
                at = body + size
                offset += _RECORD_HEADER_BYTES + size
                index = self._after[index]
        return at

    def index(self, recent: Memtable, counts: LedgerCounts, segment: int) -> None:
        """Put the entries packed last, which are in ``segment`` now, into the index, and count them for the footer."""
        for group in self.groups:
            counts.count(group.ledger, group.count, group.bytes)
            index = group.first
            while index >= 0:
                recent.put(
                    group.ledger,
                    self.entry_id(index),
                    segment,
                    self._offset[index],
                    self._size[index],
                )
                index = self._after[index]

    def entry_id(self, index: int) -> int:
        """The entry id of an add."""
        source = self._at[index]
        if source >= 0:
            return memory.i64(self._data, source + 8)
        return memory.i64(self._own, 7 - source)

    def ledger_id(self, index: int) -> int:
        """The ledger id of an add."""
        source = self._at[index]
        if source >= 0:
            return memory.i64(self._data, source)
        return memory.i64(self._own, -1 - source)

    # ---- responses ----------------------------------------------------------------------------------

    def respond(
        self, out: ResponseWriter, code_v2: int, code_v3: int, marked: Callable[[int], bytes]
    ) -> None:
        """Write all responses in the order of arrival: adds with the code, marks with the response that ``marked``
        makes of a number.

        Raises EOFError.
        """
        index = 0
        while index < self._used:
            connection = self._connection[index]
            txn = self._txn[index]
            if self._size[index] == 0:
                out.put(connection, marked(txn), 1)
                index += 1
            elif txn == NO_RESPONSE:
                index += 1
            elif txn != NO_TXN:
                ledger = self.ledger_id(index)
                entry = self.entry_id(index)
                size = add_response_size(txn, code_v3, ledger, entry)
                at = out.reserve(connection, size, 1)
                put_add_response(out.slot, at, txn, code_v3, ledger, entry)
                index += 1
            else:
                end = index + 1
                while (
                    end < self._used
                    and end - index < _TOGETHER_MAX
                    and self._connection[end] == connection
                    and self._txn[end] == NO_TXN
                    and self._size[end] != 0
                ):
                    end += 1
                at = out.reserve(connection, _V2_RESPONSE_BYTES * (end - index), end - index)
                buffer = out.slot
                while index < end:
                    memory.put_u32(buffer, at, _V2_RESPONSE_BYTES - 4)
                    memory.put_u32(buffer, at + 4, _V2_ADD)
                    memory.put_i32(buffer, at + 8, code_v2)
                    memory.put_i64(buffer, at + 12, self.ledger_id(index))
                    memory.put_i64(buffer, at + 20, self.entry_id(index))
                    at += _V2_RESPONSE_BYTES
                    index += 1


def _column(kind: str, rows: int) -> memoryview:
    return memoryview(array(kind, bytes(8 * rows)))


def _wider(column: memoryview, kind: str, rows: int) -> memoryview:
    wide = _column(kind, rows)
    wide[: len(column)] = column
    return wide
