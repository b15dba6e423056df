"""Compares the copies of the entries of one ledger, window by window, and decides which of differing copies is right.

An entry's length field is the number of payload bytes of the ledger up to and including that entry. The entries before
and after a position therefore determine the ledger's length there: a copy whose own size or length does not fit between
its neighbours is wrong (bkbox/protocol/copy_agreement.py). If copies of a window's last entry differ, that entry is
decided only when the first entry of the next window is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from bkbox.audit.judgement import Copy, Disagreement
from bkbox.base.ids import BookieId
from bkbox.protocol.copy_agreement import agreement
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata

Copies = dict[BookieId, VerifiedEntry]


class CopyComparer:
    """Compares the copies of one ledger. ``found``: entries with differing copies, ascending; complete after
    ``finish``."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.found: list[Disagreement] = []
        self._metadata = metadata
        self._ends: dict[int, int] = {-1: 0}
        """Ledger length after an entry, by the entry's id, where it is known. Only the ends that are still needed are
        kept."""
        self._waiting: tuple[int, Copies] | None = None

    def add(self, good: Mapping[BookieId, Sequence[VerifiedEntry]]) -> None:
        """Adds the next window: each bookie's copies with a good digest, ascending."""
        lists = list(good.values())
        if self._waiting is None and all(each == lists[0] for each in lists[1:]):
            if lists and lists[0]:
                self._ends = {lists[0][-1].entry_id: lists[0][-1].length}
            return
        by_entry: dict[int, Copies] = {}
        for bookie, entries in good.items():
            for entry in entries:
                by_entry.setdefault(entry.entry_id, {})[bookie] = entry
        if self._waiting is not None:
            by_entry[self._waiting[0]] = self._waiting[1]
            self._waiting = None
        numbers = sorted(by_entry)
        for number in numbers:
            copies = by_entry[number]
            if _differ(copies) and number == numbers[-1] != self._metadata.last_entry:
                self._waiting = (number, copies)
            else:
                self._compare(number, copies, by_entry.get(number + 1, {}))

    def finish(self) -> list[Disagreement]:
        """Decides what is pending after the last window and returns all disagreements."""
        if self._waiting is not None:
            self._compare(*self._waiting, {})
            self._waiting = None
        return self.found

    def _compare(self, number: int, copies: Copies, after: Copies) -> None:
        first = next(iter(copies.values()))
        if not _differ(copies):
            self._ends = {number: first.length}
            return
        begins_at = self._ends.get(number - 1)
        ends_at = None
        if after and not _differ(after):
            following = next(iter(after.values()))
            ends_at = following.length - len(following.payload)
        verdict = agreement(self._metadata, number, copies, begins_at=begins_at, ends_at=ends_at)
        self._ends = {} if verdict.right is None else {number: copies[verdict.right].length}
        self.found.append(
            Disagreement(
                number,
                {bookie: copy_of(each) for bookie, each in copies.items()},
                None if verdict.right is None else copy_of(copies[verdict.right]),
                verdict.proof,
            )
        )


def copy_of(entry: VerifiedEntry) -> Copy:
    """The fields of an entry that its copies must agree in."""
    return Copy(hashlib.sha256(entry.payload).hexdigest(), entry.length)


def _differ(copies: Copies) -> bool:
    first, *others = copies.values()
    return any((each.length, each.payload) != (first.length, first.payload) for each in others)
