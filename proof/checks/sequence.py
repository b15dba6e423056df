"""A writer's entries are acknowledged in order, without holes; the LAC that an observer knows only grows, and never
exceeds what the writer sent."""

from __future__ import annotations

from proof.checks.check import Check


class Sequence(Check):
    name = "in order, without holes"

    def __init__(self) -> None:
        self._acknowledged: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._lacs: dict[tuple[str, int], int] = {}

    def appended(self, ledger: int, entry: int, payload: bytes) -> str | None:
        expected = self._sent.get(ledger, -1) + 1
        self._sent[ledger] = entry
        return None if entry == expected else f"ledger {ledger}: entry {entry} after {expected - 1}"

    def acknowledged(self, ledger: int, entry: int) -> str | None:
        expected = self._acknowledged.get(ledger, -1) + 1
        self._acknowledged[ledger] = entry
        if entry == expected:
            return None
        return f"ledger {ledger}: entry {entry} is acknowledged after {expected - 1}"

    def heard_lac(self, reader: str, ledger: int, lac: int) -> str | None:
        before = self._lacs.get((reader, ledger), -1)
        self._lacs[reader, ledger] = lac
        if lac < before:
            return f"{reader}: what is confirmed of ledger {ledger} goes from {before} to {lac}"
        if lac > self._sent.get(ledger, -1):
            return f"{reader}: entry {lac} of ledger {ledger} is confirmed and was never sent"
        return None
