"""Scans the stored index in small steps: the live bytes of each segment, and the entries in unreadable regions.

The index may change meanwhile. An extent that is split or merged keeps its place in the order of the keys, and
nothing is added to a segment that was left. So everything stored before a scan began is counted at least once. It may
be counted twice, or be superseded by newer data: a scan finds too much rather than too little.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from bkbox.base.values import struct
from bkbox.storage.disk.checkpoint import Checkpoint
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.index.extents import Extent
from bkbox.storage.log.segment import RECORD_HEADER_BYTES

_STEP_RUNS = 512
_STEP_ENTRIES = 4_096
"""Extents, and entries of extents that may lie in a bad region, that one step reads."""

_LENGTHS = 4

Regions = Mapping[int, Sequence[tuple[int, int]]]
"""Parts [start, end) of segments that cannot be read, by segment."""


@struct
class Live:
    """Live data of a segment: entries that the index names, and bytes of their records."""

    entries: int = 0
    bytes: int = 0


class IndexScan:
    """One pass over the stored index.

    ``began``: the checkpoint before it; ``live``: by segment, as far as it has come.
    """

    def __init__(self, store: DiskStore, bad: Regions) -> None:
        """``bad``: unreadable regions, beside missing segments."""
        self.began: Checkpoint = store.checkpoints.last
        self.live: dict[int, Live] = {}
        self.is_complete = False
        self._store = store
        self._bad = bad
        self._after = (-1, -1)

    def step(self) -> list[tuple[int, int]]:
        """Scan some more; returns unreadable entries (ledger, id). DiskError."""
        bad: list[tuple[int, int]] = []
        existing = set(self._store.log.segments())
        entries = 0
        for runs, run in enumerate(self._store.index.stored_runs(*self._after), start=1):
            self._after = run.ledger, run.first
            found = self.live.setdefault(run.segment, Live())
            found.entries += run.count
            found.bytes += _bytes_of(run)
            if run.segment not in existing or run.segment in self._bad:
                entries += run.count
                bad += self._unreadable(run, missing=run.segment not in existing)
            if runs >= _STEP_RUNS or entries >= _STEP_ENTRIES:
                return bad
        self.is_complete = True
        return bad

    def _unreadable(self, run: Extent, *, missing: bool) -> list[tuple[int, int]]:
        regions = [(0, 1 << 63)] if missing else self._bad[run.segment]
        return [
            (run.ledger, entry)
            for entry, offset, length in run.entries()
            if any(
                start < offset + RECORD_HEADER_BYTES + length and offset < end
                for start, end in regions
            )
            and not self._store.is_readable(run.ledger, entry)
        ]


def _bytes_of(run: Extent) -> int:
    """Bytes of the records of an extent (storage/index/extents.py has its layout; lengths are its last column)."""
    headers = RECORD_HEADER_BYTES * run.count
    if not run.value[1] & _LENGTHS:
        return headers + run.count * run.length_of(0)
    lengths = array("I")
    lengths.frombytes(run.value[-4 * run.count :])
    lengths.byteswap()
    return headers + sum(lengths)
