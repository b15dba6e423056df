"""The bookies of an ensemble that hold an entry: striping, round robin from ``entry mod E``.

Source: RoundRobinDistributionSchedule.java (writers), DataIntegrityCheckImpl.java (what a bookie must hold).
"""

from __future__ import annotations

from collections.abc import Iterator

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState


def write_set(entry: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """Positions in the ensemble that hold the entry, in the order of writing."""
    first = entry % ensemble_size
    return tuple((first + step) % ensemble_size for step in range(write_quorum))


def in_write_set(entry: int, position: int, ensemble_size: int, write_quorum: int) -> bool:
    """True if the bookie at this position of the ensemble is in the entry's write set."""
    return (position - entry) % ensemble_size < write_quorum


def last_final_entry(metadata: LedgerMetadata) -> EntryId:
    """The last entry whose write set is final: in a closed ledger, or before the last fragment."""
    if metadata.state is LedgerState.CLOSED:
        return metadata.last_entry
    return EntryId(metadata.last_fragment.first_entry - 1)


def expected_entries(metadata: LedgerMetadata, bookie: BookieId) -> Iterator[EntryId]:
    """Entries up to ``last_final_entry`` that this bookie has to hold, ascending."""
    end = last_final_entry(metadata)
    if end == NO_ENTRY:
        return
    starts = [fragment.first_entry for fragment in metadata.fragments] + [EntryId(end + 1)]
    for fragment, next_start in zip(metadata.fragments, starts[1:], strict=True):
        if bookie not in fragment.ensemble:
            continue
        position = fragment.ensemble.index(bookie)
        for entry in range(fragment.first_entry, min(next_start, end + 1)):
            if in_write_set(entry, position, metadata.ensemble_size, metadata.write_quorum):
                yield EntryId(entry)
