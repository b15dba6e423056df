"""The memtable: locations of the entries that the stored index does not have yet; and the look-up for all entries of
a disk.

``Memtable`` holds the entries appended since a checkpoint. Per ledger, entries that came in ascending order, as
nearly all do, are rows of memtable-wide columns, in pages: 24 bytes each, and found by their number if the ids are
consecutive. An entry out of order goes into a dict of the ledger, and a repeated entry replaces the former one. The
columns are anonymous memory, of which the system allocates only the written part; it is kept for the next use.

``EntryLookup`` asks the active memtable, the frozen one while a checkpoint writes it out, and then the stored
extents, of which it caches the recently used ones. A ledger that was forgotten ends the search: nothing older counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from mmap import mmap

from bkbox.base.limits import INDEX_MEMORY_BYTES
from bkbox.storage.index.extents import Extent, ExtentEncoder

NOT_HERE = 0
FOUND = 1
TOMBSTONE = -1
"""Outcomes of a look-up: NOT_HERE, FOUND, TOMBSTONE (stop searching)."""

OUT_OF_ORDER_BYTES = 320
"""Memory of an entry that came out of order, in bytes."""

LEDGER_BYTES = 240
"""Memory of a ledger without its rows, in bytes."""

ROW_BYTES = 24

_FOUND = FOUND
_MISSING = NOT_HERE
_VOID = TOMBSTONE
_FIRST_ROWS = 4
_PAGE_ROWS = 16
_PAGE_SHIFT = 4
_ROWS = INDEX_MEMORY_BYTES // ROW_BYTES * 3 // 2
"""More than make a checkpoint due: to copy so many takes tens of milliseconds, for which adds would wait."""

_RUN_BYTES = 256
"""Memory of a cached extent without its value, in bytes."""


class EntryLocation:
    """The location of an entry: segment, offset of the record's header, bytes of the entry. Filled by look-ups."""

    __slots__ = ("length", "offset", "segment")

    def __init__(self) -> None:
        self.segment = 0
        self.offset = 0
        self.length = 0


class _Ledger:
    """Rows of one ledger: the first page of 4 rows from ``head`` on, then pages of 16."""

    __slots__ = ("count", "first", "free_rows", "head", "last", "odd", "pages", "tail", "void")

    def __init__(self) -> None:
        self.first = self.last = -1
        self.count = 0
        """Number of rows; ``first`` and ``last`` are the ids of the first and the last one."""
        self.head = 0
        self.pages: list[int] | None = None
        self.tail = 0
        self.free_rows = 0
        """The next row, and the number of rows left in its page."""
        self.odd: dict[int, tuple[int, int, int]] | None = None
        """Entries below the last row that have no row; (segment, offset, length) by id."""
        self.void = False
        """True if the ledger was forgotten before the present entries."""


class Memtable:
    """Locations of entries by ledger and id; the last put counts. One thread writes; others read while none does."""

    __slots__ = (
        "_capacity",
        "_current",
        "_current_id",
        "_ids",
        "_ledgers",
        "_lengths",
        "_odd",
        "_offsets",
        "_rows",
        "_segments",
        "_voids",
        "entries",
    )

    def __init__(self, rows: int = _ROWS) -> None:
        """``rows``: the expected number; more of them cost a copy."""
        self.entries = 0
        """Number of entries, those of forgotten ledgers included."""
        self._ledgers: dict[int, _Ledger] = {}
        self._odd = 0
        self._voids = 0
        self._rows = 0
        self._current_id = -1
        self._current = _Ledger()
        self._capacity = rows
        self._ids = _column("q", 8, rows)
        self._offsets = _column("q", 8, rows)
        self._lengths = _column("I", 4, rows)
        self._segments = _column("I", 4, rows)

    @property
    def memory(self) -> int:
        """Bytes of memory, estimated."""
        return (
            self._rows * ROW_BYTES
            + self._odd * OUT_OF_ORDER_BYTES
            + len(self._ledgers) * LEDGER_BYTES
        )

    def clear(self) -> None:
        """Remove everything; the memory of the columns is kept."""
        self.entries = 0
        self._ledgers = {}
        self._odd = self._voids = self._rows = 0
        self._current_id = -1
        self._current = _Ledger()

    # ---- putting ------------------------------------------------------------------------------------

    def put(self, ledger: int, entry: int, segment: int, offset: int, length: int) -> None:
        """Record the location of an entry. Ids are not negative."""
        if ledger != self._current_id:
            self._enter(ledger)
        found = self._current
        if entry > found.last:
            row = self._new_row(found)
            self._ids[row] = entry
            self._offsets[row] = offset
            self._lengths[row] = length
            self._segments[row] = segment
            if found.count == 0:
                found.first = entry
            found.count += 1
            found.last = entry
            self.entries += 1
            return
        row = self._row_of(found, entry)
        if row >= 0:
            self._offsets[row] = offset
            self._lengths[row] = length
            self._segments[row] = segment
            return
        if found.odd is None:
            found.odd = {}
        if entry not in found.odd:
            self.entries += 1
            self._odd += 1
        found.odd[entry] = (segment, offset, length)

    def forget(self, ledger: int) -> None:
        """Void everything so far about a ledger, here and in older layers."""
        found = self._ledgers.get(ledger)
        if found is None or not found.void:
            self._voids += 1
        found = _Ledger()
        found.void = True
        self._ledgers[ledger] = found
        self._current_id = -1

    def _enter(self, ledger: int) -> None:
        found = self._ledgers.get(ledger)
        if found is None:
            found = _Ledger()
            self._ledgers[ledger] = found
        self._current = found
        self._current_id = ledger

    def _new_row(self, found: _Ledger) -> int:
        if found.free_rows == 0:
            rows = _PAGE_ROWS
            if found.count == 0:
                rows = _FIRST_ROWS
                found.head = self._rows
            elif found.pages is None:
                found.pages = [self._rows]
            else:
                found.pages.append(self._rows)
            while self._rows + rows > self._capacity:
                self._grow()
            found.tail = self._rows
            found.free_rows = rows
            self._rows += rows
        row = found.tail
        found.tail += 1
        found.free_rows -= 1
        return row

    def _grow(self) -> None:
        capacity = 2 * self._capacity
        self._ids = _wider(self._ids, "q", 8, capacity)
        self._offsets = _wider(self._offsets, "q", 8, capacity)
        self._lengths = _wider(self._lengths, "I", 4, capacity)
        self._segments = _wider(self._segments, "I", 4, capacity)
        self._capacity = capacity

    # ---- looking up ---------------------------------------------------------------------------------

    def find(self, ledger: int, entry: int, place: EntryLocation) -> bool:
        """True if an entry is here; ``place`` then has its location."""
        return self.look_up(ledger, entry, place) == _FOUND

    def look_up(self, ledger: int, entry: int, place: EntryLocation) -> int:
        """NOT_HERE, FOUND or TOMBSTONE, the last for entries of a ledger that was forgotten since."""
        found = self._ledgers.get(ledger)
        if found is None:
            return _MISSING
        if entry <= found.last:
            row = self._row_of(found, entry)
            if row >= 0:
                place.segment = self._segments[row]
                place.offset = self._offsets[row]
                place.length = self._lengths[row]
                return _FOUND
            if found.odd is not None:
                odd = found.odd.get(entry)
                if odd is not None:
                    place.segment, place.offset, place.length = odd
                    return _FOUND
        return _VOID if found.void else _MISSING

    def forgets(self, ledger: int) -> bool:
        """True if older data about a ledger is void."""
        if self._voids == 0:
            return False
        found = self._ledgers.get(ledger)
        return found is not None and found.void

    def last(self, ledger: int) -> int:
        """The highest entry id of a ledger, -1 if it has none here."""
        found = self._ledgers.get(ledger)
        if found is None:
            return -1
        return found.last

    def _at(self, found: _Ledger, number: int) -> int:
        """The row of that number of a ledger, counted from 0."""
        if number < _FIRST_ROWS:
            return found.head + number
        number -= _FIRST_ROWS
        page: int = found.pages[number >> _PAGE_SHIFT]  # type: ignore[index]
        return page + (number & (_PAGE_ROWS - 1))

    def _row_of(self, found: _Ledger, entry: int) -> int:
        """The row of an entry, -1 if it has none."""
        if entry < found.first or entry > found.last:
            return -1
        number = entry - found.first
        if found.last - found.first >= found.count:
            number = self._number_of(found, entry)
            if self._ids[self._at(found, number)] != entry:
                return -1
        return self._at(found, number)

    def _number_of(self, found: _Ledger, entry: int) -> int:
        """The number of the first row of an entry or a later one."""
        low = 0
        high = found.count
        while low < high:
            middle = (low + high) >> 1
            if self._ids[self._at(found, middle)] < entry:
                low = middle + 1
            else:
                high = middle
        return low

    # ---- iteration ----------------------------------------------------------------------------------

    def ledgers(self) -> list[int]:
        """All ledgers with entries here, ascending."""
        return sorted(self._ledgers)

    def forgotten(self) -> list[int]:
        """The ledgers whose older data is void, ascending."""
        found = []
        if self._voids:
            for ledger in self.ledgers():
                if self.forgets(ledger):
                    found.append(ledger)
        return found

    def runs(self) -> Iterator[Extent]:
        """All entries as extents, by ledger and id; nothing may be put meanwhile."""
        encoder = ExtentEncoder()
        for ledger in self.ledgers():
            yield from self.runs_of(ledger, encoder)

    def runs_of(self, ledger: int, encoder: ExtentEncoder) -> Iterator[Extent]:
        """The entries of a ledger as extents, ascending, not overlapping; made with an encoder of the caller, which is
        empty between two of them. Nothing may be put meanwhile. One at a time, so that the thread that makes them can
        let others go on: a ledger may have all of the rows.
        """
        found = self._ledgers.get(ledger)
        if found is None:
            return
        number = 0
        if found.odd is not None:
            for entry, place in sorted(found.odd.items()):
                end = self._number_of(found, entry)
                while number < end:
                    number = self._encode(encoder, found, number, end)
                    if number < end:
                        yield encoder.end(ledger)
                segment, offset, length = place
                if not encoder.add(entry, segment, offset, length):
                    yield encoder.end(ledger)
                    encoder.add(entry, segment, offset, length)
        while number < found.count:
            number = self._encode(encoder, found, number, found.count)
            if number < found.count:
                yield encoder.end(ledger)
        if encoder.count:
            yield encoder.end(ledger)

    def _encode(self, encoder: ExtentEncoder, found: _Ledger, number: int, end: int) -> int:
        """Add rows from ``number`` on until the extent is full; returns the number of the first that was not added."""
        while number < end:
            row = self._at(found, number)
            if not encoder.add(
                self._ids[row], self._segments[row], self._offsets[row], self._lengths[row]
            ):
                break
            number += 1
        return number


def _column(kind: str, width: int, rows: int) -> memoryview:
    return memoryview(mmap(-1, width * rows)).cast(kind)  # type: ignore[call-overload,no-any-return]


def _wider(column: memoryview, kind: str, width: int, rows: int) -> memoryview:
    wide = _column(kind, width, rows)
    wide[: len(column)] = column
    return wide


class EntryLookup:
    """The location of any entry of a disk."""

    __slots__ = ("_bytes", "_bytes_max", "_load", "_runs", "active", "frozen")

    def __init__(self, load: Callable[[int, int], Extent | None], bytes_max: int) -> None:
        """``load``: the stored extent of this ledger whose span includes an entry; None if there is none. DiskError.

        ``bytes_max``: memory for stored extents.
        """
        self.active = Memtable()
        self.frozen: Memtable | None = None
        self._load = load
        self._runs: dict[int, list[Extent]] = {}
        """By ledger, ascending; ledgers in the order of their last load."""
        self._bytes = 0
        self._bytes_max = bytes_max

    def find(self, ledger: int, entry: int, place: EntryLocation) -> bool:
        """True if the disk has an entry; ``place`` then has its location. Raises what ``load`` raises."""
        outcome = self.active.look_up(ledger, entry, place)
        if outcome == _MISSING and self.frozen is not None:
            outcome = self.frozen.look_up(ledger, entry, place)
        if outcome != _MISSING:
            return outcome == _FOUND
        return self._find_stored(ledger, entry, place)

    def _find_stored(self, ledger: int, entry: int, place: EntryLocation) -> bool:
        runs = self._runs.get(ledger)
        low = 0
        if runs is not None:
            high = len(runs)
            while low < high:
                middle = (low + high) >> 1
                run: Extent = runs[middle]
                if run.first <= entry:
                    low = middle + 1
                else:
                    high = middle
            if low > 0:
                run = runs[low - 1]
                if entry <= run.last:
                    return _find_in(run, entry, place)
        loaded = self._load(ledger, entry)
        if loaded is None:
            return False
        self._keep(loaded, low)
        return _find_in(loaded, entry, place)

    def _keep(self, run: Extent, at: int) -> None:
        """Cache an extent, in its order among those of its ledger, and evict ledgers as memory demands."""
        runs = self._runs.pop(run.ledger, None)
        if runs is None:
            runs = []
        runs.insert(at, run)
        self._runs[run.ledger] = runs
        self._bytes += len(run.value) + _RUN_BYTES
        while self._bytes > self._bytes_max and len(self._runs) > 1:
            self.drop(next(iter(self._runs)))
        if self._bytes > self._bytes_max:
            self._runs[run.ledger] = [run]
            self._bytes = len(run.value) + _RUN_BYTES

    def drop(self, ledger: int) -> None:
        """Evict the stored extents of a ledger: they have changed."""
        runs = self._runs.pop(ledger, None)
        if runs is not None:
            for run in runs:
                self._bytes -= len(run.value) + _RUN_BYTES

    def drop_all(self) -> None:
        """Evict all stored extents."""
        self._runs = {}
        self._bytes = 0


def _find_in(run: Extent, entry: int, place: EntryLocation) -> bool:
    index = run.index_of(entry)
    if index < 0:
        return False
    place.segment = run.segment
    place.offset = run.offset_of(index)
    place.length = run.length_of(index)
    return True
