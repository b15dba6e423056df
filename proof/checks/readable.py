"""Promised entries can be read: no reader ever gets NO_SUCH_ENTRY for one, and in the end it can be read.

It holds while fewer bookies than the ack quorum have lost it; the fault injector keeps within that.
"""

from __future__ import annotations

from proof.checks.check import Check


class Readable(Check):
    name = "acknowledged entries can be read"

    def __init__(self) -> None:
        self._promised: dict[int, int] = {}
        self._found: dict[int, set[int]] = {}
        self._deleted: set[int] = set()

    def confirmed(self, ledger: int, last: int) -> str | None:
        if ledger in self._deleted:
            return None  # a writer learns late what was promised before
        self._promised[ledger] = max(last, self._promised.get(ledger, -1))
        return None

    def deleted(self, ledger: int) -> str | None:
        self._deleted.add(ledger)
        self._promised.pop(ledger, None)
        return None

    def found(self, client: str, ledger: int, entry: int, payload: bytes) -> str | None:
        if client == JUDGE:
            self._found.setdefault(ledger, set()).add(entry)
        return None

    def absent(self, client: str, ledger: int, entry: int) -> str | None:
        if entry > self._promised.get(ledger, -1):
            return None
        return f"{client} was told that there is no entry {entry} in ledger {ledger}"

    def finished(self) -> str | None:
        for ledger, last in sorted(self._promised.items()):
            missing = set(range(last + 1)) - self._found.get(ledger, set())
            if missing:
                return f"entries {sorted(missing)[:5]} of ledger {ledger} cannot be read in the end"
        return None


JUDGE = "judge"
"""The client that reads everything at the end."""
