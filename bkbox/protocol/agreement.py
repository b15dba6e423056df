"""Whether the copies of one entry agree, and which of them is right where they do not.

Copies agree if payload and length do. The LAC in them need not: a replication worker of Java packs an entry anew. What
decides, in this order, and never a count of heads:

- the digest: a copy that fails it is wrong, whatever the others say;
- the metadata: the last entry of a closed ledger ends at the ledger's length.

Where copies differ and neither decides, nobody can tell which one was acknowledged, and nothing is to be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bkbox.ids import BookieId
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.ledger import LedgerMetadata, LedgerState


@dataclass(frozen=True, slots=True)
class Agreement:
    """``right``: a bookie whose copy is right, None where that is not known; ``wrong``: those whose copies are not
    that. ``differ``: whether they differ at all."""

    right: BookieId | None
    wrong: tuple[BookieId, ...]
    differ: bool


def agreement(
    metadata: LedgerMetadata, entry: int, copies: Mapping[BookieId, VerifiedEntry | None]
) -> Agreement:
    """``copies``: of the bookies that have one, at least one; None: its digest is wrong."""
    by_content: dict[tuple[int, bytes], list[BookieId]] = {}
    for bookie, copy in copies.items():
        if copy is not None:
            by_content.setdefault((copy.length, copy.payload), []).append(bookie)
    differ = len(by_content) > 1 or None in copies.values()
    if len(by_content) > 1 and _is_end(metadata, entry):
        ends = [content for content in by_content if content[0] == metadata.length]
        if len(ends) == 1:
            by_content = {ends[0]: by_content[ends[0]]}
    if len(by_content) != 1:
        return Agreement(None, (), differ)
    [bookies] = by_content.values()
    return Agreement(bookies[0], tuple(each for each in copies if each not in bookies), differ)


def _is_end(metadata: LedgerMetadata, entry: int) -> bool:
    return metadata.state is LedgerState.CLOSED and entry == metadata.last_entry
