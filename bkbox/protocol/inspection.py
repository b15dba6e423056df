"""The reports of a ledger's bookies, combined without changing anything: for tools that explain its state.

A report holds one bookie's responses. For an entry it is worth as much as a read of it: ``POSITIVE`` if the bookie
has it, ``NEGATIVE`` only if it says that it does not and can tell, ``UNKNOWN`` for all else: limbo, time-out, no
connection, a copy whose digest is wrong.

Entries are counted in arrays of a byte per entry, a window of them at a time, so that a ledger of millions takes
seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set

WINDOW_ENTRIES = 1 << 20
"""Entries that are counted at once."""

_INVERTED = bytes((1, 0)) + bytes(254)


@dataclass(frozen=True, slots=True)
class Report:
    """The responses of one bookie.

    ``status``: of the read of its last entry, the one with which a recovery fences. ``fenced`` and ``limbo``: None if
    it does not report it (only bkbox's bookies report the former). ``listed``: the entries that it has; None if it
    gives no list. ``reads``: its responses to reads of single entries, which are newer than the list. ``lac``: the
    highest last add confirmed that an entry or LAC with a valid digest proves; ``last``: its last entry, as far as
    known.
    """

    bookie: BookieId
    status: RequestStatus
    fenced: bool | None = None
    limbo: bool | None = None
    listed: Availability | None = None
    reads: Mapping[int, RequestStatus] = field(default_factory=dict)
    lac: EntryId = NO_ENTRY
    last: EntryId = NO_ENTRY

    @property
    def alive(self) -> bool:
        """True if it responds at all."""
        return isinstance(self.status, Code) or self.listed is not None

    @property
    def can_deny(self) -> bool:
        """True if an entry not known to be there is absent."""
        if self.status in (Code.ENOLEDGER, Code.ENOENTRY):
            return True  # it has no entry at all
        return self.listed is not None and not self.limbo

    def evidence(self, entry: int) -> Evidence:
        """The evidence that a read of the entry would give, or gave."""
        read = self.reads.get(entry)
        if read is not None:
            return read.evidence
        if self.listed is not None and entry in self.listed:
            return Evidence.POSITIVE
        return Evidence.NEGATIVE if self.can_deny else Evidence.UNKNOWN

    def describe_entry(self, entry: int) -> str:
        """The same as text."""
        evidence = self.evidence(entry)
        if evidence is Evidence.POSITIVE:
            return "has it"
        if evidence is Evidence.NEGATIVE:
            return "does not have it"
        return self._silence(self.reads.get(entry, self.status))

    @property
    def silence(self) -> str:
        """The reason that it reports nothing of the ledger at all, as text."""
        return self._silence(self.status)

    def _silence(self, status: RequestStatus) -> str:
        if self.limbo:
            return "is in limbo and cannot tell"
        if isinstance(status, NoResponse):
            return _SILENT[status]
        return f"answered {status.name}" if status is not Code.EOK else "was not asked"


_SILENT = {
    NoResponse.CONNECTION_LOST: "dropped the connection",
    NoResponse.TIMEOUT: "did not answer in time",
    NoResponse.BAD_DIGEST: "has a copy whose digest is wrong",
    NoResponse.NOT_REACHED: "cannot be reached",
    NoResponse.NOT_UNDERSTOOD: "gave an answer that cannot be decoded",
}

Reports = Mapping[BookieId, Report]


def write_set_of(metadata: LedgerMetadata, entry: int) -> tuple[BookieId, ...]:
    """The bookies that are to hold an entry, in write order."""
    ensemble = metadata.fragment_of(entry).ensemble
    positions = write_set(entry, metadata.ensemble_size, metadata.write_quorum)
    return tuple(ensemble[position] for position in positions)


def evidence_of(metadata: LedgerMetadata, reports: Reports, entry: int) -> list[Evidence]:
    """The evidence of each bookie of an entry's write set."""
    return [reports[bookie].evidence(entry) for bookie in write_set_of(metadata, entry)]


def highest_lac(metadata: LedgerMetadata, reports: Reports) -> EntryId:
    """The last entry known to have been acknowledged: the highest LAC that a bookie reports, and never less than the
    end of the fragment before the last.
    """
    lacs = (report.lac for report in reports.values())
    return max(EntryId(metadata.last_fragment.first_entry - 1), *lacs)


def highest_entry(metadata: LedgerMetadata, reports: Reports) -> EntryId:
    """The last entry that any bookie is known to have; a closed ledger ends where its metadata says."""
    if metadata.state is LedgerState.CLOSED:
        return metadata.last_entry
    found = [report.last for report in reports.values()]
    found += [
        EntryId(max((group.end for group in report.listed.groups), default=0) - 1)
        for report in reports.values()
        if report.listed is not None
    ]
    return max(found, default=NO_ENTRY)


# ---- numbers of copies ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Coverage:
    """The numbers of known copies of some entries.

    ``copies``: number of entries by number of known copies. ``lost``: entries that every bookie of the write set says
    it does not have; ``uncertain``: entries without a known copy, where some bookie cannot tell.
    """

    entries: range
    copies: dict[int, int]
    lost: tuple[range, ...]
    uncertain: tuple[range, ...]

    def fewer_than(self, copies: int) -> int:
        """The number of entries that have fewer copies, or are not known to have as many."""
        return sum(number for found, number in self.copies.items() if found < copies)


def coverage(metadata: LedgerMetadata, reports: Reports, entries: range) -> Coverage:
    """Count the copies of entries of one fragment."""
    copies: dict[int, int] = {}
    lost: list[range] = []
    uncertain: list[range] = []
    for start in range(entries.start, entries.stop, WINDOW_ENTRIES):
        window = range(start, min(start + WINDOW_ENTRIES, entries.stop))
        has, denies, members = _count(metadata, reports, window)
        for found in set(has):
            copies[found] = copies.get(found, 0) + has.count(found)
        if 0 in has:
            absent = bytes(
                0 if yes else 1 if no == all_ else 2
                for yes, no, all_ in zip(has, denies, members, strict=True)
            )
            lost += _runs(absent, 1, start)
            uncertain += _runs(absent, 2, start)
    return Coverage(entries, copies, tuple(joined(lost)), tuple(joined(uncertain)))


def covered_upto(metadata: LedgerMetadata, reports: Reports, end: int, copies: int) -> EntryId:
    """The last entry, ``end`` at most, up to which every entry is known to have so many copies; -1 for none."""
    few = bytes(count < copies for count in range(256))
    for entries, _ensemble in fragments_of(metadata, end):
        for start in range(entries.start, entries.stop, WINDOW_ENTRIES):
            window = range(start, min(start + WINDOW_ENTRIES, entries.stop))
            has, _, _ = _count(metadata, reports, window)
            at = has.translate(few).find(1)
            if at >= 0:
                return EntryId(start + at - 1)
    return EntryId(end)


def fragments_of(
    metadata: LedgerMetadata, end: int
) -> Iterator[tuple[range, tuple[BookieId, ...]]]:
    """Each fragment as the entries up to ``end`` (included) that it covers, and its ensemble."""
    starts = [fragment.first_entry for fragment in metadata.fragments[1:]]
    for fragment, next_start in zip(metadata.fragments, [*starts, None], strict=True):
        stop = end + 1 if next_start is None else min(next_start, end + 1)
        yield range(fragment.first_entry, max(stop, fragment.first_entry)), fragment.ensemble


def joined(ranges: Iterable[range]) -> list[range]:
    """Ascending ranges, with adjacent ones merged."""
    found: list[range] = []
    for each in ranges:
        if found and found[-1].stop == each.start:
            found[-1] = range(found[-1].start, each.stop)
        else:
            found.append(each)
    return found


def _count(metadata: LedgerMetadata, reports: Reports, window: range) -> tuple[bytes, bytes, bytes]:
    """Per entry: how many bookies of its write set have it, how many say that they do not, how many there are."""
    ensemble = metadata.fragment_of(window.start).ensemble
    has = denies = members = 0
    for bookie in dict.fromkeys(ensemble):
        belongs = bytearray(len(window))
        for position in (at for at, member in enumerate(ensemble) if member == bookie):
            for step in range(metadata.write_quorum):
                first = (position - step - window.start) % metadata.ensemble_size
                _mark(belongs, first, len(window), metadata.ensemble_size)
        has_here, denied_here = _marks(reports[bookie], window)
        member = int.from_bytes(belongs, "little")
        members += member
        has += member & int.from_bytes(has_here, "little")
        denies += member & int.from_bytes(denied_here, "little")
    size = len(window)
    # Sums of bytes of 0 and 1: an ensemble has fewer than 256 members, so none overflows.
    return (
        has.to_bytes(size, "little"),
        denies.to_bytes(size, "little"),
        members.to_bytes(size, "little"),
    )


def _marks(report: Report, window: range) -> tuple[bytearray, bytearray]:
    has = bytearray(len(window))
    for group in () if report.listed is None else report.listed.groups:
        for offset in range(group.size):
            start, stop, step = (
                group.first_start + offset,
                group.last_start + offset + 1,
                group.period,
            )
            if group.period == 0:
                start, stop, step = group.first_start, group.end, 1
            first = max(start, start + -(-(window.start - start) // step) * step)
            if first < min(stop, window.stop):
                _mark(has, first - window.start, min(stop, window.stop) - window.start, step)
            if group.period == 0:
                break
    denies = has.translate(_INVERTED) if report.can_deny else bytearray(len(window))
    for entry, status in report.reads.items():
        if entry in window:
            has[entry - window.start] = status.evidence is Evidence.POSITIVE
            denies[entry - window.start] = status.evidence is Evidence.NEGATIVE
    return has, denies


def _mark(marks: bytearray, first: int, stop: int, step: int) -> None:
    chosen = range(first, stop, step)
    if chosen:
        marks[first:stop:step] = b"\1" * len(chosen)


def _runs(marks: bytes, mark: int, start: int) -> Iterator[range]:
    at = marks.find(mark)
    while at >= 0:
        end = at
        while end < len(marks) and marks[end] == mark:
            end += 1
        yield range(start + at, start + end)
        at = marks.find(mark, end)
