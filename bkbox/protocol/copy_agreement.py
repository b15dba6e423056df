"""Agreement of the copies of one entry, and the correct one if they differ.

Copies agree if payload and length do. The LAC in them need not: a replication worker of Java packs an entry anew. A
difference is decided by these, in this order, and never by a majority:

- the digest: a copy that fails it is wrong, whatever the others say;
- the metadata: the last entry of a closed ledger ends at the ledger's length;
- the lengths around it: an entry begins where the one before it ends, and ends where the one after it begins.

If copies differ and none of these decides, it is unknown which one was acknowledged, and nothing is to be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bkbox.base.ids import BookieId
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

_ByContent = dict[tuple[int, bytes], list[BookieId]]
"""The bookies of each content: length and payload."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """``right``: a bookie whose copy is correct, None if unknown; ``wrong``: bookies whose copies are wrong.
    ``differ``: True if the copies differ at all. ``proof``: what decided between different copies with valid digests,
    'metadata' or 'length'; empty if there were none, or nothing did.
    """

    right: BookieId | None
    wrong: tuple[BookieId, ...]
    differ: bool
    proof: str = ""


def agreement(
    metadata: LedgerMetadata,
    entry: int,
    copies: Mapping[BookieId, VerifiedEntry | None],
    *,
    begins_at: int | None = None,
    ends_at: int | None = None,
) -> Agreement:
    """``copies``: those of the bookies that have one, at least one; None: its digest is wrong. ``begins_at`` and
    ``ends_at``: the payload bytes of the ledger before the entry, and up to its end, by its neighbours; None:
    unknown.
    """
    by_content: _ByContent = {}
    for bookie, copy in copies.items():
        if copy is not None:
            by_content.setdefault((copy.length, copy.payload), []).append(bookie)
    differ = len(by_content) > 1 or None in copies.values()
    proof = ""
    if len(by_content) > 1 and _is_end(metadata, entry):
        by_content, proof = _only(by_content, None, metadata.length), "metadata"
    if len(by_content) > 1:
        by_content, proof = _only(by_content, begins_at, ends_at), "length"
    if len(by_content) != 1:
        return Agreement(None, (), differ)
    [bookies] = by_content.values()
    wrong = tuple(each for each in copies if each not in bookies)
    return Agreement(bookies[0], wrong, differ, proof)


def _only(by_content: _ByContent, begins_at: int | None, ends_at: int | None) -> _ByContent:
    """The one content that fits between these, if there is exactly one; else all."""
    fits = [
        (length, payload)
        for length, payload in by_content
        if begins_at in (None, length - len(payload)) and ends_at in (None, length)
    ]
    return {fits[0]: by_content[fits[0]]} if len(fits) == 1 else by_content


def _is_end(metadata: LedgerMetadata, entry: int) -> bool:
    return metadata.state is LedgerState.CLOSED and entry == metadata.last_entry
