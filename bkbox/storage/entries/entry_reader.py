"""Copies entries from the log to their places in a response slot.

Many are fetched together. They are sorted by their position in the log, and records that are adjacent or nearly so
are read with one call, into a buffer that stays in the processor's cache. The checksum is computed while the entry is
copied to its place, so the one copy costs nothing. A read of the disk thus serves as many requests as possible, of
any connection and in any order.

Data in the page cache is read first. The rest is requested all at once, and then waited for, or left to be fetched
later (a cold read).
"""

from __future__ import annotations

from array import array
from typing import Protocol

from bkbox.errors import DiskError
from bkbox.native import memory
from bkbox.storage.index.memtable import EntryLocation

TOGETHER_MAX = 1_024
"""Entries that are fetched together."""

BROKEN, FETCHED, COLD = range(3)
"""Outcomes of a fetch."""

Range = tuple[int, int, int]
"""Bytes of a segment: its id, offset, length."""

_BROKEN, _FETCHED, _COLD = BROKEN, FETCHED, COLD
_RECORD_HEADER_BYTES = 16
_RECORD_MARK = 0xB5
_RECORD_ENTRY = 1
_ENTRY_IDS_BYTES = 16
_TOGETHER_MAX = TOGETHER_MAX

_STAGE_BYTES = 256 << 10
"""Size of the buffer, and so of one call that reads several entries; it should fit into a core's cache."""

_HOLE_BYTES = 8 << 10
"""Largest gap between two records that are read with one call: reading this much costs less than another call."""


class Source(Protocol):
    """The segments of a log; all raise DiskError."""

    def seed_of(self, segment: int) -> int:
        """The seed of the checksums of a segment's records."""

    def read_cached(self, segment: int, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` as far as no wait for the disk is needed; returns the number of bytes."""

    def read_into(self, segment: int, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer``; fewer bytes only if the segment ends."""


class ReadaheadState(Protocol):
    """Observes reads, to read ahead: storage/entries/readahead.py."""

    following: bool
    """True if reads that did not wait for the disk are to be reported, too."""

    def missed(self, segment: int, offset: int, size: int) -> None:
        """These bytes are not in the page cache, and will be read at once. DiskError."""

    def read(
        self, ledger: int, first: int, last: int, segment: int, start: int, end: int, waited: bool
    ) -> None:
        """Entries from ``first`` to ``last`` of a ledger, perhaps not all of them, were read in bytes [start, end) of
        a segment; ``waited``: the read waited for the disk.
        """


class Fetch:
    """Gathers up to TOGETHER_MAX entries (``count`` so far), and fetches them.

    ``fetched``: the number of entries fetched since the start; ``waited``: the entries of this fetch were waited for
    before.
    """

    __slots__ = (
        "_at",
        "_entry",
        "_follower",
        "_key",
        "_ledger",
        "_length",
        "_offset",
        "_order",
        "_run_bytes",
        "_scratch",
        "_seed",
        "_seed_segment",
        "_segment",
        "_source",
        "_spare_order",
        "_stage",
        "_stage_view",
        "count",
        "fetched",
        "waited",
    )

    def __init__(self, source: Source, follower: ReadaheadState) -> None:
        self._source = source
        self._follower = follower
        self.count = 0
        self.fetched = 0
        self.waited = False
        stage = bytearray(_STAGE_BYTES)
        self._stage = stage
        self._stage_view = memoryview(stage)
        self._run_bytes = 0
        self._scratch = bytearray(8)
        self._seed_segment = -1
        self._seed = 0
        self._ledger = _column()
        self._entry = _column()
        self._segment = _column()
        self._offset = _column()
        self._length = _column()
        self._at = _column()
        self._key = _column()
        self._order = _column()
        self._spare_order = _column()

    def add(self, ledger: int, entry: int, place: EntryLocation, at: int) -> None:
        """Add an entry: the location of its record, and its place in the slot. There must be space for one more."""
        index = self.count
        self._ledger[index] = ledger
        self._entry[index] = entry
        self._segment[index] = place.segment
        self._offset[index] = place.offset
        self._length[index] = place.length
        self._at[index] = at
        self._key[index] = (place.segment & 0x7FFFFF) << 40 | place.offset
        self._order[index] = index
        self.count = index + 1

    def fetch(self, slot: memoryview, cold: list[Range] | None = None) -> int:
        """Fetch the added entries: FETCHED; BROKEN if a record cannot be read or is not the expected one; COLD,
        unless ``cold`` is None, if something is not in the page cache: ``cold`` then has the ranges, and ``is_cold``
        identifies the entries.

        Whatever the outcome, nothing is left to be fetched.
        """
        self._sort()
        done = self._load(slot, cold)
        if done == _FETCHED:
            self.fetched += self.count
        self.count = 0
        return done

    def is_cold(self, number: int) -> bool:
        """True if the entry with this number has to be fetched later; right after a fetch returned COLD."""
        return self._at[number] < 0

    # ---- reading ------------------------------------------------------------------------------------

    def _load(self, buffer: memoryview, cold: list[Range] | None) -> int:
        missed = []
        start = 0
        try:
            while start < self.count:
                end = self._run_end(start)
                if not self._read_run(start, False):
                    missed.append(start)
                elif not self._check_run(buffer, start, end):
                    return _BROKEN
                elif self.waited or self._follower.following:
                    self._report(start, end, self.waited)
                start = end
            for start in missed:
                end = self._run_end(start)
                if cold is not None:
                    self._defer_run(start, end, cold)
                    continue
                if not self._read_run(start, True) or not self._check_run(buffer, start, end):
                    return _BROKEN
                self._report(start, end, True)
        except DiskError:
            return _BROKEN
        return _COLD if missed and cold is not None else _FETCHED

    def _defer_run(self, start: int, end: int, cold: list[Range]) -> None:
        index = self._order[start]
        cold.append((self._segment[index], self._offset[index], self._run_bytes))
        for number in range(start, end):
            self._at[self._order[number]] = -1

    def _run_end(self, start: int) -> int:
        """The end, in the order of the log, of the records that are read with one call;
        ``_run_bytes`` is their size.
        """
        index = self._order[start]
        segment = self._segment[index]
        first = self._offset[index]
        self._run_bytes = _RECORD_HEADER_BYTES + self._length[index]
        for end in range(start + 1, self.count):
            index = self._order[end]
            offset = self._offset[index] - first
            record_end = offset + _RECORD_HEADER_BYTES + self._length[index]
            if (
                self._segment[index] != segment
                or offset < 0
                or offset > self._run_bytes + _HOLE_BYTES
                or record_end > _STAGE_BYTES
            ):
                return end
            if record_end > self._run_bytes:
                self._run_bytes = record_end
        return self.count

    def _read_run(self, start: int, wait: bool) -> bool:
        """Read the span that begins at ``start`` of the order into the buffer; False if it is incomplete.

        Data that is not in the page cache is requested unless ``wait``.
        """
        size = self._run_bytes
        index = self._order[start]
        if size > len(self._stage_view):
            # One large record. The buffer stays as large as the largest so far.
            self._stage = bytearray(size)
            self._stage_view = memoryview(self._stage)
        segment = self._segment[index]
        offset = self._offset[index]
        stage = self._stage_view[:size]
        if wait:
            return self._source.read_into(segment, offset, stage) == size
        if self._source.read_cached(segment, offset, stage) == size:
            return True
        self._follower.missed(segment, offset, size)
        return False

    def _check_run(self, buffer: memoryview, start: int, end: int) -> bool:
        """Verify the records in the buffer, and copy their entries to their places."""
        index = self._order[start]
        segment = self._segment[index]
        first = self._offset[index]
        if segment != self._seed_segment:
            self._seed = self._source.seed_of(segment)
            self._seed_segment = segment
        for number in range(start, end):
            index = self._order[number]
            if not self._copy(buffer, index, self._offset[index] - first):
                return False
        return True

    def _copy(self, buffer: memoryview, index: int, at: int) -> bool:
        """Verify the record at ``at`` of the buffer (storage/log/segment.py has its layout) and copy its entry."""
        stage = self._stage
        length = self._length[index]
        to = self._at[index]
        memory.put_i64(self._scratch, 0, self._offset[index])
        crc = memory.crc32c(self._scratch, 0, 8, self._seed)
        crc = memory.crc32c(stage, at + 4, at + 14, crc)
        if (
            length < _ENTRY_IDS_BYTES
            or memory.u32(stage, at + 4) != length
            or memory.u32(stage, at + 8) != self._segment[index]
            or stage[at + 12] != _RECORD_MARK
            or stage[at + 13] != _RECORD_ENTRY
            or memory.u16(stage, at + 14) != crc & 0xFFFF
        ):
            return False
        body = at + _RECORD_HEADER_BYTES
        crc = memory.copy_crc32c(buffer, to, stage, body, body + length, crc)
        return (
            crc == memory.u32(stage, at)
            and memory.i64(buffer, to) == self._ledger[index]
            and memory.i64(buffer, to + 8) == self._entry[index]
        )

    def _report(self, start: int, end: int, waited: bool) -> None:
        """Report a span that was read to the ReadaheadState, one ledger at a time."""
        number = start
        while number < end:
            index = self._order[number]
            ledger = self._ledger[index]
            segment = self._segment[index]
            begin = self._offset[index]
            first = last = self._entry[index]
            while number < end and self._ledger[self._order[number]] == ledger:
                index = self._order[number]
                entry = self._entry[index]
                first = min(first, entry)
                last = max(last, entry)
                number += 1
            reach = self._offset[index] + _RECORD_HEADER_BYTES + self._length[index]
            self._follower.read(ledger, first, last, segment, begin, reach, waited)

    # ---- the order of the log -----------------------------------------------------------------------

    def _sort(self) -> None:
        """Sort by position in the log: a merge sort, which costs nothing if the order is right already."""
        count = self.count
        width = 1
        for number in range(1, count):
            if self._key[self._order[number - 1]] > self._key[self._order[number]]:
                break
        else:
            width = count
        while width < count:
            start = 0
            while start < count:
                self._merge(start, min(start + width, count), min(start + 2 * width, count))
                start += 2 * width
            self._order, self._spare_order = self._spare_order, self._order
            width *= 2

    def _merge(self, start: int, middle: int, end: int) -> None:
        """Merge order[start:middle] and order[middle:end] into spare[start:end]."""
        one = start
        other = middle
        for to in range(start, end):
            if other >= end or (
                one < middle and self._key[self._order[one]] <= self._key[self._order[other]]
            ):
                self._spare_order[to] = self._order[one]
                one += 1
            else:
                self._spare_order[to] = self._order[other]
                other += 1


def _column() -> memoryview:
    return memoryview(array("q", bytes(8 * _TOGETHER_MAX)))
