"""Classifies the copies of one ledger: its metadata against what each of its bookies was found to have.

Pure, and the same for every engine. Missing entries and the number of copies left come from the function that
autorecovery uses (bkbox/protocol/audit.py). This module adds the faults that only reading the entries shows, and the
rows of the tables.

Without a response a bookie lacks nothing: a time-out is 'unknown', and counts as a copy that may be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bkbox.audit.rows import (
    Blocked,
    Divergent,
    ForceClosedLedger,
    Ledger,
    Limbo,
    MissingRange,
    NoCopy,
    OwnerBytes,
    RackCopies,
    UnderReplicated,
)
from bkbox.base.ids import BookieId
from bkbox.protocol.audit import BookieReport, NoReport, audit, clipped, final_fragments, pieces
from bkbox.protocol.force_close_plan import text_of
from bkbox.protocol.inspection import joined
from bkbox.protocol.quorum import QuorumSizes
from bkbox.protocol.repair import expected_entries, missing
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import losses_of
from bkbox.wire.metadata.owner import owner_of
from bkbox.wire.write_set import write_set

DEFAULT_RACK = "/default-rack"
"""Rack of a bookie for which none is known; the client uses the same for registered bookies."""


_RANGES_SHOWN = 1000
"""Maximum number of ranges of entries that a row lists."""


class Fault(Enum):
    """Fault of a copy; the value names its table."""

    MISSING = "missing"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"


LOST = (Fault.MISSING, Fault.CORRUPT, Fault.UNREADABLE)
"""Faults of copies that cannot be read and must be rebuilt."""


@dataclass(slots=True)
class CopyEvidence:
    """Evidence of what one bookie has of a ledger. It has every entry that no fault names.

    ``faults``: by (fault, why), the entries, ascending, among the entries that it has to hold. ``is_unregistered``: it
    is not registered. ``in_limbo``: it reports that it does not know what it has; ``withheld``: the entries that it
    does not return for that reason, ascending. ``why_unresponsive``: it did not respond at all. ``gave_no_list``: it
    was read because it returned no list of its entries.
    """

    is_unregistered: bool = False
    in_limbo: bool = False
    why_unresponsive: str = ""
    gave_no_list: bool = False
    withheld: list[range] = field(default_factory=list)
    faults: dict[tuple[Fault, str], list[range]] = field(default_factory=dict)

    def entries_of(self, *kinds: Fault) -> list[range]:
        """The entries with one of these faults, ascending."""
        found = [
            part for (kind, _), parts in self.faults.items() if kind in kinds for part in parts
        ]
        return sorted(found, key=lambda part: part.start)


class Copy(NamedTuple):
    """The fields that copies of an entry must agree in: the payload, by its SHA-256 in hexadecimal, and the length
    field. (Not the LAC, nor the digest over it: Java's replication worker packs entries anew.)"""

    sha256: str
    length: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Copies of one entry that differ, each with a good digest. ``proved``: the right one, if ``proof`` proves it: the
    metadata or the lengths around it (bkbox/protocol/copy_agreement.py)."""

    entry: int
    copies: Mapping[BookieId, Copy]
    proved: Copy | None = None
    proof: str = "metadata"

    def right(self, ack_quorum: int) -> tuple[Copy | None, str]:
        """The right content and its evidence: the metadata, the lengths around it, or an ack quorum of copies with this
        content while no other content has as many. (None, "") if none is right.

        The ack quorum is no proof: a wrong copy may have been replicated. It is for a plan that an operator can read.
        """
        if self.proved is not None:
            return self.proved, self.proof
        counts = Counter(self.copies.values())
        enough = [copy for copy, count in counts.items() if count >= ack_quorum]
        if len(enough) == 1 and all(
            counts[enough[0]] > n for c, n in counts.items() if c != enough[0]
        ):
            return enough[0], "ack quorum"
        return None, ""


@dataclass(slots=True)
class Judgement:
    """The rows of one ledger for the tables."""

    ledger: Ledger
    runs: dict[Fault, list[MissingRange]]
    divergent: list[Divergent]
    under_replicated: list[UnderReplicated]
    limbo: list[Limbo]
    racks: list[RackCopies]
    owner: OwnerBytes
    no_copy: list[NoCopy] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    ended: list[ForceClosedLedger] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """True if nothing was found, and nothing is unknown."""
        return not (
            any(self.runs.values())
            or self.divergent
            or self.under_replicated
            or self.limbo
            or self.no_copy
            or self.blocked
        )


def classify_ledger(
    metadata: LedgerMetadata,
    by_bookie: Mapping[BookieId, CopyEvidence],
    disagreements: Sequence[Disagreement],
    racks: Mapping[BookieId, str],
) -> Judgement:
    """Classifies the copies of one ledger. ``by_bookie``: the evidence for every bookie that an ensemble names."""
    expected = {each: list(expected_entries(metadata, each)) for each in sorted(metadata.bookies())}
    wrong = _wrong(metadata, disagreements)
    reports = {
        each: _bookie_report(expected[each], by_bookie[each], wrong.get(each, ()))
        for each in expected
    }
    findings = audit(metadata, reports)
    known = findings.known
    if any(evidence.entries_of(Fault.UNKNOWN) for evidence in by_bookie.values()):
        certain_reports = {
            each: _bookie_report(
                expected[each], by_bookie[each], wrong.get(each, ()), (*LOST, Fault.UNKNOWN)
            )
            for each in expected
        }
        known = audit(metadata, certain_reports).known
    under_replicated = []
    if findings.gone or findings.lacking:
        under_replicated.append(
            UnderReplicated(
                metadata.ledger_id,
                metadata.state.name,
                metadata.write_quorum,
                metadata.ack_quorum,
                known,
                findings.possible,
                sorted(findings.gone),
                sorted(findings.lacking),
                sum(len(part) for parts in findings.lacking.values() for part in parts),
            )
        )
    unreadable = without_copy(metadata, by_bookie)
    return Judgement(
        ledger_row(metadata),
        _runs(metadata, expected, by_bookie, unreadable),
        _divergent(metadata, disagreements),
        under_replicated,
        [
            Limbo(each, metadata.ledger_id, _count(expected[each]))
            for each in expected
            if by_bookie[each].in_limbo
        ],
        _rack_rows(metadata, expected, findings.lacking, findings.gone, racks),
        owner_row(metadata),
        _no_copy(metadata, by_bookie, unreadable),
        _blocked(metadata, by_bookie),
        [
            ForceClosedLedger(
                metadata.ledger_id,
                record.at_ms,
                record.by,
                record.run,
                record.end,
                record.lost,
                record.lost_entries,
                record.doubtful,
                record.unknown_after,
            )
            for record in losses_of(metadata)
        ],
    )


# ---- entries without a copy, ledgers that recovery cannot close ---------------------------------------


def without_copy(
    metadata: LedgerMetadata, by_bookie: Mapping[BookieId, CopyEvidence]
) -> list[range]:
    """Settled entries of which no bookie of the write set returns a copy although all responded: ascending.

    An entry that a bookie in limbo withholds has no copy there: no reader gets it either.
    """
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    found: list[range] = []
    for index, entries in final_fragments(metadata):
        ensemble = metadata.fragments[index].ensemble
        absent = {
            bookie: [entries]
            if by_bookie[bookie].is_unregistered
            else clipped(_unreadable(by_bookie[bookie]), entries)
            for bookie in ensemble
        }
        for piece, lackers in pieces(entries, absent):
            if set(ensemble).issubset(lackers):
                found.append(piece)
                continue
            striped: list[int] = []
            for offset in range(min(size, len(piece))):
                alike = piece[offset::size]
                replicas = {ensemble[at] for at in write_set(alike[0], size, quorum)}
                if replicas.issubset(lackers):
                    striped += alike
            found += ranges_of(sorted(striped))
    return joined(found)


def _unreadable(evidence: CopyEvidence) -> list[range]:
    """The entries that the bookie reported it cannot return: ascending, disjoint ranges."""
    found: list[range] = []
    parts = [*evidence.entries_of(*LOST), *evidence.withheld]
    for part in sorted(parts, key=lambda part: part.start):
        if found and part.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return found


def _no_copy(
    metadata: LedgerMetadata,
    by_bookie: Mapping[BookieId, CopyEvidence],
    unreadable: Sequence[range],
) -> list[NoCopy]:
    if not unreadable:
        return []
    whys = []
    for bookie, evidence in sorted(by_bookie.items()):
        if evidence.is_unregistered:
            whys.append(f"{bookie} is gone")
        elif any(clipped(evidence.withheld, part) for part in unreadable):
            whys.append(f"{bookie} is in limbo")
        for (fault, why), parts in evidence.faults.items():
            if fault in LOST and any(clipped(parts, part) for part in unreadable):
                whys.append(f"{bookie}: {why}")
    return [
        NoCopy(
            metadata.ledger_id,
            metadata.state.name,
            _count(unreadable),
            text_of(tuple(unreadable), most=_RANGES_SHOWN),
            "; ".join(whys),
        )
    ]


def _blocked(metadata: LedgerMetadata, by_bookie: Mapping[BookieId, CopyEvidence]) -> list[Blocked]:
    """A ledger that recovery cannot close, whatever the other bookies respond: too many of its last ensemble are in
    limbo or gone."""
    if metadata.state is LedgerState.CLOSED:
        return []
    sizes = QuorumSizes(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    ensemble = metadata.last_fragment.ensemble
    limbo = {each for each in ensemble if by_bookie[each].in_limbo}
    gone = {each for each in ensemble if by_bookie[each].is_unregistered}
    unavailable = {at for at, each in enumerate(ensemble) if each in limbo | gone}
    if not sizes.contain_ack_quorum(unavailable):
        return []
    return [
        Blocked(
            metadata.ledger_id,
            metadata.state.name,
            metadata.write_quorum,
            metadata.ack_quorum,
            sorted(limbo),
            sorted(gone),
        )
    ]


# ---- metadata ---------------------------------------------------------------------------------------


def ledger_row(metadata: LedgerMetadata) -> Ledger:
    """The ledger's row, by its metadata."""
    is_closed = metadata.state is LedgerState.CLOSED
    return Ledger(
        metadata.ledger_id,
        metadata.state.name,
        owner_of(metadata),
        metadata.ctime_ms if metadata.ctime_ms >= 0 else None,
        metadata.last_entry + 1 if is_closed else None,
        metadata.length if is_closed else None,
        metadata.ensemble_size,
        metadata.write_quorum,
        metadata.ack_quorum,
        len(metadata.fragments),
        sorted(metadata.bookies()),
    )


def owner_row(metadata: LedgerMetadata) -> OwnerBytes:
    """The contribution of one ledger to its owner's row."""
    is_closed = metadata.state is LedgerState.CLOSED
    size = metadata.length if is_closed else 0
    return OwnerBytes(
        owner_of(metadata),
        1,
        int(not is_closed),
        metadata.last_entry + 1 if is_closed else 0,
        size,
        size * metadata.write_quorum,
    )


# ---- copies -----------------------------------------------------------------------------------------


def runs_over(expected: Sequence[range], faulty: Sequence[range]) -> Iterator[tuple[int, int, int]]:
    """Runs of faulty entries as (first, last, count). A run ends where an expected entry is not faulty. Both arguments
    are ascending."""
    pending: tuple[int, int, int] | None = None
    bad = iter(faulty)
    part = next(bad, None)
    for owned in expected:
        at = owned.start
        while at < owned.stop:
            while part is not None and part.stop <= at:
                part = next(bad, None)
            if part is None or part.start >= owned.stop:
                if pending is not None:
                    yield pending
                pending = None
                break
            if part.start > at and pending is not None:
                yield pending
                pending = None
            first, stop = max(part.start, at), min(part.stop, owned.stop)
            pending = (
                (pending[0], stop - 1, pending[2] + stop - first)
                if pending
                else (first, stop - 1, stop - first)
            )
            at = stop
    if pending is not None:
        yield pending


def ranges_of(entries: Iterable[int]) -> list[range]:
    """Ascending entries as ranges that do not touch."""
    found: list[range] = []
    for entry in entries:
        if found and found[-1].stop == entry:
            found[-1] = range(found[-1].start, entry + 1)
        else:
            found.append(range(entry, entry + 1))
    return found


def _bookie_report(
    expected: Sequence[range],
    evidence: CopyEvidence,
    wrong: Sequence[range],
    lost: Sequence[Fault] = LOST,
) -> BookieReport:
    """The bookie's report, as the audit of the copies takes it."""
    if evidence.is_unregistered:
        return NoReport.UNREGISTERED
    if evidence.in_limbo or evidence.why_unresponsive:
        return NoReport.SILENT
    bad = sorted([*evidence.entries_of(*lost), *wrong], key=lambda part: part.start)
    return [
        (part.start, part.stop - 1)
        for part in missing(expected, [(part.start, part.stop - 1) for part in bad])
    ]


def _wrong(
    metadata: LedgerMetadata, disagreements: Iterable[Disagreement]
) -> dict[BookieId, list[range]]:
    """The wrong copies, by bookie."""
    found: dict[BookieId, list[range]] = {}
    for each in disagreements:
        right, _ = each.right(metadata.ack_quorum)
        for bookie, copy in each.copies.items():
            if right is not None and copy != right:
                found.setdefault(bookie, []).append(range(each.entry, each.entry + 1))
    return found


def _divergent(metadata: LedgerMetadata, disagreements: Iterable[Disagreement]) -> list[Divergent]:
    rows = []
    for each in disagreements:
        right, proof = each.right(metadata.ack_quorum)
        for bookie, copy in sorted(each.copies.items()):
            verdict = "undecided" if right is None else "right" if copy == right else "wrong"
            alike = sum(other == copy for other in each.copies.values())
            rows.append(
                Divergent(metadata.ledger_id, each.entry, bookie, *copy, alike, verdict, proof)
            )
    return rows


def _runs(
    metadata: LedgerMetadata,
    expected: Mapping[BookieId, Sequence[range]],
    by_bookie: Mapping[BookieId, CopyEvidence],
    unreadable: Sequence[range],
) -> dict[Fault, list[MissingRange]]:
    """The missing ranges by fault, without entries that have no copy anywhere: those cannot be copied (NoCopy)."""
    rows: dict[Fault, list[MissingRange]] = {fault: [] for fault in Fault}
    for bookie, parts in expected.items():
        evidence = by_bookie[bookie]
        if evidence.is_unregistered:
            continue
        if evidence.why_unresponsive:
            # Open ledger: the entries that it has to hold are not settled.
            whole: tuple[int, int, int] = (metadata.last_fragment.first_entry, -1, 0)
            if parts:
                whole = (parts[0].start, parts[-1].stop - 1, _count(parts))
            rows[Fault.UNKNOWN].append(
                MissingRange(metadata.ledger_id, bookie, *whole, evidence.why_unresponsive)
            )
            continue
        for (fault, why), faulty in evidence.faults.items():
            if fault in LOST and unreadable:
                lost = [(part.start, part.stop - 1) for part in unreadable]
                faulty = list(missing(faulty, lost))
            rows[fault] += [
                MissingRange(metadata.ledger_id, bookie, *run, why)
                for run in runs_over(parts, faulty)
            ]
    return rows


# ---- racks ------------------------------------------------------------------------------------------


def _rack_rows(
    metadata: LedgerMetadata,
    expected: Mapping[BookieId, Sequence[range]],
    lacking: Mapping[BookieId, Sequence[range]],
    gone: Iterable[BookieId],
    racks: Mapping[BookieId, str],
) -> list[RackCopies]:
    found: dict[str, RackCopies] = {}
    absent = {bookie: _count(parts) for bookie, parts in lacking.items()}
    absent |= {bookie: _count(expected[bookie]) for bookie in gone}
    alone = _only_in_one(metadata, racks)
    for bookie, parts in expected.items():
        rack = racks.get(bookie, DEFAULT_RACK)
        lacks = absent.get(bookie, 0)
        row = found.get(rack) or RackCopies(rack, 1, 0, 0, alone.get(rack, 0))
        copies = row.copies + _count(parts) - lacks
        found[rack] = row._replace(copies=copies, lacking=row.lacking + lacks)
    return [found[rack] for rack in sorted(found)]


def _only_in_one(metadata: LedgerMetadata, racks: Mapping[BookieId, str]) -> dict[str, int]:
    """The number of entries whose copies are all in one rack, by rack."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    found: dict[str, int] = {}
    for index, entries in final_fragments(metadata):
        ensemble = metadata.fragments[index].ensemble
        for offset in range(min(size if quorum < size else 1, len(entries))):
            alike = entries[offset :: size if quorum < size else 1]
            spread = {
                racks.get(ensemble[at], DEFAULT_RACK) for at in write_set(alike[0], size, quorum)
            }
            if len(spread) == 1:
                (rack,) = spread
                found[rack] = found.get(rack, 0) + len(alike)
    return found


def _count(parts: Iterable[range]) -> int:
    return sum(map(len, parts))


def merged_racks(rows: Iterable[RackCopies]) -> list[RackCopies]:
    """Sums rows of the same rack, by rack."""
    found: dict[str, RackCopies] = {}
    for row in rows:
        before = found.get(row.rack)
        found[row.rack] = row if before is None else RackCopies(row.rack, *_sums(before, row))
    return [found[rack] for rack in sorted(found)]


def merged_owners(rows: Iterable[OwnerBytes]) -> list[OwnerBytes]:
    """Sums rows of the same owner, the largest first."""
    found: dict[str, OwnerBytes] = {}
    for row in rows:
        before = found.get(row.owner)
        found[row.owner] = row if before is None else OwnerBytes(row.owner, *_sums(before, row))
    return sorted(found.values(), key=lambda row: (-row.stored_bytes, row.owner))


def _sums(one: tuple[object, ...], other: tuple[object, ...]) -> list[int]:
    return [int(a) + int(b) for a, b in zip(one[1:], other[1:], strict=True)]  # type: ignore[call-overload]
