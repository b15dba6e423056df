"""Each check lets pass what is right and says what is wrong."""

from __future__ import annotations

import pytest

from proof.checks.acknowledged import Acknowledged
from proof.checks.all import all_checks
from proof.checks.check import CLOSED, IN_RECOVERY, OPEN, Check, Metadata, Violation
from proof.checks.closed import Closed
from proof.checks.contents import Contents
from proof.checks.fences import Fences
from proof.checks.limbo import Limbo
from proof.checks.negatives import Negatives
from proof.checks.observer import Observer
from proof.checks.readable import JUDGE, Readable
from proof.checks.removed import Removed
from proof.checks.replication import Replication
from proof.checks.sequence import Sequence

SIZES = (3, 2, 2)
FRAGMENTS = ((0, ("a", "b", "c")),)


def metadata(
    check: Check,
    state: int,
    version: int = 0,
    last: int = -1,
    fragments: tuple[tuple[int, tuple[str, ...]], ...] = FRAGMENTS,
) -> str | None:
    return check.stored_metadata(Metadata(1, state, version, last, SIZES, fragments))


def test_entries_go_round() -> None:
    later = Metadata(1, OPEN, 0, -1, SIZES, (*FRAGMENTS, (5, ("a", "d", "c"))))
    assert later.replicas(4) == ("b", "c")
    assert later.replicas(6) == ("a", "d")


@pytest.mark.parametrize("promised_first", [True, False])
def test_a_promise_beyond_the_end(promised_first: bool) -> None:
    check = Acknowledged()
    if promised_first:
        assert check.confirmed(1, 3) is None
        assert metadata(check, CLOSED, last=2) is not None
    else:
        assert metadata(check, CLOSED, last=2) is None
        assert check.confirmed(1, 2) is None
        assert check.confirmed(1, 3) is not None


def test_one_life() -> None:
    check = Closed()
    assert metadata(check, OPEN) is None
    assert metadata(check, IN_RECOVERY, 1) is None
    assert metadata(check, OPEN, 2) is not None


def test_one_end() -> None:
    check = Closed()
    assert metadata(check, OPEN) is None
    assert metadata(check, CLOSED, 1, 7) is None
    assert check.ended("x", 1, 7) is None
    assert check.ended("y", 1, 8) is not None
    assert metadata(check, CLOSED, 2, 8) is not None


def test_versions_and_fragments() -> None:
    assert metadata(Closed(), OPEN, 1) is not None
    check = Closed()
    assert metadata(check, OPEN) is None
    assert metadata(check, OPEN, 2) is not None
    descending = (*FRAGMENTS, (0, ("d", "b", "c")))
    assert metadata(Closed(), OPEN, fragments=descending) is not None
    assert metadata(Closed(), OPEN, fragments=((0, ("a", "a", "b")),)) is not None


def test_contents() -> None:
    check = Contents()
    check.appended(1, 0, b"x")
    check.appended(1, 1, b"y")
    assert check.found("r", 1, 0, b"x") is None
    assert check.found("r", 1, 1, b"x") is not None
    assert Contents().found("r", 1, 0, b"x") is not None


def test_what_was_read_stays() -> None:
    check = Contents()
    check.appended(1, 0, b"x")
    assert check.found("r", 1, 0, b"x") is None
    assert metadata(check, CLOSED, last=-1) is not None


def test_fences() -> None:
    check = Fences()
    assert check.stored("a", 1, 0, True, False) is None
    assert check.fenced("a", 1) is None
    assert check.stored("a", 1, 1, False, False) is None
    assert check.stored("b", 1, 1, True, False) is None
    assert check.stored("a", 1, 1, True, False) is not None
    check.deleted(1)
    assert check.stored("a", 1, 1, True, False) is None


def test_fences_that_a_start_has_to_have() -> None:
    check = Fences()
    check.fenced("a", 1)
    assert check.vouched("b", lambda ledger: None, lambda ledger: False) is None
    assert check.vouched("a", lambda ledger: {0}, lambda ledger: ledger == 1) is None
    assert check.vouched("a", lambda ledger: {0}, lambda ledger: False) is not None
    check.deleted(1)
    assert check.vouched("a", lambda ledger: {0}, lambda ledger: False) is None


def test_replication() -> None:
    check = Replication()
    check.stored("b", 1, 0, True, False)
    check.stored("c", 1, 1, True, False)
    check.stored("c", 1, 0, True, False)
    assert metadata(check, OPEN) is None
    assert metadata(check, CLOSED, 1, -1) is None
    assert metadata(check, CLOSED, 1, 0) is not None, (
        "a and b hold entry 0, and c said that it has it"
    )
    check.stored("a", 1, 0, False, False)
    assert metadata(check, CLOSED, 1, 0) is None
    assert metadata(check, CLOSED, 1, 1) is not None
    check.stored("b", 1, 1, True, False)
    assert metadata(check, CLOSED, 1, 1) is None
    replaced = ((0, ("a", "d", "c")),)
    assert metadata(check, CLOSED, 1, 1, replaced) is not None


def test_negatives() -> None:
    check = Negatives()
    assert metadata(check, OPEN) is None
    assert check.denied("a", 1, 0) is None
    check.stored("a", 1, 0, True, False)
    assert check.denied("a", 1, 1) is None
    assert check.denied("a", 1, 0) is not None
    assert check.denied("a", 1, -1) is not None
    assert check.vouched("a", lambda ledger: {0}, lambda ledger: False) is None
    assert check.vouched("a", lambda ledger: (), lambda ledger: False) is not None
    assert check.vouched("a", lambda ledger: None, lambda ledger: False) is None, "in limbo"


def test_what_may_be_denied() -> None:
    check = Negatives()
    check.stored("a", 1, 0, True, True)
    metadata(check, OPEN)
    assert check.denied("a", 1, 0) is None, "deferred"
    check.stored("a", 1, 2, True, False)
    assert check.denied("a", 1, 2) is not None
    metadata(check, OPEN, 1, fragments=((0, ("d", "b", "c")),))
    assert check.denied("a", 1, 2) is None, "another bookie's"
    metadata(check, CLOSED, 2, 1)
    assert check.denied("a", 1, 2) is None, "beyond the end"
    check.deleted(1)
    assert check.denied("a", 1, -1) is None, "deleted"


def test_what_counts_for_nobody_may_be_denied() -> None:
    """A bookie that was replaced may lose what it had, come back empty and be taken into the ensemble again."""
    check, replication = Negatives(), Replication()
    elsewhere = ((0, ("d", "b", "c")),)
    for each in (check, replication):
        metadata(each, OPEN)
        each.stored("a", 1, 0, True, False)
        each.stored("b", 1, 0, True, False)
        metadata(each, OPEN, 1, fragments=elsewhere)
        metadata(each, OPEN, 2)
    assert check.denied("a", 1, 0) is None, "replaced, and not told since"
    assert check.vouched("a", lambda ledger: (), lambda ledger: False) is None
    assert metadata(replication, CLOSED, 3, 0) is not None, "a acknowledged it to nobody who counts"
    for each in (check, replication):
        each.stored("a", 1, 0, True, False)
    assert check.denied("a", 1, 0) is not None, "it was sent once more"
    assert metadata(replication, CLOSED, 3, 0) is None


def test_what_comes_late_from_a_bookie_that_was_replaced_counts_for_nobody() -> None:
    check = Negatives()
    metadata(check, OPEN, fragments=((0, ("d", "b", "c")),))
    check.stored("a", 1, 0, True, False)
    metadata(check, OPEN, 1)
    assert check.denied("a", 1, 0) is None


def test_a_recovery_adds_first_and_names_the_bookie_then() -> None:
    check = Negatives()
    metadata(check, IN_RECOVERY, fragments=((0, ("d", "b", "c")),))
    check.stored("a", 1, 0, False, False)
    metadata(check, CLOSED, 1, 0)
    assert check.denied("a", 1, 0) is not None


def test_who_re_replicates_adds_first_and_names_the_bookie_then_in_an_open_ledger_too() -> None:
    check = Negatives()
    first, last = (0, ("d", "b", "c")), (5, ("d", "b", "c"))
    metadata(check, OPEN, fragments=(first, last))
    check.stored("a", 1, 0, False, False)
    check.stored("a", 1, 6, False, False)
    metadata(check, OPEN, 1, fragments=((0, ("a", "b", "c")), last))
    assert check.denied("a", 1, 0) is not None
    metadata(check, OPEN, 2, fragments=((0, ("a", "b", "c")), (5, ("a", "b", "c"))))
    assert check.denied("a", 1, 6) is None, "its writer sends it anew"


def test_what_was_forced_counts() -> None:
    check = Negatives()
    metadata(check, OPEN)
    check.forced("a", 1, 0)
    assert check.denied("a", 1, 0) is not None
    check.forced("d", 1, 0)
    metadata(check, OPEN, 1, fragments=((0, ("d", "b", "c")),))
    assert check.denied("d", 1, 0) is None, "it was not named when it said so"


def test_removed() -> None:
    check = Removed()
    assert check.emptied("a", 1) is None, "deleted, or never there"
    metadata(check, OPEN)
    assert check.emptied("d", 1) is not None, "nobody knows its end"
    metadata(check, CLOSED, 1, 5)
    assert check.emptied("d", 1) is None
    assert check.emptied("a", 1) is not None
    metadata(check, CLOSED, 2, -1)
    assert check.emptied("a", 1) is None, "it is to hold nothing"
    metadata(check, CLOSED, 3, 5)
    check.deleted(1)
    assert check.emptied("a", 1) is None


def test_limbo() -> None:
    check = Limbo()
    assert check.left_limbo("a", 1, lambda entry: False) is None, "deleted"
    metadata(check, OPEN)
    assert check.left_limbo("a", 1, lambda entry: True) is not None
    assert check.left_limbo("d", 1, lambda entry: True) is None
    metadata(check, IN_RECOVERY, 1)
    assert check.left_limbo("d", 1, lambda entry: True) is not None
    metadata(check, CLOSED, 2, 5)
    assert check.left_limbo("a", 1, lambda entry: entry != 1) is None, "b and c hold it"
    assert check.left_limbo("a", 1, lambda entry: entry != 2) is not None


def test_what_came_after_limbo_began_is_not_missing() -> None:
    check = Limbo()
    elsewhere = ((0, ("a", "b", "c")), (3, ("d", "b", "c")))
    metadata(check, OPEN, fragments=elsewhere)
    check.entered_limbo("a", 1)
    metadata(check, IN_RECOVERY, 1, fragments=elsewhere)
    assert check.left_limbo("a", 1, lambda entry: True) is None, "as it was when limbo began"
    assert check.left_limbo("a", 1, lambda entry: True) is not None, "limbo did not begin again"
    check.entered_limbo("a", 1)
    assert check.left_limbo("a", 1, lambda entry: True) is not None, "in recovery from the start"
    check.entered_limbo("a", 1)
    metadata(check, CLOSED, 2, 4, fragments=elsewhere)
    assert check.left_limbo("a", 1, lambda entry: entry != 0) is not None
    check.entered_limbo("a", 1)
    assert check.left_limbo("a", 1, lambda entry: entry < 3) is None


def test_readable() -> None:
    check = Readable()
    check.confirmed(1, 1)
    assert check.absent("r", 1, 2) is None
    assert check.absent("r", 1, 1) is not None
    check.found(JUDGE, 1, 0, b"")
    check.found("r", 1, 1, b"")
    assert check.finished() is not None
    check.found(JUDGE, 1, 1, b"")
    assert check.finished() is None
    check.confirmed(2, 0)
    assert check.finished() is not None
    check.deleted(2)
    assert check.finished() is None
    check.confirmed(2, 1)
    assert check.finished() is None, (
        "a writer may hear of it after the deletion (seed 812795615111)"
    )


def test_sequence() -> None:
    check = Sequence()
    assert check.appended(1, 0, b"") is None
    assert check.appended(1, 1, b"") is None
    assert check.appended(1, 3, b"") is not None
    assert check.acknowledged(1, 0) is None
    assert check.acknowledged(1, 2) is not None
    assert check.heard_lac("r", 1, 1) is None
    assert check.heard_lac("r", 1, 0) is not None
    assert check.heard_lac("s", 1, 4) is not None


def test_the_first_violation_counts() -> None:
    seen: list[Violation] = []
    observer = Observer(all_checks(), seen.append)
    observer.fenced("a", 1)
    observer.stored("a", 1, 0, False, False)
    assert not seen
    observer.stored("a", 1, 1, True, False)
    observer.stored("a", 1, 2, True, False)
    assert [one.name for one in seen] == [Fences.name]
    assert observer.violation is seen[0]
    assert "entry 1" in str(observer.violation)
