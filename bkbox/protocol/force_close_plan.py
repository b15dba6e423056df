"""The plan of closing a ledger that recovery cannot close, on an operator's decision, and the loss that it causes.

Recovery closes a ledger only when nothing acknowledged can lie behind the end. If too many bookies cannot tell, an
operator may end it with what was found, after seeing the loss:

- it ends at the last entry that is found contiguously from the LAC on: entries behind a hole are given up, as no
  reader would come past the hole. If entries up to the LAC are not found either, it ends at the last one that is;
- with ``plug`` it ends at the last entry found at all, and every missing entry id up to there gets an entry with an
  empty payload and a valid digest, so that readers come past it. In a closed ledger only that is done.

The loss is reported as far as it is known. In a closed ledger every entry up to its last one was acknowledged. In any
other those up to the LAC were, and behind that every one may have been, up to the first of which WQ - AQ + 1 bookies
say that they do not have it; without such an entry the extent of the loss is unknown.

An unresponsive bookie may have what is given up. What it has behind the end is not read any more; for a plugged id
readers may then get one entry or the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.base.commandline import cluster_command
from bkbox.base.ids import NO_ENTRY, EntryId
from bkbox.protocol.diagnosis import Diagnosis, diagnose
from bkbox.protocol.inspection import (
    Reports,
    coverage,
    evidence_of,
    fragments_of,
    highest_entry,
    joined,
)
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.codes import Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState


@dataclass(frozen=True, slots=True)
class ForceClosePlan:
    """The result of ending a ledger. Ranges of entry ids are ascending and disjoint.

    ``end``: its last entry then. ``holes``: ids up to there that no bookie gives: they become no-op entries with
    ``plug``, and stay unreadable without. ``acknowledged``: entries that no bookie gives, or that are given up, and
    that are known to have been acknowledged: all up to the LAC are, and all of a closed ledger. ``maybe_acknowledged``:
    those behind the LAC that no bookie gives and that may have been acknowledged. ``dropped``: entries behind the end
    that some bookie has. ``unknown_after``: entries after this one may have been acknowledged as well, and no bookie
    can tell; None: there were none.
    """

    diagnosis: Diagnosis
    plug: bool
    end: EntryId
    holes: tuple[range, ...]
    acknowledged: tuple[range, ...]
    dropped: tuple[range, ...]
    maybe_acknowledged: tuple[range, ...] = ()
    unknown_after: EntryId | None = None

    @property
    def metadata(self) -> LedgerMetadata:
        return self.diagnosis.metadata

    @property
    def closes(self) -> bool:
        """True if the ledger is still to be closed."""
        return self.metadata.state is not LedgerState.CLOSED

    @property
    def nothing_to_do(self) -> str:
        """The reason that ending it would be wrong or would change nothing; empty otherwise."""
        number = self.metadata.ledger_id
        if not self.closes:
            if not self.holes:
                return f"ledger {number} is closed at entry {self.end}, and every entry is found"
            if not self.plug:
                return (
                    f"ledger {number} is closed at entry {self.end}; entries {text_of(self.holes)} are found nowhere: "
                    f"--plug puts no-op entries there"
                )
        elif not self.diagnosis.stuck and not (self.plug and self.holes):
            holes = (
                f"; entries {text_of(self.holes)} are found nowhere: --plug puts no-op entries there"
                if self.holes
                else ""
            )
            return (
                f"recovery can close ledger {number} at entry {self.diagnosis.end} and gives nothing up: "
                f"{cluster_command('ledger', 'recover', number)}{holes}"
            )
        return ""

    def gives_up_more_than(self, other: ForceClosePlan) -> bool:
        """True if this plan loses or drops an entry, or plugs an id, that the other one does not; or if only this one
        does not know the extent of the loss.
        """
        agreed = tuple(sorted(other._given_up, key=lambda each: each.start))
        return (
            self.end < other.end
            or (self.unknown_after is not None and other.unknown_after is None)
            or any(_without(each, agreed) for each in self._given_up)
        )

    @property
    def _given_up(self) -> list[range]:
        return [*self.acknowledged, *self.maybe_acknowledged, *self.dropped, *self.holes]


def ending(metadata: LedgerMetadata, reports: Reports, *, plug: bool) -> ForceClosePlan:
    """The plan, from an inspection that has read the whole tail."""
    found = diagnose(metadata, reports)
    closed = metadata.state is LedgerState.CLOSED
    high = highest_entry(metadata, reports)
    top = high if closed else max(high, found.lac)
    absent = _absent(metadata, reports, top)
    if closed:
        return ForceClosePlan(found, plug, high, absent, absent, ())
    end = high if plug else _last_present(found.lac, top, absent)
    # With ``plug`` as well: a missing id at the very end is no entry found.
    while end > NO_ENTRY and _covers(absent, end):
        end = EntryId(end - 1)
    holes = _within(absent, range(end + 1))
    beyond_end = range(end + 1, top + 1)
    dropped = _without(beyond_end, absent)
    acknowledged = tuple(
        joined(
            [
                *_within(absent, range(min(end, found.lac) + 1)),
                *_nonempty(range(end + 1, found.lac + 1)),
            ]
        )
    )
    bound = _never_acknowledged(metadata, reports, found.lac, top)
    maybe_acknowledged = _within(absent, range(found.lac + 1, top + 1 if bound is None else bound))
    unknown_after = EntryId(top) if bound is None else None
    return ForceClosePlan(
        found, plug, end, holes, acknowledged, dropped, maybe_acknowledged, unknown_after
    )


def text_of(ranges: tuple[range, ...], most: int = 10) -> str:
    """``3-5, 9``; for messages."""
    shown = [
        str(each.start) if len(each) == 1 else f"{each.start}-{each.stop - 1}"
        for each in ranges[:most]
    ]
    left = len(ranges) - len(shown)
    return ", ".join(shown) + (f" and {left} more ranges" if left else "")


def count_of(ranges: tuple[range, ...]) -> int:
    """The number of entries in these ranges."""
    return sum(map(len, ranges))


def _never_acknowledged(
    metadata: LedgerMetadata, reports: Reports, lac: int, top: int
) -> EntryId | None:
    """The first entry behind the LAC that was never acknowledged, and so none after it; None if too few bookies can
    tell.

    No bookie has an entry behind ``top``, so each write set is checked once there.
    """
    sizes = QuorumSizes(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    for entry in range(lac + 1, top + 1 + sizes.ensemble_size):
        negatives = evidence_of(metadata, reports, entry).count(Evidence.NEGATIVE)
        if negatives >= sizes.negative_threshold:
            return EntryId(entry)
    return None


def _absent(metadata: LedgerMetadata, reports: Reports, top: int) -> tuple[range, ...]:
    """Entries up to ``top`` (included) without a known copy."""
    found: list[range] = []
    for entries, _ensemble in fragments_of(metadata, top):
        counted = coverage(metadata, reports, entries)
        found += sorted([*counted.lost, *counted.uncertain], key=lambda each: each.start)
    return tuple(joined(found))


def _last_present(lac: int, top: int, absent: tuple[range, ...]) -> EntryId:
    """The last entry before the first hole behind the LAC."""
    for hole in absent:
        if hole.stop > lac + 1:
            return EntryId(max(hole.start, lac + 1) - 1)
    return EntryId(top)


def _covers(ranges: tuple[range, ...], entry: int) -> bool:
    return any(entry in each for each in ranges)


def _within(ranges: tuple[range, ...], bounds: range) -> tuple[range, ...]:
    cut = (range(max(each.start, bounds.start), min(each.stop, bounds.stop)) for each in ranges)
    return tuple(each for each in cut if each)


def _without(bounds: range, ranges: tuple[range, ...]) -> tuple[range, ...]:
    left: list[range] = []
    start = bounds.start
    for each in _within(ranges, bounds):
        left += _nonempty(range(start, each.start))
        start = max(start, each.stop)
    return (*left, *_nonempty(range(start, bounds.stop)))


def _nonempty(entries: range) -> list[range]:
    return [entries] if entries else []
