"""A bookie never denies an entry that it acknowledged and still has to hold.

It has to hold what metadata assign to it: an entry beyond the end of a closed ledger, or one reassigned to another
bookie since, may be gone (counted.py), as may a deleted ledger. An entry added with deferred sync counts from when it
was forced on the connection on which it was added.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from proof.checks.check import CLOSED, Check, Metadata
from proof.checks.counted import Counted


class Negatives(Check):
    name = "no false negatives"

    def __init__(self) -> None:
        self._counted = Counted()

    def stored(
        self, bookie: str, ledger: int, entry: int, ordinary: bool, deferred: bool
    ) -> str | None:
        if not (deferred and ordinary):
            self._counted.stored(bookie, ledger, entry, ordinary=ordinary)
        return None

    def forced(self, bookie: str, ledger: int, entry: int) -> str | None:
        self._counted.stored(bookie, ledger, entry, ordinary=True)
        return None

    def stored_metadata(self, now: Metadata) -> str | None:
        self._counted.stored_metadata(now)
        return None

    def deleted(self, ledger: int) -> str | None:
        self._counted.deleted(ledger)
        return None

    def denied(self, bookie: str, ledger: int, entry: int) -> str | None:
        stored = self._counted.entries(bookie, ledger)
        requested = stored if entry == -1 else {entry}.intersection(stored)
        wrong = [each for each in requested if self._must_hold(bookie, ledger, each)]
        if not wrong:
            return None
        return f"{bookie} denies entry {max(wrong)} of ledger {ledger}, which it acknowledged"

    def vouched(
        self,
        bookie: str,
        vouches: Callable[[int], Container[int] | None],
        keeps_fence: Callable[[int], bool],
    ) -> str | None:
        for ledger in self._counted.ledgers(bookie):
            listed = vouches(ledger)
            if listed is None:
                continue
            for entry in self._counted.entries(bookie, ledger):
                if entry not in listed and self._must_hold(bookie, ledger, entry):
                    return (
                        f"{bookie} says that it lost nothing, and has not entry {entry} of ledger "
                        f"{ledger}, which it acknowledged"
                    )
        return None

    def _must_hold(self, bookie: str, ledger: int, entry: int) -> bool:
        found = self._counted.metadata(ledger)
        if found is None:
            return False
        if found.state == CLOSED and entry > found.last:
            return False
        return bookie in found.replicas(entry)
