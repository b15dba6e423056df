"""What a bookie's status says of missing copies, in the views that operators and gates read."""

from __future__ import annotations

from dataclasses import replace

from bkbox.api.admin.status import Copies
from bkbox.checks import registry
from bkbox.checks.bookie import of_status
from bkbox.checks.health import not_whole
from tests.tui.screens import healthy

WHOLE = replace(healthy(), copies=Copies(short=0, checked_ms=1_700_000_000_000, job=3))


def test_a_bookie_without_a_missing_copy_is_whole_and_says_when_it_looked() -> None:
    assert not_whole(WHOLE) == []
    (found,) = (each for each in of_status(WHOLE) if each.check == registry.COPIES.id)
    assert (found.verdict, found.why.partition(": ")[2][:6]) == ("ok", "2023-1")


def test_missing_copies_and_an_unfinished_comparison_hold_the_gate() -> None:
    (why,) = not_whole(replace(WHOLE, copies=replace(WHOLE.copies, short=961)))
    assert why.startswith("961 copies are short: ")
    (why,) = not_whole(replace(WHOLE, copies=replace(WHOLE.copies, checking=True)))
    assert why.startswith("the bookie was away")
    unknown = replace(WHOLE, copies=Copies())
    assert not_whole(unknown) == [], "a bookie that was never away lacks nothing"
    assert "last complete check: never" in "".join(each.why for each in of_status(unknown))


def test_the_warning_names_the_job_that_mends_them() -> None:
    short = replace(WHOLE, copies=replace(WHOLE.copies, short=1))
    (found,) = (each for each in of_status(short) if each.check == registry.COPIES.id)
    assert found.command == "bkbox job show 3"
    assert registry.STATUS in found.views
