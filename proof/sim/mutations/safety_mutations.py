"""Safety measures that can be switched off, one at a time: the simulation must detect it (mutation_patches.py)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from bkbox.base.values import frozen_struct
from bkbox.base.values import replaced as with_changes
from bkbox.bookie import admission
from bkbox.bookie.admission import LedgerStatus
from bkbox.protocol.boot import DiskClass
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerState
from proof.sim.mutations import mutation_patches as patches
from proof.sim.mutations import repair_patches, witness_patches
from proof.sim.patching import Change, replaced


@frozen_struct
class Break:
    """One safety measure: its name, what is switched off, and the patch."""

    name: str
    words: str
    changes: Callable[[], tuple[Change, ...]]

    def applied(self) -> AbstractContextManager[None]:
        return replaced(*self.changes())


BREAKS = tuple(
    Break(*each)
    for each in (
        (
            "no-fence-on-boot",
            "phase one puts ledgers into limbo and does not fence them",
            lambda: patches.marks(lambda mark: with_changes(mark, fence=False)),
        ),
        (
            "no-limbo",
            "phase one fences ledgers and does not put them into limbo",
            lambda: patches.marks(lambda mark: with_changes(mark, limbo=False)),
        ),
        ("no-phase-one", "a bookie that may have lost something just starts", patches.no_phase_one),
        (
            "closed-not-marked",
            "phase one marks no closed ledgers",
            lambda: patches.no_marks_for((LedgerState.CLOSED,), named=True),
        ),
        (
            "recovering-not-marked",
            "phase one marks no ledgers in recovery that name other bookies",
            lambda: patches.no_marks_for((LedgerState.IN_RECOVERY,), named=False),
        ),
        (
            "closed-elsewhere-not-fenced",
            "phase one marks no closed ledgers that name other bookies",
            lambda: patches.no_marks_for((LedgerState.CLOSED,), named=False),
        ),
        (
            "negatives-in-limbo",
            "a bookie says 'no such entry' of ledgers in limbo",
            patches.explicit_negatives,
        ),
        (
            "recovery-reads-do-not-fence",
            "only the first request of a recovery fences",
            patches.polls_do_not_fence,
        ),
        (
            "no-lac-floor",
            "a recovery reads from what bookies say, not from its last fragment on",
            patches.no_lac_floor,
        ),
        ("qc-too-low", "one negative too few ends a ledger", patches.negatives_too_few),
        ("aq-too-low", "an entry is acknowledged with one copy too few", patches.acks_too_few),
        ("unknown-is-no", "a client takes a failure for 'no such entry'", patches.unknown_is_no),
        (
            "no-write-back",
            "a recovery closes at what it read, without writing it back",
            patches.no_write_back,
        ),
        (
            "replaced-still-counts",
            "what a bookie had stored counts after it was replaced",
            patches.forgets_nothing,
        ),
        (
            "acks-during-ensemble-change",
            "entries are acknowledged while a new ensemble is being written",
            patches.acks_during_change,
        ),
        ("no-cas", "metadata is written whatever its version", patches.without_cas),
        (
            "adds-after-fence",
            "a bookie takes ordinary adds of fenced ledgers",
            lambda: patches.admitted(LedgerStatus.FENCED, admission.Request.ADD, Code.EOK),
        ),
        (
            "adds-in-limbo",
            "a bookie takes ordinary adds of ledgers in limbo",
            lambda: patches.admitted(LedgerStatus.LIMBO, admission.Request.ADD, Code.EOK),
        ),
        (
            "ack-before-sync",
            "entries are answered before they are synced, where that is not what was ordered",
            lambda: patches.must_sync(lambda entries, states, force: (False, states, force)),
        ),
        (
            "fence-before-sync",
            "states of ledgers are answered before they are synced",
            lambda: patches.must_sync(lambda entries, states, force: (entries, False, force)),
        ),
        ("force-without-sync", "a force is answered without a sync", patches.force_without_sync),
        (
            "force-after-restart",
            "a force counts for adds of an earlier connection or worker",
            patches.any_connection,
        ),
        ("ack-before-write", "a write that failed is answered as done", patches.acks_before_write),
        (
            "fsync-error-ignored",
            "a failed sync is taken for a good one",
            patches.fsync_errors_ignored,
        ),
        (
            "marks-not-synced",
            "marks of phase one and the end of limbo are not synced",
            patches.states_not_synced,
        ),
        (
            "states-not-kept",
            "the index forgets states of ledgers that are replayed",
            patches.fence_can_be_lifted,
        ),
        (
            "checkpoint-before-sync",
            "the log is taken for durable without a sync",
            patches.checkpoint_before_sync,
        ),
        (
            "waiting-sync-skipped",
            "a sync that waits while another one runs ends with it",
            patches.waiting_sync_skipped,
        ),
        ("damage-ignored", "what a replay finds missing is not told", patches.damage_ignored),
        ("no-dirty-marker", "no marker is written when a disk is used", patches.no_marker),
        ("unclean-unnoticed", "the marker is not looked at", patches.unclean_unnoticed),
        (
            "marker-forgets-runs",
            "a start forgets what earlier runs left in the marker",
            patches.marker_forgotten,
        ),
        (
            "marker-settled-too-early",
            "markers are settled before phase one",
            patches.settled_before_marks,
        ),
        (
            "cookie-before-limbo",
            "a disk that replaces a lost one is taken for an empty one",
            patches.cookie_before_limbo,
        ),
        (
            "host-crash-is-harmless",
            "a lost host never counts as a loss",
            lambda: patches.classified(DiskClass.HOST_CRASH),
        ),
        (
            "limbo-cleared-too-early",
            "limbo ends although entries are missing",
            repair_patches.limbo_cleared_early,
        ),
        (
            "repair-without-recovery",
            "repair does not close a ledger before it compares",
            repair_patches.repair_without_recovery,
        ),
        (
            "repair-trusts-index",
            "repair does not read what the index has",
            repair_patches.repair_trusts_index,
        ),
        (
            "two-homes",
            "a ledger is created although a disk is not listed",
            patches.two_homes,
        ),
        ("digests-ignored", "clients do not verify digests", patches.digests_ignored),
        (
            "named-without-copies",
            "re-replication names bookies that were given no copies",
            repair_patches.named_without_copies,
        ),
        (
            "collects-what-is-named",
            "collection takes closed ledgers for nobody's",
            repair_patches.collects_named,
        ),
        (
            "boot-id-only",
            "a disk that was mounted anew counts as one that stayed",
            witness_patches.boot_id_only,
        ),
        (
            "failures-not-noted-elsewhere",
            "that a disk failed is noted on that disk alone",
            witness_patches.failures_not_noted,
        ),
        (
            "kernel-not-asked",
            "a start after a process crash does not ask whether all was written",
            witness_patches.kernel_not_asked,
        ),
        (
            "torn-taken-for-granted",
            "what is not proved to have been durable counts as torn, whatever is there",
            witness_patches.torn_for_granted,
        ),
        (
            "older-index-taken",
            "an index that is older than its disk is used",
            witness_patches.older_index_taken,
        ),
        (
            "no-generations",
            "a disk that is an older copy of itself is used",
            witness_patches.no_generations,
        ),
        (
            "no-tail-marks",
            "the tail mark of a log is not looked at",
            witness_patches.no_tail_marks,
        ),
        (
            "store-from-the-past-taken",
            "a metadata store that is behind the disks is used",
            witness_patches.store_from_the_past,
        ),
        (
            "unnamed-copies-not-in-limbo",
            "phase one fences copies that the metadata does not name, and no more",
            witness_patches.unnamed_not_in_limbo,
        ),
        (
            "active-not-marked",
            "ledgers with entries that were acknowledged and not synced are not marked",
            witness_patches.active_not_marked,
        ),
        (
            "journal-not-replayed",
            "the journal is not consulted at a start",
            witness_patches.journal_not_replayed,
        ),
        (
            "journal-removed-too-early",
            "journal segments are removed before the checkpoint that replaces them is durable",
            witness_patches.journal_removed_too_early,
        ),
        (
            "marker-left-at-stop",
            "an ordered stop leaves the dirty marker: a remount looks like a loss",
            witness_patches.marker_left,
        ),
    )
)

BY_NAME = {each.name: each for each in BREAKS}
