"""The missing copies of one ledger: its metadata against the entries that each bookie reports.

Only final entries count (repair.py): all of a closed ledger, of any other those before its last fragment. Each
bookie is in one of three states. It is *gone* (not registered), it is *silent* (a time-out, an error: it may have
everything), or it reported the ranges of entries that it has. Only a report makes an entry missing: a silent bookie
lacks nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from bkbox.base.ids import BookieId
from bkbox.protocol.repair import expected_entries, missing
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.write_set import last_final_entry, write_set


class NoReport(Enum):
    """The state of a bookie that reported no entries."""

    UNREGISTERED = "not registered"
    SILENT = "does not say"


BookieReport = NoReport | Sequence[tuple[int, int]]
"""A bookie's report of a ledger: ranges (first, last), both included, ascending and disjoint."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an audit of one ledger.

    ``gone`` and ``silent`` are members of its ensembles; ``lacking``: entries that a bookie must have and reported
    that it has not, ascending, none empty. ``known`` is the smallest number of known copies of an entry, ``possible``
    the same with the copies that silent bookies may have; both None for a ledger without final entries.
    """

    gone: frozenset[BookieId]
    silent: frozenset[BookieId]
    lacking: Mapping[BookieId, tuple[range, ...]]
    known: int | None
    possible: int | None

    @property
    def is_whole(self) -> bool:
        """True if nothing has to be copied, as far as the bookies reported."""
        return not self.gone and not self.lacking

    @property
    def suspects(self) -> tuple[BookieId, ...]:
        """The bookies whose copies are missing, which the ledger's mark has to name."""
        return tuple(sorted({*self.gone, *self.lacking}))


def audit(metadata: LedgerMetadata, reports: Mapping[BookieId, BookieReport]) -> Findings:
    """Audit one ledger. ``reports``: those of the bookies in its ensembles; a bookie without one is silent."""
    members = metadata.bookies()
    found = {bookie: reports.get(bookie, NoReport.SILENT) for bookie in members}
    lacking = {}
    for bookie, report in found.items():
        if not isinstance(report, NoReport):
            absent = tuple(missing(expected_entries(metadata, bookie), report))
            if absent:
                lacking[bookie] = absent
    gone = frozenset(bookie for bookie in members if found[bookie] is NoReport.UNREGISTERED)
    silent = frozenset(bookie for bookie in members if found[bookie] is NoReport.SILENT)
    counts = list(_copies(metadata, gone, silent, lacking))
    return Findings(
        gone,
        silent,
        lacking,
        min((known for known, _ in counts), default=None),
        min((possible for _, possible in counts), default=None),
    )


def live_copies(metadata: LedgerMetadata, gone: Collection[BookieId]) -> int:
    """The smallest number of bookies that are not gone in any write set of the ledger; ledgers with fewest are copied
    first.

    The last fragment counts even if its entries are not final.
    """
    return min(
        sum(fragment.ensemble[position] not in gone for position in positions)
        for fragment in metadata.fragments
        for positions in _write_sets(metadata)
    )


def final_fragments(metadata: LedgerMetadata) -> Iterator[tuple[int, range]]:
    """For each fragment with final entries, its index and these entries, which may be none."""
    end = last_final_entry(metadata) + 1
    starts = [fragment.first_entry for fragment in metadata.fragments]
    for index, first in enumerate(starts):
        if index + 1 < len(starts):
            yield index, range(first, max(first, min(starts[index + 1], end)))
        elif metadata.state is LedgerState.CLOSED:
            yield index, range(first, max(first, end))


def clipped(ranges: Sequence[range], bounds: range) -> list[range]:
    """The parts of these ranges that lie in ``bounds``, none empty."""
    parts = (range(max(r.start, bounds.start), min(r.stop, bounds.stop)) for r in ranges)
    return [part for part in parts if part]


def pieces(
    entries: range, absent: Mapping[BookieId, Sequence[range]]
) -> Iterator[tuple[range, tuple[BookieId, ...]]]:
    """The entries, cut wherever a bookie begins or ends to lack them, each piece with the bookies that lack it.

    ``absent``: parts of ``entries`` by bookie, ascending.
    """
    edges = {entries.start, entries.stop}
    for parts in absent.values():
        for part in parts:
            edges.update((part.start, part.stop))
    cuts = sorted(edges)
    places = dict.fromkeys(absent, 0)
    for start, stop in pairwise(cuts):
        lackers = []
        for bookie, parts in absent.items():
            place = places[bookie]
            while place < len(parts) and parts[place].stop <= start:
                place += 1
            places[bookie] = place
            if place < len(parts) and parts[place].start <= start:
                lackers.append(bookie)
        yield range(start, stop), tuple(lackers)


def _copies(
    metadata: LedgerMetadata,
    gone: Collection[BookieId],
    silent: Collection[BookieId],
    lacking: Mapping[BookieId, Sequence[range]],
) -> Iterator[tuple[int, int]]:
    """The numbers (known, possible) of copies of the entries, once for all entries with the same bookies."""
    size = metadata.ensemble_size
    for index, entries in final_fragments(metadata):
        ensemble = metadata.fragments[index].ensemble
        absent = {
            bookie: clipped(lacking[bookie], entries) for bookie in ensemble if bookie in lacking
        }
        for piece, lackers in pieces(entries, absent):
            for entry in piece[:size]:
                replicas = {
                    ensemble[position] for position in write_set(entry, size, metadata.write_quorum)
                }
                possible = sum(bookie not in gone and bookie not in lackers for bookie in replicas)
                unsure = sum(bookie in silent for bookie in replicas)
                yield possible - unsure, possible


def _write_sets(metadata: LedgerMetadata) -> list[tuple[int, ...]]:
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return [write_set(start, size, quorum) for start in range(size if quorum < size else 1)]
