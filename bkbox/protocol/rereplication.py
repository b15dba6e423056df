"""The re-replication of one ledger: the copies to make, and the metadata afterwards.

Fragment by fragment, and only those whose entries are final (audit.py). A position whose bookie is gone gets
another bookie, which is sent the entries of that position and nothing else; a live member that lacks entries is sent
those. The metadata name a new bookie only after it has everything, and only if the old one is still at its position
in the fragment that begins at that entry: of two workers on one ledger the second one finds nothing left to do.

The last fragment of a ledger that is not closed is never copied: its end is not known. It is recovered first, which
closes it. Source: LedgerFragmentReplicator.java, ReplicationWorker.java.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bkbox.base.ids import BookieId, EntryId
from bkbox.protocol.audit import clipped, final_fragments, pieces
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set


@dataclass(frozen=True, slots=True)
class FragmentRepair:
    """The repair of one fragment. ``lost``: the positions whose bookies are gone; ``refill``: the entries that
    members lack.
    """

    first_entry: EntryId
    entries: range
    ensemble: tuple[BookieId, ...]
    lost: tuple[int, ...]
    refill: Mapping[BookieId, tuple[range, ...]]


class Transfer(NamedTuple):
    """Consecutive entries that go to the same bookies."""

    entries: range
    targets: tuple[BookieId, ...]


def repairs(
    metadata: LedgerMetadata,
    gone: Collection[BookieId],
    lacking: Mapping[BookieId, Sequence[range]],
) -> list[FragmentRepair]:
    """The final fragments that need a repair."""
    found = []
    for index, entries in final_fragments(metadata):
        fragment = metadata.fragments[index]
        lost = tuple(at for at, bookie in enumerate(fragment.ensemble) if bookie in gone)
        refill = {
            bookie: parts
            for bookie in fragment.ensemble
            if bookie not in gone and (parts := tuple(clipped(lacking.get(bookie, ()), entries)))
        }
        if lost or refill:
            found.append(
                FragmentRepair(fragment.first_entry, entries, fragment.ensemble, lost, refill)
            )
    return found


def must_be_recovered(metadata: LedgerMetadata, gone: Collection[BookieId]) -> bool:
    """True if the last fragment names a bookie that is gone and cannot be copied before it has an end."""
    return metadata.state is not LedgerState.CLOSED and not set(gone).isdisjoint(
        metadata.last_fragment.ensemble
    )


def transfers(
    repair: FragmentRepair, write_quorum: int, new: Mapping[int, BookieId]
) -> Iterator[Transfer]:
    """The copies to make, ascending. ``new``: the bookies for lost positions, for as many as there are.

    An entry goes to the new bookies of its write set, and to the members that lack it.
    """
    size = len(repair.ensemble)
    by_stripe = []
    for stripe in range(size):
        positions = write_set(stripe, size, write_quorum)
        by_stripe.append(tuple(new[position] for position in positions if position in new))
    uniform = write_quorum == size
    for entries, lackers in pieces(repair.entries, repair.refill):
        if uniform:
            targets = by_stripe[0] + lackers
            if targets:
                yield Transfer(entries, targets)
            continue
        for entry in entries:
            # A member lacks only entries of its own, so that a piece with lackers is theirs as a whole.
            targets = by_stripe[entry % size] + lackers
            if targets:
                yield Transfer(range(entry, entry + 1), targets)


def sources(repair: FragmentRepair, write_quorum: int, entry: int) -> tuple[BookieId, ...]:
    """The bookies that should have an entry, in write order, those that are gone last."""
    positions = write_set(entry, len(repair.ensemble), write_quorum)
    there = [repair.ensemble[at] for at in positions if at not in repair.lost]
    gone = [repair.ensemble[at] for at in positions if at in repair.lost]
    return tuple(dict.fromkeys(there + gone))


def with_replaced(
    metadata: LedgerMetadata, repair: FragmentRepair, new: Mapping[int, BookieId]
) -> LedgerMetadata | None:
    """The metadata that name the new bookies; None if the fragment has changed since they were chosen."""
    fragments = list(metadata.fragments)
    for at, fragment in enumerate(fragments):
        if fragment.first_entry != repair.first_entry:
            continue
        if fragment.ensemble != repair.ensemble or not set(new.values()).isdisjoint(
            fragment.ensemble
        ):
            return None
        ensemble = tuple(new.get(place, bookie) for place, bookie in enumerate(fragment.ensemble))
        fragments[at] = replace(fragment, ensemble=ensemble)
        return replace(metadata, fragments=tuple(fragments), creator_token=0)
    return None
