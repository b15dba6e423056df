"""The conclusions of a bookie's start: which disks may have lost data, and which ledgers to mark for it.

A disk is classified by its dirty marker, the kernel's boot id, the identity of its mount and the result of replaying
its log:

=============  ==================================================================  ===============
class          evidence                                                            may have lost
=============  ==================================================================  ===============
CLEAN          no marker, log in order                                             no
PROCESS_CRASH  every incarnation in the marker was on this very boot and this      no
               very mount, no failure, log in order: what write(2) accepted is there
HOST_CRASH     an incarnation on another boot or mount (or ``strict``), a          where it acked
               failure, a log that is not in order, a marker that cannot be read   unsynced, or
                                                                                   worse than that
REPLACED       an empty disk, put in the place of a lost one by the operator       yes
LOST           no identity on it: missing, emptied, or never prepared              yes, no start
FOREIGN        identity of another bookie or cluster                               yes, no start
=============  ==================================================================  ===============

The marker names every incarnation since the disk last was known to be whole; the worst of them counts. A host crash
under ``sync`` or ``journal`` loses nothing acknowledged if the replay vouches for the log; one under ``write`` loses at
most entries of the ledgers that were marked active.

Phase one then marks ledgers, one by one (``mark_for``), before the bookie serves any request. Source: BP-46
("Limbo", "protection mechanism"); rows 1 to 7 of the differences from Java's bookie are avoided here.
"""

from __future__ import annotations

from enum import Enum

from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.values import frozen_struct
from bkbox.wire.digest import master_key
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState


class DiskClass(Enum):
    """The state of a disk since it was last used."""

    CLEAN = "clean"
    PROCESS_CRASH = "process crash"
    HOST_CRASH = "host crash"
    LOST = "lost"
    REPLACED = "replaced"
    FOREIGN = "foreign"


class Identity(Enum):
    """The owner of a disk, by the cookie and identity files on it."""

    OURS = "ours"
    ABSENT = "absent"
    FOREIGN = "foreign"


@frozen_struct
class RunEvidence:
    """One incarnation of the bookie in a dirty marker: the kernel's boot id, whether it acknowledged before it
    synced, the identity of the mount, and whether it marked the ledgers for which it did so.
    """

    boot_id: str
    acked_unsynced: bool
    mount: str = ""
    marks_active: bool = False


@frozen_struct
class MarkerEvidence:
    """The contents of a dirty marker. An unreadable marker has no incarnations and a failure that names it."""

    runs: tuple[RunEvidence, ...]
    failures: tuple[str, ...] = ()
    replaced: bool = False


@frozen_struct
class DiskEvidence:
    """The input of a boot verdict. ``marker`` None: there was none, and reading it was no error.

    ``tail_trusted``: the replay vouches that nothing acknowledged is missing or damaged; ``intact``: that nothing
    synced is. ``damaged``: the damage that it found, as text. ``strict``: treat every crash as a host crash.
    ``mount``: identity of the mount, never empty if it is known.
    """

    marker: MarkerEvidence | None
    boot_id: str
    strict: bool
    tail_trusted: bool
    damaged: tuple[str, ...] = ()
    identity: Identity = Identity.OURS
    mount: str = ""
    intact: bool = False


@frozen_struct
class Verdict:
    """The class of a disk, the reason, and whether acknowledged data may be gone; ``only_active``: of no ledgers but
    those that are marked active.
    """

    disk_class: DiskClass
    reason: str
    may_have_lost: bool
    only_active: bool = False


def classify(evidence: DiskEvidence) -> Verdict:
    """Classify one disk by the table above."""
    marker = evidence.marker
    if evidence.identity is Identity.FOREIGN:
        return Verdict(DiskClass.FOREIGN, "it belongs to another bookie or cluster", True)
    if evidence.identity is Identity.ABSENT:
        return Verdict(DiskClass.LOST, "nothing on it says that it is a disk of this bookie", True)
    if marker is not None and marker.replaced:
        return Verdict(DiskClass.REPLACED, "it stands in for a lost disk", True)
    if evidence.damaged:
        found = "; ".join(evidence.damaged)
        return Verdict(DiskClass.HOST_CRASH, f"the entry log is not in order: {found}", True)
    if marker is not None and marker.failures:
        failed = "; ".join(marker.failures)
        return Verdict(DiskClass.HOST_CRASH, f"it failed before: {failed}", True)
    if marker is not None and not marker.runs:
        return Verdict(DiskClass.HOST_CRASH, "the dirty marker names no run", True)
    runs = () if marker is None else marker.runs
    why = _why_lost(evidence, runs)
    unsynced = [run for run in runs if run.acked_unsynced]
    if why and unsynced:
        only_active = evidence.intact and all(run.marks_active for run in unsynced)
        which = "only ledgers written in the last seconds" if only_active else "any ledger on it"
        reason = f"{why}; entries were acknowledged before a sync: {which} may lack some"
        return Verdict(DiskClass.HOST_CRASH, reason, True, only_active)
    if not evidence.tail_trusted:
        return Verdict(DiskClass.HOST_CRASH, "the end of the entry log cannot be vouched for", True)
    if why:
        return Verdict(
            DiskClass.HOST_CRASH,
            f"{why}; all that was acknowledged had been synced and is there: nothing was lost",
            False,
        )
    if runs:
        return Verdict(
            DiskClass.PROCESS_CRASH,
            "the bookie did not stop cleanly, the host has been up and the file system mounted since: nothing was lost",
            False,
        )
    return Verdict(DiskClass.CLEAN, "it was stopped cleanly", False)


def _why_lost(evidence: DiskEvidence, runs: tuple[RunEvidence, ...]) -> str:
    """The reason that unsynced data may be lost; empty if that can be excluded."""
    if any(run.boot_id != evidence.boot_id for run in runs):
        return "the host was restarted"
    if any(run.mount != evidence.mount for run in runs):
        return "the file system was mounted anew, or its device came back"
    return "every crash counts (strict)" if runs and evidence.strict else ""


@frozen_struct
class Mark:
    """The durable record of phase one for one ledger. ``master_key`` None: the password is unknown."""

    ledger_id: LedgerId
    fence: bool
    limbo: bool
    master_key: bytes | None


def mark_for(
    metadata: LedgerMetadata,
    bookie: BookieId,
    *,
    recorded_safely: bool,
    underreplicated: bool,
    recorded: bool = False,
) -> Mark | None:
    """The mark for one ledger of the cluster, when some disk of this bookie may have lost data; None if it needs
    none.

    ``metadata`` was read after the crash. ``recorded_safely``: a disk that lost nothing of it records the ledger, so
    its entries and its fence are all there and nothing is marked. ``recorded``: a disk that may have lost data
    records it. ``underreplicated``: the ledger was marked for re-replication, as seen before ``metadata`` was read.

    A ledger that names this bookie in any fragment is fenced and put into limbo, closed or not. A read of a lost
    entry must not get 'no such entry'. A writer that was fenced here, and hung ever since, must not find the
    bookie open for it.

    A ledger that does *not* name it is fenced if it is CLOSED or IN_RECOVERY: a recovery may have fenced this bookie
    and then replaced it, and the old writer still uses the old ensemble. IN_RECOVERY it is put into limbo too,
    because a recovery keeps its ensemble changes in memory: it may have written entries back to this bookie and
    publishes that only when it closes. The same holds for a replication worker, which copies a fragment first and
    changes the metadata then: an under-replicated ledger is put into limbo too. Java's ``recoverBookieData`` copies
    without a mark, also earlier fragments of an open ledger: a ledger of which a copy is recorded here is put into
    limbo, until the metadata names this bookie or the copy is collected. A ledger that does not name it and is OPEN
    has not been fenced by any client (a recovery leaves OPEN before it fences, and OPEN never comes back), and its
    writer may yet bring it here: it is not fenced.
    """
    if recorded_safely:
        return None
    assigned = bookie in metadata.bookies() or underreplicated
    fence = assigned or metadata.state is not LedgerState.OPEN
    limbo = assigned or recorded or metadata.state is LedgerState.IN_RECOVERY
    if not (fence or limbo):
        return None
    key = master_key(metadata.password) if metadata.password is not None else None
    return Mark(metadata.ledger_id, fence, limbo, key)
