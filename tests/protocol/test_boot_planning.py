"""Classes of disks after a start, and what phase one marks for which ledger."""

from __future__ import annotations

import hashlib

import pytest

from bkbox.base.ids import BookieId
from bkbox.protocol.boot import (
    DiskClass,
    DiskEvidence,
    Identity,
    MarkerEvidence,
    RunEvidence,
    classify,
    mark_for,
)
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.protocol.notation import ledger

NOW = "boot-2"
SYNCED_NOW = RunEvidence(NOW, acked_unsynced=False)
SYNCED_BEFORE = RunEvidence("boot-1", acked_unsynced=False)
UNSYNCED_NOW = RunEvidence(NOW, acked_unsynced=True)
UNSYNCED_BEFORE = RunEvidence("boot-1", acked_unsynced=True)


def evidence(
    *runs: RunEvidence,
    failures: tuple[str, ...] = (),
    strict: bool = False,
    tail_trusted: bool = True,
    replaced: bool = False,
) -> DiskEvidence:
    marker = MarkerEvidence(runs, failures, replaced)
    return DiskEvidence(marker, NOW, strict, tail_trusted)


@pytest.mark.parametrize(
    ("found", "disk_class", "may_have_lost"),
    [
        (DiskEvidence(None, NOW, False, True), DiskClass.CLEAN, False),
        (DiskEvidence(None, NOW, True, True), DiskClass.CLEAN, False),
        (DiskEvidence(None, NOW, False, False, ("bad record",)), DiskClass.HOST_CRASH, True),
        (evidence(UNSYNCED_NOW), DiskClass.PROCESS_CRASH, False),
        (evidence(UNSYNCED_NOW, SYNCED_NOW), DiskClass.PROCESS_CRASH, False),
        (evidence(SYNCED_NOW, tail_trusted=False), DiskClass.HOST_CRASH, True),
        (evidence(SYNCED_NOW, failures=("failed fdatasync",)), DiskClass.HOST_CRASH, True),
        (evidence(failures=("marker cannot be read",)), DiskClass.HOST_CRASH, True),
        (evidence(), DiskClass.HOST_CRASH, True),
        (evidence(SYNCED_NOW, strict=True), DiskClass.HOST_CRASH, False),
        (evidence(UNSYNCED_NOW, strict=True), DiskClass.HOST_CRASH, True),
        (evidence(SYNCED_BEFORE), DiskClass.HOST_CRASH, False),
        (evidence(SYNCED_BEFORE, tail_trusted=False), DiskClass.HOST_CRASH, True),
        (evidence(UNSYNCED_BEFORE), DiskClass.HOST_CRASH, True),
        (evidence(UNSYNCED_BEFORE, SYNCED_NOW), DiskClass.HOST_CRASH, True),
        (evidence(SYNCED_BEFORE, UNSYNCED_NOW), DiskClass.HOST_CRASH, True),
        (evidence(SYNCED_NOW, replaced=True), DiskClass.REPLACED, True),
        (
            DiskEvidence(None, NOW, False, True, identity=Identity.ABSENT),
            DiskClass.LOST,
            True,
        ),
        (
            DiskEvidence(None, NOW, False, True, identity=Identity.FOREIGN),
            DiskClass.FOREIGN,
            True,
        ),
    ],
)
def test_classes(found: DiskEvidence, disk_class: DiskClass, may_have_lost: bool) -> None:
    verdict = classify(found)
    assert (verdict.disk_class, verdict.may_have_lost) == (disk_class, may_have_lost)
    assert verdict.reason


def test_the_reason_carries_what_was_found() -> None:
    damaged = DiskEvidence(None, NOW, False, False, ("segment 3, offset 512: bad checksum",))
    assert "segment 3, offset 512" in classify(damaged).reason


@pytest.mark.parametrize("acked", [False, True])
def test_the_reason_says_whether_the_host_was_restarted(acked: bool) -> None:
    here, before = RunEvidence(NOW, acked), RunEvidence("boot-1", acked)
    assert "strict" in classify(evidence(here, strict=True)).reason
    assert "restarted" in classify(evidence(before, strict=True)).reason


def test_a_marker_says_by_itself_that_nothing_was_replaced() -> None:
    found = DiskEvidence(MarkerEvidence((SYNCED_NOW,)), NOW, False, True)
    assert classify(found).disk_class is DiskClass.PROCESS_CRASH
    assert "failed fdatasync" in classify(evidence(failures=("failed fdatasync",))).reason


OPEN, IN_RECOVERY, CLOSED = LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED


def in_state(state: LedgerState, fragments: str) -> LedgerMetadata:
    return ledger(2, 2, 2, fragments, state)


@pytest.mark.parametrize(
    ("state", "fragments", "fence", "limbo"),
    [
        (OPEN, "0:b1,b2", True, True),
        (IN_RECOVERY, "0:b1,b2", True, True),
        (CLOSED, "0:b1,b2", True, True),
        (OPEN, "0:b1,b2 5:b3,b2", True, True),
        (CLOSED, "0:b1,b2 5:b3,b2", True, True),
        (IN_RECOVERY, "0:b3,b2", True, True),
        (CLOSED, "0:b3,b2", True, False),
    ],
)
def test_marks_of_phase_one(state: LedgerState, fragments: str, fence: bool, limbo: bool) -> None:
    metadata = in_state(state, fragments)
    mark = mark_for(metadata, BookieId("b1"), recorded_safely=False, underreplicated=False)
    assert mark is not None
    assert (mark.ledger_id, mark.fence, mark.limbo) == (metadata.ledger_id, fence, limbo)
    assert mark.master_key == hashlib.sha1(b"ledger", usedforsecurity=False).digest()
    assert mark_for(metadata, BookieId("b1"), recorded_safely=True, underreplicated=True) is None


def test_an_open_ledger_of_others_is_left_alone() -> None:
    assert (
        mark_for(
            in_state(OPEN, "0:b3,b2"), BookieId("b1"), recorded_safely=False, underreplicated=False
        )
        is None
    )


@pytest.mark.parametrize(("state", "fence"), [(OPEN, False), (IN_RECOVERY, True), (CLOSED, True)])
def test_a_copy_that_no_metadata_names_is_in_limbo(state: LedgerState, fence: bool) -> None:
    """The writer of an open ledger may go on."""
    metadata = in_state(state, "0:b3,b2")
    mark = mark_for(
        metadata, BookieId("b1"), recorded_safely=False, underreplicated=False, recorded=True
    )
    assert mark is not None
    assert (mark.fence, mark.limbo) == (fence, True)


@pytest.mark.parametrize("state", [OPEN, IN_RECOVERY, CLOSED])
def test_what_a_replication_worker_may_have_copied_here_is_in_limbo(state: LedgerState) -> None:
    """Its metadata will name this bookie only after the copying."""
    metadata = in_state(state, "0:b3,b2")
    mark = mark_for(metadata, BookieId("b1"), recorded_safely=False, underreplicated=True)
    assert mark is not None
    assert mark.fence
    assert mark.limbo


def test_a_ledger_without_password_is_marked_without_key() -> None:
    metadata = LedgerMetadata(
        ledger_id=in_state(OPEN, "0:b1,b2").ledger_id,
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        state=CLOSED,
        fragments=in_state(OPEN, "0:b1,b2").fragments,
        password=None,
    )
    mark = mark_for(metadata, BookieId("b1"), recorded_safely=False, underreplicated=False)
    assert mark is not None
    assert mark.master_key is None
