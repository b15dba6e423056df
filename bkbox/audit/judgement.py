"""What is wrong with one ledger: its metadata against what each of its bookies was found to have.

Pure, and the same for every engine. What is missing, and how many copies are left, is said by the function that
autorecovery uses (bkbox/protocol/audit.py); here are added what only reading the entries shows, and the rows of the
tables.

Nobody lacks what he did not answer for: a time-out is 'unknown', and counts as a copy that may be there.
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
    Ended,
    Ledger,
    Limbo,
    MissingRange,
    NoCopy,
    OwnerBytes,
    RackCopies,
    UnderReplicated,
)
from bkbox.base.ids import BookieId
from bkbox.protocol.audit import Answer, Said, audit, clipped, pieces, settled_fragments
from bkbox.protocol.force_close_plan import text_of
from bkbox.protocol.inspection import joined
from bkbox.protocol.quorum import QuorumSizes
from bkbox.protocol.repair import expected_entries, missing
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import losses_of
from bkbox.wire.metadata.owner import owner_of
from bkbox.wire.write_set import write_set

DEFAULT_RACK = "/default-rack"
"""Where nobody knows better, as the client says it of bookies that are there."""


_RANGES_SHOWN = 1000
"""Ranges of entries that a row lists."""


class Fault(Enum):
    """What can be wrong with a copy; the value names its table."""

    MISSING = "missing"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"


LOST = (Fault.MISSING, Fault.CORRUPT, Fault.UNREADABLE)
"""These copies cannot be read, and are to be made anew."""


@dataclass(slots=True)
class CopyEvidence:
    """What one bookie was found to have of a ledger. What no fault names it has.

    ``faults``: (fault, why) and the entries, ascending, among those that it has to hold. ``is_gone``: it is not
    registered. ``in_limbo``: it says that it does not know what it has; ``withheld``: what it does not give then,
    ascending. ``why_silent``: it said nothing at all. ``gave_no_list``: it was read because it gave no list of its
    entries.
    """

    is_gone: bool = False
    in_limbo: bool = False
    why_silent: str = ""
    gave_no_list: bool = False
    withheld: list[range] = field(default_factory=list)
    faults: dict[tuple[Fault, str], list[range]] = field(default_factory=dict)

    def entries_of(self, *kinds: Fault) -> list[range]:
        """Those with one of these faults, ascending."""
        found = [
            part for (kind, _), parts in self.faults.items() if kind in kinds for part in parts
        ]
        return sorted(found, key=lambda part: part.start)


class Copy(NamedTuple):
    """What copies of an entry have to agree in: the payload, by its SHA-256 in hexadecimal, and the length field. (Not
    the LAC, nor the digest over it: Java's replication worker packs entries anew.)"""

    sha256: str
    length: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Copies of one entry that differ, each with a good digest. ``proved``: the right one, where ``proof`` proves it,
    the metadata or the lengths around it (bkbox/protocol/copy_agreement.py)."""

    entry: int
    copies: Mapping[BookieId, Copy]
    proved: Copy | None = None
    proof: str = "metadata"

    def right(self, ack_quorum: int) -> tuple[Copy | None, str]:
        """The content that is right, and what says so: the metadata, the lengths around it, or that an ack quorum of
        copies has it and no other content has as many. (None, "") where none does.

        The last is no proof: a wrong copy may have been replicated. It is for a plan that a person can read.
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
    """The rows of one ledger."""

    ledger: Ledger
    runs: dict[Fault, list[MissingRange]]
    divergent: list[Divergent]
    under_replicated: list[UnderReplicated]
    limbo: list[Limbo]
    racks: list[RackCopies]
    owner: OwnerBytes
    no_copy: list[NoCopy] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, and nothing is unknown."""
        return not (
            any(self.runs.values())
            or self.divergent
            or self.under_replicated
            or self.limbo
            or self.no_copy
            or self.blocked
        )


def judge(
    metadata: LedgerMetadata,
    looks: Mapping[BookieId, CopyEvidence],
    disagreements: Sequence[Disagreement],
    racks: Mapping[BookieId, str],
) -> Judgement:
    """``looks``: of every bookie that an ensemble names."""
    expected = {each: list(expected_entries(metadata, each)) for each in sorted(metadata.bookies())}
    wrong = _wrong(metadata, disagreements)
    said = {each: _said(expected[each], looks[each], wrong.get(each, ())) for each in expected}
    findings = audit(metadata, said)
    known = findings.known
    if any(look.entries_of(Fault.UNKNOWN) for look in looks.values()):
        sure = {
            each: _said(expected[each], looks[each], wrong.get(each, ()), (*LOST, Fault.UNKNOWN))
            for each in expected
        }
        known = audit(metadata, sure).known
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
    unreadable = without_copy(metadata, looks)
    return Judgement(
        ledger_row(metadata),
        _runs(metadata, expected, looks, unreadable),
        _divergent(metadata, disagreements),
        under_replicated,
        [
            Limbo(each, metadata.ledger_id, _count(expected[each]))
            for each in expected
            if looks[each].in_limbo
        ],
        _rack_rows(metadata, expected, findings.lacking, findings.gone, racks),
        owner_row(metadata),
        _no_copy(metadata, looks, unreadable),
        _blocked(metadata, looks),
        [
            Ended(
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


# ---- entries without a copy, ledgers without an end --------------------------------------------------


def without_copy(metadata: LedgerMetadata, looks: Mapping[BookieId, CopyEvidence]) -> list[range]:
    """Settled entries of which no bookie of the write set gives a copy, and none was silent: ascending.

    What a bookie in limbo withholds it cannot give: no reader gets it either.
    """
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    found: list[range] = []
    for index, entries in settled_fragments(metadata):
        ensemble = metadata.fragments[index].ensemble
        absent = {
            bookie: [entries]
            if looks[bookie].is_gone
            else clipped(_unreadable(looks[bookie]), entries)
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


def _unreadable(look: CopyEvidence) -> list[range]:
    """What the bookie said that it cannot give, ascending and apart."""
    found: list[range] = []
    parts = [*look.entries_of(*LOST), *look.withheld]
    for part in sorted(parts, key=lambda part: part.start):
        if found and part.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return found


def _no_copy(
    metadata: LedgerMetadata, looks: Mapping[BookieId, CopyEvidence], unreadable: Sequence[range]
) -> list[NoCopy]:
    if not unreadable:
        return []
    whys = []
    for bookie, look in sorted(looks.items()):
        if look.is_gone:
            whys.append(f"{bookie} is gone")
        elif any(clipped(look.withheld, part) for part in unreadable):
            whys.append(f"{bookie} is in limbo")
        for (fault, why), parts in look.faults.items():
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


def _blocked(metadata: LedgerMetadata, looks: Mapping[BookieId, CopyEvidence]) -> list[Blocked]:
    """A ledger whose recovery cannot end, whatever the other bookies say: too many of its last ensemble are in limbo
    or gone."""
    if metadata.state is LedgerState.CLOSED:
        return []
    sizes = QuorumSizes(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    ensemble = metadata.last_fragment.ensemble
    limbo = {each for each in ensemble if looks[each].in_limbo}
    gone = {each for each in ensemble if looks[each].is_gone}
    mute = {at for at, each in enumerate(ensemble) if each in limbo | gone}
    if not sizes.contain_ack_quorum(mute):
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
    """What the metadata say of it."""
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
    """What one ledger adds to its owner's row."""
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
    """(first, last, how many) of what is faulty among what is expected, with nothing expected and faultless between;
    both ascending."""
    held: tuple[int, int, int] | None = None
    bad = iter(faulty)
    part = next(bad, None)
    for wanted in expected:
        at = wanted.start
        while at < wanted.stop:
            while part is not None and part.stop <= at:
                part = next(bad, None)
            if part is None or part.start >= wanted.stop:
                if held is not None:
                    yield held
                held = None
                break
            if part.start > at and held is not None:
                yield held
                held = None
            first, stop = max(part.start, at), min(part.stop, wanted.stop)
            held = (
                (held[0], stop - 1, held[2] + stop - first)
                if held
                else (first, stop - 1, stop - first)
            )
            at = stop
    if held is not None:
        yield held


def ranges_of(entries: Iterable[int]) -> list[range]:
    """Ascending entries as ranges that do not touch."""
    found: list[range] = []
    for entry in entries:
        if found and found[-1].stop == entry:
            found[-1] = range(found[-1].start, entry + 1)
        else:
            found.append(range(entry, entry + 1))
    return found


def _said(
    expected: Sequence[range],
    look: CopyEvidence,
    wrong: Sequence[range],
    lost: Sequence[Fault] = LOST,
) -> Said:
    """What the bookie has, for the audit of the copies."""
    if look.is_gone:
        return Answer.GONE
    if look.in_limbo or look.why_silent:
        return Answer.SILENT
    bad = sorted([*look.entries_of(*lost), *wrong], key=lambda part: part.start)
    return [
        (part.start, part.stop - 1)
        for part in missing(expected, [(part.start, part.stop - 1) for part in bad])
    ]


def _wrong(
    metadata: LedgerMetadata, disagreements: Iterable[Disagreement]
) -> dict[BookieId, list[range]]:
    """The copies that are not what they should be."""
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
    looks: Mapping[BookieId, CopyEvidence],
    unreadable: Sequence[range],
) -> dict[Fault, list[MissingRange]]:
    """But for entries without any copy: of them nothing can be copied (NoCopy)."""
    rows: dict[Fault, list[MissingRange]] = {fault: [] for fault in Fault}
    for bookie, parts in expected.items():
        look = looks[bookie]
        if look.is_gone:
            continue
        if look.why_silent:
            # Of an open ledger: what it has to hold is not settled.
            whole: tuple[int, int, int] = (metadata.last_fragment.first_entry, -1, 0)
            if parts:
                whole = (parts[0].start, parts[-1].stop - 1, _count(parts))
            rows[Fault.UNKNOWN].append(
                MissingRange(metadata.ledger_id, bookie, *whole, look.why_silent)
            )
            continue
        for (fault, why), faulty in look.faults.items():
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
    """How many entries are in one rack alone, by the rack."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    found: dict[str, int] = {}
    for index, entries in settled_fragments(metadata):
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
    """Rows of the same rack added up, by rack."""
    found: dict[str, RackCopies] = {}
    for row in rows:
        before = found.get(row.rack)
        found[row.rack] = row if before is None else RackCopies(row.rack, *_sums(before, row))
    return [found[rack] for rack in sorted(found)]


def merged_owners(rows: Iterable[OwnerBytes]) -> list[OwnerBytes]:
    """Rows of the same owner added up, the largest first."""
    found: dict[str, OwnerBytes] = {}
    for row in rows:
        before = found.get(row.owner)
        found[row.owner] = row if before is None else OwnerBytes(row.owner, *_sums(before, row))
    return sorted(found.values(), key=lambda row: (-row.stored_bytes, row.owner))


def _sums(one: tuple[object, ...], other: tuple[object, ...]) -> list[int]:
    return [int(a) + int(b) for a, b in zip(one[1:], other[1:], strict=True)]  # type: ignore[call-overload]
