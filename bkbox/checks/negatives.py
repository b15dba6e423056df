"""A bookie never says 'no such entry' of what it acknowledged, and must still hold.

It must hold what metadata assigns to it: an entry that lies beyond the end of a closed ledger, or that another bookie
was put in charge of, may be gone, as may a ledger that was deleted. What was added with deferred sync counts from when
it was forced on the connection on which it was added.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.checks.check import CLOSED, Check, Metadata


class Negatives(Check):
    name = "no false negatives"

    def __init__(self) -> None:
        self._stored: dict[tuple[str, int], set[int]] = {}
        self._metadata: dict[int, Metadata] = {}

    def stored(
        self, bookie: str, ledger: int, entry: int, ordinary: bool, deferred: bool
    ) -> str | None:
        if not (deferred and ordinary):
            self._stored.setdefault((bookie, ledger), set()).add(entry)
        return None

    def stored_metadata(self, now: Metadata) -> str | None:
        self._metadata[now.ledger] = now
        return None

    def deleted(self, ledger: int) -> str | None:
        self._metadata.pop(ledger, None)
        return None

    def denied(self, bookie: str, ledger: int, entry: int) -> str | None:
        stored = self._stored.get((bookie, ledger))
        if not stored:
            return None
        asked = stored if entry == -1 else stored & {entry}
        wrong = [each for each in asked if self._must_hold(bookie, ledger, each)]
        if not wrong:
            return None
        return f"{bookie} denies entry {max(wrong)} of ledger {ledger}, which it acknowledged"

    def vouched(
        self,
        bookie: str,
        vouches: Callable[[int, int], bool],
        keeps_fence: Callable[[int], bool],
    ) -> str | None:
        for (name, ledger), entries in self._stored.items():
            if name != bookie:
                continue
            for entry in entries:
                if not vouches(ledger, entry) and self._must_hold(bookie, ledger, entry):
                    return (
                        f"{bookie} says that it lost nothing, and has not entry {entry} of ledger "
                        f"{ledger}, which it acknowledged"
                    )
        return None

    def _must_hold(self, bookie: str, ledger: int, entry: int) -> bool:
        found = self._metadata.get(ledger)
        if found is None:
            return False
        if found.state == CLOSED and entry > found.last:
            return False
        return bookie in found.replicas(entry)
