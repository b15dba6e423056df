"""Without lost data a closed ledger has every entry on an ack quorum of its ensemble. If bookies lose data, every entry
was acknowledged by an ack quorum of the bookies that metadata name for it, each since it was named last
(counted.py)."""

from __future__ import annotations

from collections.abc import Iterable

from proof.checks.check import CLOSED, Check, Metadata
from proof.checks.counted import Counted

NAME = "replication"


def replicated(closed_last: int | None, holders: Iterable[int], ack_quorum: int) -> bool:
    """``holders``: for each entry up to ``closed_last``, the number of bookies of its ensemble that have it."""
    return closed_last is None or all(count >= ack_quorum for count in holders)


class Replication(Check):
    """For observers of the bookies' responses (``stored``)."""

    name = NAME

    def __init__(self) -> None:
        self._counted = Counted()

    def stored(
        self, bookie: str, ledger: int, entry: int, ordinary: bool, deferred: bool
    ) -> str | None:
        self._counted.stored(bookie, ledger, entry, ordinary=ordinary)
        return None

    def forced(self, bookie: str, ledger: int, entry: int) -> str | None:
        self._counted.stored(bookie, ledger, entry, ordinary=True)
        return None

    def deleted(self, ledger: int) -> str | None:
        self._counted.deleted(ledger)
        return None

    def stored_metadata(self, now: Metadata) -> str | None:
        self._counted.stored_metadata(now)
        if now.state != CLOSED:
            return None
        ack_quorum = now.sizes[2]
        for entry in range(now.last + 1):
            replicas = now.replicas(entry)
            stored = [name for name in replicas if entry in self._counted.entries(name, now.ledger)]
            if not replicated(now.last, (len(stored),), ack_quorum):
                return (
                    f"ledger {now.ledger} is closed at {now.last}, and of {', '.join(replicas)} only "
                    f"{len(stored)} acknowledged entry {entry}, not {ack_quorum}"
                )
        return None
