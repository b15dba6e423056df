"""Rate limits of long work: pure arithmetic, with the clock passed in."""

from __future__ import annotations

import pytest

from bkbox.repair.rate_limits import RateLimits

MIB = 1 << 20


def test_each_kind_of_work_waits_for_its_own_budget() -> None:
    pacer = RateLimits(disk=100, network=0, metadata_calls=10)
    pacer.spend(1000, 1000, 0, 0.0)
    assert pacer.wait_s(1, 0, 0, 0.0) == pytest.approx(10.0)
    assert pacer.wait_s(0, 1, 0, 0.0) == 0.0
    assert pacer.wait_s(0, 0, 1, 0.0) == 0.0
    pacer.spend(0, 0, 20, 0.0)
    assert pacer.wait_s(0, 1, 1, 0.0) == pytest.approx(2.0)


def test_the_limit_of_all_is_changed_and_put_back() -> None:
    pacer = RateLimits(disk=0, network=100, metadata_calls=0)
    pacer.limit(50, 0.0)
    pacer.spend(100, 100, 0, 0.0)
    assert pacer.wait_s(1, 0, 0, 0.0) == pacer.wait_s(0, 1, 0, 0.0) == pytest.approx(2.0)
    pacer.limit(None, 0.0)
    assert pacer.wait_s(1, 0, 0, 0.0) == 0.0
    assert pacer.wait_s(0, 1, 0, 0.0) == pytest.approx(1.0)


def speed(pacer: RateLimits, now: float) -> float:
    """Bytes a second of the disk that pass over ten seconds."""
    pacer.spend(0, 0, 0, now)
    end, sent = now + 10.0, 0
    now += pacer.wait_s(1, 0, 0, now)
    while now < end:
        pacer.spend(MIB // 64, 0, 0, now)
        sent += MIB // 64
        now += pacer.wait_s(1, 0, 0, now)
    return sent / 10.0


def test_a_share_of_a_budget_without_a_bound_is_one_of_the_most_that_was_spent() -> None:
    pacer = RateLimits(disk=0, network=0, metadata_calls=0)
    pacer.spend(8 * MIB, 0, 0, 0.0)
    assert not pacer.second_passed(1.0)
    pacer.give(0.25, 1.0)
    assert speed(pacer, 100.0) == pytest.approx(2 * MIB, rel=0.2)
    pacer.give(1.0, 200.0)
    assert pacer.wait_s(1, 0, 0, 200.0) == 0.0


def test_a_share_never_lets_more_pass_than_the_limit_and_never_nothing() -> None:
    small = RateLimits(disk=1000, network=0, metadata_calls=0)
    small.give(0.05, 0.0)
    small.spend(1000, 0, 0, 0.0)
    assert small.wait_s(1, 0, 0, 0.0) == pytest.approx(1.0)
    idle = RateLimits(disk=0, network=0, metadata_calls=0)
    idle.give(0.05, 0.0)
    idle.spend(65_536, 0, 0, 0.0)
    assert idle.wait_s(1, 0, 0, 0.0) == pytest.approx(1.0)


def test_it_is_idle_only_while_nothing_is_spent() -> None:
    pacer = RateLimits(disk=0, network=0, metadata_calls=0)
    assert pacer.second_passed(1.0)
    pacer.spend(1, 0, 0, 0.0)
    assert not pacer.second_passed(1.0)
    pacer.spend(0, 1, 0, 1.0)
    assert not pacer.second_passed(1.0)
    assert pacer.second_passed(1.0)
