"""Phase two of a boot, planned: the entries of a ledger that this bookie has to hold, the missing ones, the peers to
copy them from, and when the ledger leaves limbo.

Only final entries are planned for: all of a closed ledger, of any other those of the fragments before the last,
which are acknowledged and will not move. A ledger that is open with this bookie in its last ensemble, or in recovery,
stays in limbo and is recovered first: a 'no' from here could let a recovery end it too early, and a recovery in
progress may name this bookie for the first time when it closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bkbox.base.ids import BookieId
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.write_set import in_write_set, last_final_entry, write_set


def needs_recovery(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """True if the ledger has to be recovered before this bookie can know what it has to hold."""
    if metadata.state is LedgerState.OPEN:
        return bookie in metadata.last_fragment.ensemble
    return metadata.state is LedgerState.IN_RECOVERY


def expected_entries(
    metadata: LedgerMetadata, bookie: BookieId, upto: int | None = None
) -> Iterator[range]:
    """Entries that this bookie has to hold, as ascending ranges that neither touch nor overlap.

    ``upto`` bounds them further (inclusive). A bookie that an ensemble names twice holds the
    entries of both positions.
    """
    end = last_final_entry(metadata) if upto is None else min(upto, last_final_entry(metadata))
    return joined(_expected(metadata, bookie, end))


def acknowledged_entries(metadata: LedgerMetadata, bookie: BookieId, lac: int) -> Iterator[range]:
    """Entries that this bookie has to hold of a ledger whose writer may go on: also those of an open last fragment up
    to ``lac``, a LAC that was read before the metadata were read.

    An ensemble change takes effect behind the writer's LAC, so that the ensembles of these entries are final.
    """
    end = last_final_entry(metadata)
    return joined(
        _expected(metadata, bookie, max(end, lac) if metadata.state is LedgerState.OPEN else end)
    )


def missing(expected: Iterable[range], present: Iterable[tuple[int, int]]) -> Iterator[range]:
    """The expected entries that are not present. ``present``: (first, last) ranges, ascending, both inclusive."""
    runs = iter(present)
    run = next(runs, None)
    for needed in expected:
        start = needed.start
        while start < needed.stop:
            while run is not None and run[1] < start:
                run = next(runs, None)
            if run is None or run[0] >= needed.stop:
                yield range(start, needed.stop)
                break
            if run[0] > start:
                yield range(start, run[0])
            start = run[1] + 1


def peers(metadata: LedgerMetadata, entry: int, bookie: BookieId) -> tuple[BookieId, ...]:
    """The other bookies that hold an entry, in the order to ask them.

    That is write order from this bookie on, so that the reads of a ledger are spread evenly over its bookies.
    """
    ensemble = metadata.fragment_of(entry).ensemble
    positions = write_set(entry, metadata.ensemble_size, metadata.write_quorum)
    replicas = list(dict.fromkeys(ensemble[position] for position in positions))
    own = replicas.index(bookie) if bookie in replicas else 0
    around = replicas[own:] + replicas[:own]
    return tuple(replica for replica in around if replica != bookie)


def may_leave_limbo(
    metadata: LedgerMetadata | None, bookie: BookieId, *, missing: int, unverified: int
) -> bool:
    """True if this bookie may respond 'no such entry' for the ledger again.

    ``metadata`` None: the ledger was deleted, and no client can be misled. ``missing``: expected entries that are not
    here durably; ``unverified``: those whose bytes were not read and checked.
    """
    if metadata is None:
        return True
    return not needs_recovery(metadata, bookie) and missing == 0 and unverified == 0


def _expected(metadata: LedgerMetadata, bookie: BookieId, end: int) -> Iterator[range]:
    starts = [fragment.first_entry for fragment in metadata.fragments[1:]]
    for fragment, next_start in zip(metadata.fragments, [*starts, end + 1], strict=True):
        entries = range(fragment.first_entry, min(next_start, end + 1))
        positions = [at for at, member in enumerate(fragment.ensemble) if member == bookie]
        if positions and metadata.write_quorum == metadata.ensemble_size:
            yield entries
            continue
        for entry in entries:
            if any(
                in_write_set(entry, position, metadata.ensemble_size, metadata.write_quorum)
                for position in positions
            ):
                yield range(entry, entry + 1)


def joined(ranges: Iterable[range]) -> Iterator[range]:
    """Ascending ranges as ones that neither touch nor overlap; empty ones are left out."""
    current = range(0)
    for piece in ranges:
        if not piece:
            continue
        if current and current.stop == piece.start:
            current = range(current.start, piece.stop)
            continue
        if current:
            yield current
        current = piece
    if current:
        yield current
