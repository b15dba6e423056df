"""The schedule follows from the seed, and the budget keep faults apart that might lose something together."""

from __future__ import annotations

from collections import Counter

import pytest

from proof.chaos.fault_budget import FaultBudget
from proof.chaos.schedule import BY_NAME, FAULTS, schedule


def test_the_same_seed_gives_the_same_schedule() -> None:
    one = schedule(7, 600, 2.0, 3, 2, FAULTS)
    assert one == schedule(7, 600, 2.0, 3, 2, FAULTS)
    assert one != schedule(8, 600, 2.0, 3, 2, FAULTS)


def test_a_schedule_has_all_kinds_at_about_the_pace_that_was_asked_for() -> None:
    planned = schedule(1, 3_600, 2.0, 3, 2, FAULTS)
    assert 1_600 < len(planned) < 2_000
    assert [each.at for each in planned] == sorted(each.at for each in planned)
    assert planned[-1].at < 3_600
    kinds = Counter(each.fault.name for each in planned)
    assert set(kinds) == set(BY_NAME)
    assert kinds["kill-worker"] > kinds["kill-all"]
    assert {each.bookie for each in planned} == {0, 1, 2}
    assert {each.disk for each in planned} == {0, 1}
    for each in planned:
        shortest, longest = each.fault.lasts_s
        assert shortest <= each.lasts_s <= longest


def test_only_what_was_asked_for() -> None:
    planned = schedule(1, 600, 2.0, 3, 2, (BY_NAME["kill-worker"],))
    assert {each.fault.name for each in planned} == {"kill-worker"}
    assert schedule(1, 600, 2.0, 3, 2, ()) == []


def test_one_bookie_at_a_time_may_be_without_data() -> None:
    budget = FaultBudget()
    lost, doubt = BY_NAME["lost-disk"], BY_NAME["host-doubt"]
    assert budget.objection(lost, "bookie 1") == ""
    budget.without_data.add("bookie 1")
    for fault in (lost, doubt, BY_NAME["full-disk"]):
        for bookie in ("bookie 1", "bookie 2"):
            assert "bookie 1 may be without data" in budget.objection(fault, bookie)
    budget.without_data.discard("bookie 1")
    assert budget.objection(doubt, "bookie 2") == ""


@pytest.mark.parametrize("name", ["kill-all", "kill-worker", "pause-bookie", "cut-network"])
def test_what_loses_nothing_may_come_meanwhile(name: str) -> None:
    budget = FaultBudget()
    budget.without_data.add("bookie 1")
    with budget.reserve("bookie 2"):
        assert budget.objection(BY_NAME[name], "bookie 1") == ""
        assert budget.objection(BY_NAME[name], "bookie 2") == ""


def test_one_fault_at_a_time_starts_a_bookie() -> None:
    budget = FaultBudget()
    with budget.reserve("bookie 1", restarts=True):
        assert budget.is_restarting("bookie 1")
        assert not budget.is_unaffected("bookie 1")
        assert "started by another" in budget.objection(BY_NAME["kill-worker"], "bookie 1")
        assert budget.objection(BY_NAME["kill-bookie"], "bookie 2") == ""
    assert not budget.is_restarting("bookie 1")
    assert budget.objection(BY_NAME["kill-worker"], "bookie 1") == ""


def test_a_bookie_that_is_paused_says_nothing_that_counts() -> None:
    budget = FaultBudget()
    with budget.reserve("bookie 1", pauses=True), budget.reserve("bookie 2"):
        assert [budget.is_unaffected(f"bookie {number}") for number in (1, 2, 3)] == [
            False,
            True,
            True,
        ]
    assert budget.is_unaffected("bookie 1")


def test_one_fault_at_a_time_has_the_metadata_store() -> None:
    budget = FaultBudget()
    with budget.reserve(""):
        assert budget.objection(BY_NAME["metadata-away"], "") != ""
        assert budget.objection(BY_NAME["kill-bookie"], "bookie 1") == ""
    assert budget.objection(BY_NAME["metadata-away"], "") == ""
