"""Scans a log: reads the entries of a chunk of a segment straight into the index. storage/log/segment.py has the
layout.

Entries and SYNCED records, which are nearly all of a log, are handled here; records of other kinds are handed on. At
anything else the walk stops, and leaves it to Python.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.limits import RECORD_BODY_BYTES_MAX
from bkbox.native import memory
from bkbox.storage.index.memtable import Memtable
from bkbox.storage.log.ledger_counts import LedgerCounts

_HEADER_BYTES = 16
_BODY_BYTES_MAX = RECORD_BODY_BYTES_MAX
_MARK = 0xB5
_ENTRY = 1
_SYNCED = 3
_KIND_MAX = 8
_IDS_BYTES = 16
_BOUND_BYTES = 8
_SYNCED_BYTES = 32


class LogScan:
    """Walks over the chunks of one segment, in order."""

    __slots__ = (
        "_scratch",
        "_seed",
        "_segment",
        "bound",
        "entries",
        "filled",
        "needed_bytes",
        "records",
        "synced_ms",
    )

    def __init__(self, seed: int, segment: int) -> None:
        """``seed``: that of the checksums of the segment."""
        self._seed = seed
        self._segment = segment
        self._scratch = bytearray(8)
        self.entries = 0
        self.records = 0
        """The number of records taken."""
        self.bound = 0
        """The highest offset of the SYNCED records taken."""
        self.filled = 0
        self.synced_ms = 0
        """The other fields of the last SYNCED record taken; 0 if it is of format 1."""
        self.needed_bytes = 0
        """If the last walk stopped at a record that is not whole in the chunk: the bytes of it that a chunk has to
        have for the walk to go on. Otherwise 0.
        """

    def walk(
        self,
        chunk: bytes,
        base: int,
        start: int,
        recent: Memtable,
        counts: LedgerCounts,
        other: Callable[[int, int, bytes], None],
    ) -> int:
        """Take records from offset ``start`` of the segment on; ``chunk`` has its bytes from offset ``base`` on.

        ``other``: called, in order, with offset, kind and body of a record of another kind. Returns the offset of the
        first record that was not taken: one that is bad, or not whole in the chunk.
        """
        data = chunk
        scratch = self._scratch
        size = len(chunk)
        at = start - base
        seed = self._seed
        segment = self._segment
        counted = -1
        count = 0
        total = 0
        self.needed_bytes = 0
        while True:
            if size - at < _HEADER_BYTES:
                self.needed_bytes = _HEADER_BYTES
                break
            kind = data[at + 13]
            length = memory.u32(data, at + 4)
            if (
                memory.u32(data, at + 8) != segment
                or data[at + 12] != _MARK
                or kind == 0
                or kind > _KIND_MAX
                or length > _BODY_BYTES_MAX
            ):
                break
            memory.put_i64(scratch, 0, base + at)
            crc = memory.crc32c(data, at + 4, at + 14, memory.crc32c(scratch, 0, 8, seed))
            if memory.u16(data, at + 14) != crc & 0xFFFF:
                break
            body = at + _HEADER_BYTES
            if size - body < length:
                self.needed_bytes = _HEADER_BYTES + length
                break
            if memory.crc32c(data, body, body + length, crc) != memory.u32(data, at):
                break
            if kind == _ENTRY:
                if length < _IDS_BYTES:
                    break
                ledger = memory.i64(data, body)
                entry = memory.i64(data, body + 8)
                if ledger < 0 or entry < 0:
                    break
                recent.put(ledger, entry, segment, base + at, length)
                if ledger != counted:
                    if count:
                        counts.count(counted, count, total)
                    counted = ledger
                    count = 0
                    total = 0
                count += 1
                total += length
                self.entries += 1
            elif kind == _SYNCED and length == _BOUND_BYTES:
                self.bound = max(self.bound, memory.i64(data, body))
            elif kind == _SYNCED and length == _SYNCED_BYTES:
                self.bound = max(self.bound, memory.i64(data, body))
                self.filled = memory.i64(data, body + 8)
                self.synced_ms = memory.i64(data, body + 16)
            else:
                if count:
                    counts.count(counted, count, total)
                    count = 0
                    total = 0
                other(base + at, kind, chunk[body : body + length])
            self.records += 1
            at = body + length
        if count:
            counts.count(counted, count, total)
        return base + at
