"""The table of admission: complete, one-way, and never weaker than the standing before it."""

from __future__ import annotations

import itertools

import pytest

from bkbox.bookie.admission import ABSENT, ADMISSION, LedgerStatus, Request, admit
from bkbox.wire.codes import Code, Evidence

KEY, OTHER = b"k" * 20, b"o" * 20


def test_every_standing_answers_every_request() -> None:
    assert set(ADMISSION) == set(itertools.product(LedgerStatus, Request))


@pytest.mark.parametrize("request_", Request)
@pytest.mark.parametrize("standing", [LedgerStatus.FENCED, LedgerStatus.LIMBO])
def test_nothing_lifts_a_fence_or_limbo(standing: LedgerStatus, request_: Request) -> None:
    assert ADMISSION[standing, request_].after is standing


@pytest.mark.parametrize("standing", sorted(set(LedgerStatus) - {LedgerStatus.DELETED}, key=str))
def test_a_fence_always_fences(standing: LedgerStatus) -> None:
    verdict = ADMISSION[standing, Request.FENCE]
    assert verdict.code is Code.EOK
    assert verdict.after in (LedgerStatus.FENCED, LedgerStatus.LIMBO)


def test_a_deleted_ledger_takes_nothing_but_repair() -> None:
    refused = {
        Request.ADD: Code.EFENCED,  # a writer that goes on must end, not look for another bookie
        Request.WRITE_LAC: Code.ENOLEDGER,
        Request.FENCE: Code.ENOLEDGER,
    }
    found = {each: ADMISSION[LedgerStatus.DELETED, each] for each in Request}
    assert {each: it.code for each, it in found.items() if it.code is not Code.EOK} == refused
    assert {found[each].after for each in refused} == {LedgerStatus.DELETED}
    assert ADMISSION[LedgerStatus.DELETED, Request.RECOVERY_ADD].after is LedgerStatus.LIMBO


@pytest.mark.parametrize("standing", [LedgerStatus.FENCED, LedgerStatus.LIMBO])
def test_fenced_ledgers_take_recovery_adds_only(standing: LedgerStatus) -> None:
    assert ADMISSION[standing, Request.ADD].code is Code.EFENCED
    assert ADMISSION[standing, Request.RECOVERY_ADD].code is Code.EOK


def test_limbo_is_the_only_standing_in_which_absence_is_unknown() -> None:
    assert {standing: ABSENT[standing].evidence for standing in LedgerStatus} == {
        LedgerStatus.UNKNOWN: Evidence.NEGATIVE,
        LedgerStatus.OPEN: Evidence.NEGATIVE,
        LedgerStatus.FENCED: Evidence.NEGATIVE,
        LedgerStatus.LIMBO: Evidence.UNKNOWN,
        LedgerStatus.DELETED: Evidence.NEGATIVE,
    }


@pytest.mark.parametrize("request_", Request)
@pytest.mark.parametrize("standing", [LedgerStatus.OPEN, LedgerStatus.FENCED, LedgerStatus.LIMBO])
def test_a_wrong_key_is_refused_and_changes_nothing(
    standing: LedgerStatus, request_: Request
) -> None:
    verdict = admit(standing, request_, KEY, OTHER)
    assert verdict.code is Code.EUA
    assert verdict.after is standing


def test_a_ledger_without_a_known_key_takes_the_first_one() -> None:
    assert admit(LedgerStatus.LIMBO, Request.RECOVERY_ADD, None, KEY).code is Code.EOK
