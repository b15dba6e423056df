"""Replication: where no bookie lost anything, a closed ledger has every entry on an ack quorum of its ensemble."""

from __future__ import annotations

from collections.abc import Iterable

NAME = "replication"


def replicated(closed_last: int | None, holders: Iterable[int], ack_quorum: int) -> bool:
    """``holders``: for each entry up to ``closed_last``, how many bookies of its ensemble have it."""
    return closed_last is None or all(count >= ack_quorum for count in holders)
