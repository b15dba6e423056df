"""The bytes of each ledger in the entry log of a disk, from the footers of its segments: nothing else is read.

Counted are the records of entries, including superseded ones, and no states. Entries that a compaction copied count
where they were copied to. A segment whose footers cannot be read counts nothing. The counts of ledgers that the disk
has forgotten go with the segments.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkbox.errors import DamagedError
from bkbox.storage.entries.entry_log import EntryLog
from bkbox.storage.log.segment import RECORD_HEADER_BYTES

_STEP_SEGMENTS = 16
"""Bytes of segments whose footers one step reads."""

_Counts = Mapping[int, tuple[int, int]]


class LedgerBytes:
    """The counts of one disk; nothing is counted before the first call."""

    def __init__(self, log: EntryLog) -> None:
        self._log = log
        self._bytes: dict[int, int] = {}
        self._counted: set[int] = set()
        self._left: set[int] = set()
        self._latest: dict[int, int] = {}

    def count(self) -> bool:
        """Count some more; True: the counts are complete as of now. DiskError."""
        segments, present = self._log.segments(), self._log.position.segment
        self._left.intersection_update(segments)
        new = [
            each
            for each in segments
            if each < present and each not in self._counted and each not in self._left
        ]
        for segment in new[:_STEP_SEGMENTS]:
            self._enter(segment)
        if len(new) > _STEP_SEGMENTS:
            return False
        try:
            latest = self._log.ledgers_of_present()
        except DamagedError:
            latest = {}
        self._latest = {ledger: _record_bytes(counts) for ledger, counts in latest.items()}
        return True

    def of(self, ledger: int) -> int:
        """Bytes of a ledger when ``count`` was last complete."""
        return self._bytes.get(ledger, 0) + self._latest.get(ledger, 0)

    def leave(self, segment: int) -> None:
        """Records that the live entries of a segment were copied out of it. Raises DiskError."""
        self._left.add(segment)
        if segment in self._counted:
            self._counted.remove(segment)
            for ledger, counts in self._of(segment).items():
                left = self._bytes.get(ledger, 0) - _record_bytes(counts)
                if left > 0:
                    self._bytes[ledger] = left
                else:
                    self._bytes.pop(ledger, None)

    def _enter(self, segment: int) -> None:
        for ledger, counts in self._of(segment).items():
            self._bytes[ledger] = self._bytes.get(ledger, 0) + _record_bytes(counts)
        self._counted.add(segment)

    def _of(self, segment: int) -> _Counts:
        return self._log.ledgers_of(segment) or {}


def _record_bytes(counts: tuple[int, int]) -> int:
    entries, size = counts
    return size + entries * RECORD_HEADER_BYTES
