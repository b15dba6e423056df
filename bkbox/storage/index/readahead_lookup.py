"""Looks up the locations of the next entries of a ledger, for storage/entries/readahead.py."""

from __future__ import annotations

from bkbox.storage.index.memtable import EntryLocation, EntryLookup

_RECORD_HEADER_BYTES = 16

GAP_MAX = 16
"""Consecutive entries that may be missing: other bookies have them, if the ledger is striped."""

_GAP_MAX = GAP_MAX
_HOLE_BYTES = 32 << 10
"""Largest gap between two records of a range: for a disk it is less work to read it than to seek the next record."""


def stretch(
    finder: EntryLookup, ledger: int, entry: int, last: int, size: int
) -> tuple[int, int, list[tuple[int, int, int]]]:
    """The records of a ledger from ``entry`` to ``last``, of ``size`` bytes or a little more if there are as many.

    Returns the entry id after the last one (``entry`` if there is none), bytes of the records, and their ranges
    (segment, start, end). Raises DiskError.
    """
    place = EntryLocation()
    ranges: list[tuple[int, int, int]] = []
    after = entry
    total = 0
    segment = -1
    start = end = 0
    while entry <= last and entry - after <= _GAP_MAX and total < size:
        if finder.find(ledger, entry, place):
            record_end = place.offset + _RECORD_HEADER_BYTES + place.length
            if place.segment != segment or not start <= place.offset <= end + _HOLE_BYTES:
                if segment >= 0:
                    ranges.append((segment, start, end))
                segment = place.segment
                start = end = place.offset
            if record_end > end:
                end = record_end
            total += _RECORD_HEADER_BYTES + place.length
            after = entry + 1
        entry += 1
    if segment >= 0:
        ranges.append((segment, start, end))
    return after, total, ranges
