"""Limbo ends only when nothing is missing: the ledger was deleted, or its end is known and the bookie can read every
entry that it has to hold; or it has nothing to hold.

A bookie's view of a ledger may be older than the stored metadata, but not older than its limbo: entries recovered, or
assigned to the bookie, after that are not what it lost.
"""

from __future__ import annotations

from collections.abc import Callable

from proof.checks.check import CLOSED, IN_RECOVERY, Check, Metadata


class Limbo(Check):
    name = "limbo ends when nothing is missing"

    def __init__(self) -> None:
        self._metadata: dict[int, Metadata] = {}
        self._since: dict[int, dict[str, list[Metadata]]] = {}
        """By ledger and bookie: all versions of the metadata since the bookie put the ledger into limbo."""

    def stored_metadata(self, now: Metadata) -> str | None:
        self._metadata[now.ledger] = now
        for versions in self._since.get(now.ledger, {}).values():
            versions.append(now)
        return None

    def deleted(self, ledger: int) -> str | None:
        self._metadata.pop(ledger, None)
        self._since.pop(ledger, None)
        return None

    def entered_limbo(self, bookie: str, ledger: int) -> str | None:
        found = self._metadata.get(ledger)
        if found is not None:
            self._since.setdefault(ledger, {})[bookie] = [found]
        return None

    def left_limbo(self, bookie: str, ledger: int, readable: Callable[[int], bool]) -> str | None:
        found = self._metadata.get(ledger)
        if found is None:
            return None
        versions = self._since.get(ledger, {}).pop(bookie, [found])
        newest = None
        for version in reversed(versions):
            wrong = _wrong(bookie, version, readable)
            if wrong is None:
                return None
            newest = newest or wrong
        return newest


def _wrong(bookie: str, now: Metadata, readable: Callable[[int], bool]) -> str | None:
    """The violation by an end of limbo under these metadata."""
    ledger = now.ledger
    first, ensemble = now.fragments[-1]
    if now.state == IN_RECOVERY or (now.state != CLOSED and bookie in ensemble):
        return f"ledger {ledger} left limbo on {bookie} while it is not closed"
    end = now.last if now.state == CLOSED else first - 1
    missing = [
        entry for entry in range(end + 1) if bookie in now.replicas(entry) and not readable(entry)
    ]
    if not missing:
        return None
    return f"ledger {ledger} left limbo on {bookie}, where entries {missing[:5]} are missing"
