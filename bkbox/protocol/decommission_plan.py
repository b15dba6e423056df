"""The plan of a decommission for one ledger: replacing the bookie, or the reason that it cannot be.

A fragment that names the bookie needs a replacement, which is writable and not in the ensemble, and for each of its
entries a live source, which may be the bookie itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import counted
from bkbox.protocol.repair import expected_entries
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set


@dataclass(frozen=True, slots=True)
class DecommissionPlan:
    """``entries``: copies that have to be made; ``must_close``: the ledger has no end yet and the bookie is in its
    last ensemble, so that its writer has to replace it, or is fenced; ``problem``: the reason that it cannot be,
    empty if it can.
    """

    ledger: LedgerId
    entries: int
    must_close: bool
    copies: int
    problem: str


def departure(
    metadata: LedgerMetadata,
    bookie: BookieId,
    registered: Collection[BookieId],
    writable: Collection[BookieId],
) -> DecommissionPlan | None:
    """None if no ensemble names the bookie. ``copies``: the smallest number of live copies of an entry, in the
    fragments that name it.
    """
    concerned = [each for each in metadata.fragments if bookie in each.ensemble]
    if not concerned:
        return None
    copies = min(_copies(metadata, fragment, registered) for fragment in concerned)
    problem = ""
    if copies == 0:
        problem = "it may have the last copy of entries, and no bookie that is there has one"
    elif not all(set(writable) - {bookie, *fragment.ensemble} for fragment in concerned):
        others = counted(len(set(writable) - {bookie}), "other writable bookie", "are")
        size = counted(metadata.ensemble_size, "bookie")
        problem = (
            f"its ensembles have {size}, and {others} there, none of them free to take the place"
        )
    return DecommissionPlan(
        metadata.ledger_id,
        sum(map(len, expected_entries(metadata, bookie))),
        metadata.state is not LedgerState.CLOSED and bookie in metadata.last_fragment.ensemble,
        copies,
        problem,
    )


def _copies(metadata: LedgerMetadata, fragment: Fragment, registered: Collection[BookieId]) -> int:
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return min(
        sum(fragment.ensemble[at] in registered for at in write_set(start, size, quorum))
        for start in range(size)
    )
