"""Limbo ends only when nothing is missing: the ledger was deleted, or its end is known and every entry that the bookie
has to hold can be read there; or it has nothing to hold.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.checks.check import CLOSED, IN_RECOVERY, Check, Metadata


class Limbo(Check):
    name = "limbo ends when nothing is missing"

    def __init__(self) -> None:
        self._metadata: dict[int, Metadata] = {}

    def stored_metadata(self, now: Metadata) -> str | None:
        self._metadata[now.ledger] = now
        return None

    def deleted(self, ledger: int) -> str | None:
        self._metadata.pop(ledger, None)
        return None

    def left_limbo(self, bookie: str, ledger: int, readable: Callable[[int], bool]) -> str | None:
        found = self._metadata.get(ledger)
        if found is None:
            return None
        first, ensemble = found.fragments[-1]
        if found.state == IN_RECOVERY or (found.state != CLOSED and bookie in ensemble):
            return f"ledger {ledger} left limbo on {bookie} while it is not closed"
        end = found.last if found.state == CLOSED else first - 1
        missing = [
            entry
            for entry in range(end + 1)
            if bookie in found.replicas(entry) and not readable(entry)
        ]
        if not missing:
            return None
        return f"ledger {ledger} left limbo on {bookie}, where entries {missing[:5]} are missing"
