"""Readers receive the bytes that the writer appended, and only entries that are in the ledger for good."""

from __future__ import annotations

from proof.checks.check import CLOSED, Check, Metadata


class Contents(Check):
    name = "readers see what was written, and only what stays"

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], bytes] = {}
        self._read: dict[int, int] = {}
        self._end: dict[int, int] = {}

    def appended(self, ledger: int, entry: int, payload: bytes) -> str | None:
        self._written[ledger, entry] = payload
        return None

    def found(self, client: str, ledger: int, entry: int, payload: bytes) -> str | None:
        written = self._written.get((ledger, entry))
        if written != payload:
            return f"{client} read {payload!r} as entry {entry} of ledger {ledger}, not {written!r}"
        self._read[ledger] = max(entry, self._read.get(ledger, -1))
        return self._compare(ledger)

    def stored_metadata(self, now: Metadata) -> str | None:
        if now.state != CLOSED:
            return None
        self._end[now.ledger] = now.last
        return self._compare(now.ledger)

    def _compare(self, ledger: int) -> str | None:
        read, end = self._read.get(ledger, -1), self._end.get(ledger)
        if end is None or read <= end:
            return None
        return f"entry {read} of ledger {ledger} was read, which ends at {end}"
