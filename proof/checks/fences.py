"""A fence is never forgotten: a bookie that has responded to a fencing read acknowledges no more ordinary adds to the
ledger, and has the fence after every start at which it reports that nothing was lost."""

from __future__ import annotations

from collections.abc import Callable, Container

from proof.checks.check import Check


class Fences(Check):
    name = "fences hold"

    def __init__(self) -> None:
        self._fenced: set[tuple[str, int]] = set()
        self._deleted: set[int] = set()

    def fenced(self, bookie: str, ledger: int) -> str | None:
        self._fenced.add((bookie, ledger))
        return None

    def deleted(self, ledger: int) -> str | None:
        self._deleted.add(ledger)
        return None

    def stored(
        self, bookie: str, ledger: int, entry: int, ordinary: bool, deferred: bool
    ) -> str | None:
        if ordinary and (bookie, ledger) in self._fenced and ledger not in self._deleted:
            return f"{bookie} took entry {entry} of ledger {ledger} after it had fenced it"
        return None

    def vouched(
        self,
        bookie: str,
        vouches: Callable[[int], Container[int] | None],
        keeps_fence: Callable[[int], bool],
    ) -> str | None:
        for name, ledger in sorted(self._fenced):
            if name == bookie and ledger not in self._deleted and not keeps_fence(ledger):
                return f"{bookie} says that it lost nothing, and has forgotten that it fenced ledger {ledger}"
        return None
