"""The outcome of a recovery of a ledger, predicted from its bookies' reports (inspection.py), and the reason if it
cannot end.

The end of a ledger is found only by QC = WQ - AQ + 1 plain negatives of one write set. A bookie in limbo never gives
one, nor does an unresponsive one: recovery tolerates AQ - 1 of them in a write set and no more (limbo model, 5.4:
with AQ bookies in limbo no recovery ever ends, however often it is tried). If more have forgotten, after a power cut
of all hosts under ``ack_after = write``, say, only an operator who accepts the loss can end the ledger
(force_close_plan.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from bkbox.base.commandline import cluster_command
from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.protocol.inspection import Reports, evidence_of, highest_lac, write_set_of
from bkbox.protocol.quorum import QuorumSizes, ReadOutcome, read_outcome
from bkbox.wire.codes import Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState


class RecoveryOutlook(Enum):
    """The outcome of a recovery."""

    NOTHING = "the ledger is closed: there is nothing to recover"
    CLOSES = "recovery closes it"
    NO_FENCE = "recovery cannot fence the ledger"
    NO_END = "recovery cannot find the end"
    NO_LENGTH = "recovery cannot read the last entry that is acknowledged"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``lac``: the highest LAC known. ``found``: entries above it that recovery may write back, all of them up to
    ``end`` if it closes, else up to where it stops. It may also close anywhere from ``end_at_least`` on: if one
    bookie has an entry that was not acknowledged, the first bookie to respond decides. ``entry``: the one it stops
    at, None while fencing. ``silent``: bookies that cannot tell and would have to, each with the reason.
    ``forgotten``: bookies in limbo alone keep it from ending, so that no returning bookie can help.
    """

    metadata: LedgerMetadata
    prospect: RecoveryOutlook
    lac: EntryId
    found: range
    end: EntryId | None = None
    end_at_least: EntryId | None = None
    entry: EntryId | None = None
    silent: tuple[tuple[BookieId, str], ...] = ()
    limbo: tuple[BookieId, ...] = ()
    queried: tuple[BookieId, ...] = ()
    forgotten: bool = False

    @property
    def stuck(self) -> bool:
        return self.prospect not in (RecoveryOutlook.NOTHING, RecoveryOutlook.CLOSES)

    @property
    def reason(self) -> str:
        """The reason that recovery cannot end, for operators; empty if it can."""
        if not self.stuck:
            return ""
        sizes = QuorumSizes(
            self.metadata.ensemble_size, self.metadata.write_quorum, self.metadata.ack_quorum
        )
        silent = ", ".join(f"{bookie} {why}" for bookie, why in self.silent)
        bears = (
            f"recovery bears {sizes.ack_quorum - 1} such {_bookies(sizes.ack_quorum - 1)} in a write set "
            f"(AQ - 1), here there are {len(self.silent)}"
        )
        if self.prospect is RecoveryOutlook.NO_FENCE:
            return f"it cannot be fenced: of its last ensemble {silent}; {bears}"
        if self.prospect is RecoveryOutlook.NO_LENGTH:
            return f"entry {self.entry} is acknowledged and no bookie gives it: {silent}"
        needed, of = sizes.negative_threshold, sizes.write_quorum
        return (
            f"entry {self.entry} may have been acknowledged: {silent}; the ledger ends where {needed} of {of} "
            f"bookies of a write set say that they do not have an entry: {bears}"
        )

    @property
    def what_to_do(self) -> str:
        """Advice for operators; empty if nothing is stuck."""
        if not self.stuck:
            return ""
        number = self.metadata.ledger_id
        unreachable = [bookie for bookie, _why in self.silent if bookie not in self.limbo]
        end = cluster_command("ledger", "end", number, "--accept-loss", "--dry-run")
        if unreachable:
            return (
                f"bring back {', '.join(unreachable)}: recovery is tried again by itself; if that cannot be, "
                f"`{end}` shows what would be lost by ending the ledger at the last entry found"
            )
        return (
            f"bookies in limbo cannot remember, so waiting does not help: `{end}` shows what would be lost by ending "
            f"the ledger at the last entry found, the same without --dry-run does it; "
            f"`{cluster_command('ledger', 'end', '--stuck', '--dry-run')}` shows all ledgers like it"
        )


def diagnose(metadata: LedgerMetadata, reports: Reports) -> Diagnosis:
    """Follow the steps of a recovery (recovery.py), without sending a request."""
    lac = highest_lac(metadata, reports)
    nothing = range(lac + 1, lac + 1)
    if metadata.state is LedgerState.CLOSED:
        end = metadata.last_entry
        return Diagnosis(metadata, RecoveryOutlook.NOTHING, lac, nothing, end=end, end_at_least=end)
    sizes = QuorumSizes(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    ensemble = metadata.last_fragment.ensemble
    heard = {
        position
        for position, bookie in enumerate(ensemble)
        if reports[bookie].status.evidence is not Evidence.UNKNOWN
    }
    if not sizes.covered(heard):
        mute = [bookie for at, bookie in enumerate(ensemble) if at not in heard]
        why = {bookie: reports[bookie].silence for bookie in mute}
        return _stopped(
            metadata, RecoveryOutlook.NO_FENCE, reports, lac, nothing, None, ensemble, why
        )
    entry = EntryId(lac + 1)
    may_end: EntryId | None = None
    ends_at_lac = lac == NO_ENTRY or Evidence.POSITIVE in evidence_of(metadata, reports, lac)
    while True:
        evidence = evidence_of(metadata, reports, entry)
        ends = evidence.count(Evidence.NEGATIVE) >= sizes.negative_threshold
        if may_end is None and ends and (ends_at_lac or entry > lac + 1):
            may_end = EntryId(entry - 1)
        outcome = read_outcome(evidence, sizes.write_quorum, sizes.negative_threshold)
        if outcome is not ReadOutcome.POSITIVE:
            break
        entry = EntryId(entry + 1)
    found = range(lac + 1, entry)
    queried = write_set_of(metadata, entry)
    if outcome is ReadOutcome.NEGATIVE and entry == lac + 1 and not ends_at_lac:
        queried = write_set_of(metadata, lac)
        why = {bookie: reports[bookie].describe_entry(lac) for bookie in queried}
        return _stopped(metadata, RecoveryOutlook.NO_LENGTH, reports, lac, found, lac, queried, why)
    if may_end is None:
        why = _unknown(reports, queried, entry)
        return _stopped(metadata, RecoveryOutlook.NO_END, reports, lac, found, entry, queried, why)
    end = EntryId(entry - 1) if outcome is ReadOutcome.NEGATIVE else may_end
    written_back = range(lac + 1, end + 1)
    return Diagnosis(
        metadata, RecoveryOutlook.CLOSES, lac, written_back, end=end, end_at_least=may_end
    )


def _unknown(reports: Reports, bookies: Collection[BookieId], entry: int) -> dict[BookieId, str]:
    return {
        bookie: reports[bookie].describe_entry(entry)
        for bookie in bookies
        if reports[bookie].evidence(entry) is Evidence.UNKNOWN
    }


def _stopped(
    metadata: LedgerMetadata,
    prospect: RecoveryOutlook,
    reports: Reports,
    lac: EntryId,
    found: range,
    entry: EntryId | None,
    queried: tuple[BookieId, ...],
    why: dict[BookieId, str],
) -> Diagnosis:
    limbo = tuple(bookie for bookie in why if reports[bookie].limbo)
    sizes = QuorumSizes(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    positions = {at for at, bookie in enumerate(queried) if bookie in limbo}
    match prospect:
        case RecoveryOutlook.NO_FENCE:
            forgotten = sizes.contain_ack_quorum(positions)
        case RecoveryOutlook.NO_END:
            forgotten = len(positions) >= sizes.ack_quorum
        case _:
            forgotten = bool(limbo) and all(reports[bookie].alive for bookie in why)
    return Diagnosis(
        metadata,
        prospect,
        lac,
        found,
        None,
        None,
        entry,
        tuple(why.items()),
        limbo,
        queried,
        forgotten,
    )


def _bookies(count: int) -> str:
    return "bookie" if count == 1 else "bookies"
