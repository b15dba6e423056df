"""No promised entry lies beyond the end of a closed ledger, and none is promised beyond it afterwards.

Source: BP-46, the model's invariant of no divergence.
"""

from __future__ import annotations

from proof.checks.check import CLOSED, Check, Metadata


class Acknowledged(Check):
    name = "acknowledged entries are in the ledger"

    def __init__(self) -> None:
        self._promised: dict[int, int] = {}
        self._end: dict[int, int] = {}

    def confirmed(self, ledger: int, last: int) -> str | None:
        self._promised[ledger] = max(last, self._promised.get(ledger, -1))
        return self._compare(ledger)

    def stored_metadata(self, now: Metadata) -> str | None:
        if now.state != CLOSED:
            return None
        self._end[now.ledger] = now.last
        return self._compare(now.ledger)

    def _compare(self, ledger: int) -> str | None:
        promised, end = self._promised.get(ledger, -1), self._end.get(ledger)
        if end is None or promised <= end:
            return None
        return f"entry {promised} of ledger {ledger} was promised, which is closed at {end}"
