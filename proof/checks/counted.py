"""What bookies acknowledged, as far as it counts for anybody.

An answer counts while metadata names the bookie for the entry. A bookie that is replaced in an ensemble owes nothing
for what it took before: it may lose that, come back empty without a word, and be taken into the ensemble again, whose
writer then sends the entry anew. What it acknowledges while an open ledger does not name it for the entry is late, and
counts as little. But a recovery, and who re-replicates, adds to a bookie first and names it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from proof.checks.check import OPEN, Metadata

_NOTHING: frozenset[int] = frozenset()


class Counted:
    """By ledger and bookie. Told of everything that was acknowledged, and of every version of metadata, in order."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, set[int]]] = {}
        self._metadata: dict[int, Metadata] = {}

    def stored(self, bookie: str, ledger: int, entry: int, *, ordinary: bool) -> None:
        """``ordinary``: not an add of a recovery, or of who re-replicates."""
        if ordinary:
            found = self._metadata.get(ledger)
            if found is not None and found.state == OPEN and bookie not in found.replicas(entry):
                return
        self._entries.setdefault(ledger, {}).setdefault(bookie, set()).add(entry)

    def stored_metadata(self, now: Metadata) -> None:
        before = self._metadata.get(now.ledger)
        self._metadata[now.ledger] = now
        if before is None or before.fragments == now.fragments:
            return
        for bookie, entries in self._entries.get(now.ledger, {}).items():
            entries -= {entry for entry in entries if _ends(before, now, bookie, entry)}

    def deleted(self, ledger: int) -> None:
        self._entries.pop(ledger, None)
        self._metadata.pop(ledger, None)

    def metadata(self, ledger: int) -> Metadata | None:
        """The newest, None for a ledger that is not there, or not yet."""
        return self._metadata.get(ledger)

    def entries(self, bookie: str, ledger: int) -> Iterable[int]:
        """What the bookie has acknowledged of the ledger, and counts."""
        return self._entries.get(ledger, {}).get(bookie, _NOTHING)

    def ledgers(self, bookie: str) -> list[int]:
        """Those of which the bookie has acknowledged anything, in the order in which they came up."""
        return [ledger for ledger, bookies in self._entries.items() if bookie in bookies]


def _ends(before: Metadata, now: Metadata, bookie: str, entry: int) -> bool:
    """Whether what a bookie acknowledged before counts no more: it is replaced for the entry, or its writer takes it
    in, and sends the entry anew."""
    was, is_ = bookie in before.replicas(entry), bookie in now.replicas(entry)
    if was:
        return not is_
    return is_ and now.state == OPEN and entry >= now.fragments[-1][0]
