"""A ledger has one life and one end: OPEN, IN_RECOVERY, CLOSED in this order, and every client that closes it is told
the same last entry. Versions grow by one, and the first entries of fragments ascend."""

from __future__ import annotations

from itertools import pairwise

from proof.checks.check import CLOSED, OPEN, Check, Metadata


class Closed(Check):
    name = "one end for all"

    def __init__(self) -> None:
        self._end: dict[int, int] = {}
        self._before: dict[int, tuple[int, int]] = {}

    def stored_metadata(self, now: Metadata) -> str | None:
        ledger, state, version = now.ledger, now.state, now.version
        before = self._before.get(ledger)
        self._before[ledger] = state, version
        if before is None and (state, version) != (OPEN, 0):
            return f"ledger {ledger} begins with state {state}, version {version}"
        if before is not None and (state < before[0] or version != before[1] + 1):
            return (
                f"ledger {ledger} went from state {before[0]}, version {before[1]} "
                f"to {state}, {version}"
            )
        firsts = [first for first, _ in now.fragments]
        if firsts[0] != 0 or any(one >= other for one, other in pairwise(firsts)):
            return f"fragments of ledger {ledger} begin at {firsts}"
        if any(len(set(members)) != len(members) for _, members in now.fragments):
            return f"an ensemble of ledger {ledger} names a bookie twice: {now.fragments}"
        if state != CLOSED:
            return None
        end = self._end.setdefault(ledger, now.last)
        if end == now.last:
            return None
        return f"ledger {ledger}, closed at {end}, now ends at {now.last}"

    def ended(self, client: str, ledger: int, last: int) -> str | None:
        end = self._end.get(ledger)
        if end == last:
            return None
        return f"{client} was told that ledger {ledger} ends at {last}, it ends at {end}"
