"""The schedule follows from the seed, and the bounds keep faults apart that might lose something together."""

from __future__ import annotations

from collections import Counter

import pytest

from proof.chaos.fault_budget import Bounds
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
    bounds = Bounds()
    lost, doubt = BY_NAME["lost-disk"], BY_NAME["host-doubt"]
    assert bounds.objection(lost, "bookie 1") == ""
    bounds.without_data.add("bookie 1")
    for fault in (lost, doubt, BY_NAME["full-disk"]):
        for bookie in ("bookie 1", "bookie 2"):
            assert "bookie 1 may be without data" in bounds.objection(fault, bookie)
    bounds.without_data.discard("bookie 1")
    assert bounds.objection(doubt, "bookie 2") == ""


@pytest.mark.parametrize("name", ["kill-all", "kill-worker", "pause-bookie", "cut-network"])
def test_what_loses_nothing_may_come_meanwhile(name: str) -> None:
    bounds = Bounds()
    bounds.without_data.add("bookie 1")
    with bounds.under_way("bookie 2"):
        assert bounds.objection(BY_NAME[name], "bookie 1") == ""
        assert bounds.objection(BY_NAME[name], "bookie 2") == ""


def test_one_fault_at_a_time_starts_a_bookie() -> None:
    bounds = Bounds()
    with bounds.under_way("bookie 1", restarts=True):
        assert bounds.is_restarting("bookie 1")
        assert not bounds.is_sure("bookie 1")
        assert "started by another" in bounds.objection(BY_NAME["kill-worker"], "bookie 1")
        assert bounds.objection(BY_NAME["kill-bookie"], "bookie 2") == ""
    assert not bounds.is_restarting("bookie 1")
    assert bounds.objection(BY_NAME["kill-worker"], "bookie 1") == ""


def test_a_bookie_that_is_paused_says_nothing_that_counts() -> None:
    bounds = Bounds()
    with bounds.under_way("bookie 1", pauses=True), bounds.under_way("bookie 2"):
        assert [bounds.is_sure(f"bookie {number}") for number in (1, 2, 3)] == [False, True, True]
    assert bounds.is_sure("bookie 1")


def test_one_fault_at_a_time_has_the_metadata_store() -> None:
    bounds = Bounds()
    with bounds.under_way(""):
        assert bounds.objection(BY_NAME["metadata-away"], "") != ""
        assert bounds.objection(BY_NAME["kill-bookie"], "bookie 1") == ""
    assert bounds.objection(BY_NAME["metadata-away"], "") == ""
