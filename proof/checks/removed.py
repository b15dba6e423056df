"""Nothing is removed that metadata still name: a bookie removes a ledger's entries only if the ledger was deleted, or
is closed and has no entry that the bookie has to hold."""

from __future__ import annotations

from proof.checks.check import CLOSED, Check, Metadata


class Removed(Check):
    name = "nothing is removed that is still named"

    def __init__(self) -> None:
        self._metadata: dict[int, Metadata] = {}

    def stored_metadata(self, now: Metadata) -> str | None:
        self._metadata[now.ledger] = now
        return None

    def deleted(self, ledger: int) -> str | None:
        self._metadata.pop(ledger, None)
        return None

    def emptied(self, bookie: str, ledger: int) -> str | None:
        found = self._metadata.get(ledger)
        if found is None:
            return None
        if found.state != CLOSED:
            return f"{bookie} removed ledger {ledger}, which is not closed"
        owned = [entry for entry in range(found.last + 1) if bookie in found.replicas(entry)]
        if not owned:
            return None
        return f"{bookie} removed ledger {ledger}, of which it is to hold entries {owned[:5]}"
