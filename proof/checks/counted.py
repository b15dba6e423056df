"""The acknowledgements of bookies that count.

An acknowledgement counts while the metadata name the bookie for the entry. A bookie that is replaced in an ensemble
owes nothing for what it stored before: it may lose that, come back empty without a notice, and be taken into the
ensemble again, whose writer then sends the entry again. An acknowledgement by a bookie that an open ledger does not
name for the entry is late, and does not count. But recoveries and replication workers add to a bookie first and name it
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from proof.checks.check import OPEN, Metadata

_NOTHING: frozenset[int] = frozenset()


class Counted:
    """Acknowledgements by ledger and bookie. Fed with every acknowledgement, and every version of metadata, in
    order."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, set[int]]] = {}
        self._metadata: dict[int, Metadata] = {}

    def stored(self, bookie: str, ledger: int, entry: int, *, ordinary: bool) -> None:
        """``ordinary``: not an add of a recovery or a replication worker."""
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
        """The newest metadata, None for a ledger that was deleted or not created yet."""
        return self._metadata.get(ledger)

    def entries(self, bookie: str, ledger: int) -> Iterable[int]:
        """The entries of the ledger whose acknowledgement by the bookie counts."""
        return self._entries.get(ledger, {}).get(bookie, _NOTHING)

    def ledgers(self, bookie: str) -> list[int]:
        """The ledgers of which the bookie has acknowledged anything, in order of first appearance."""
        return [ledger for ledger, bookies in self._entries.items() if bookie in bookies]


def _ends(before: Metadata, now: Metadata, bookie: str, entry: int) -> bool:
    """True if a bookie's earlier acknowledgement no longer counts: the bookie is replaced for the entry, or its writer
    takes it in, and sends the entry again."""
    was, is_ = bookie in before.replicas(entry), bookie in now.replicas(entry)
    if was:
        return not is_
    return is_ and now.state == OPEN and entry >= now.fragments[-1][0]
