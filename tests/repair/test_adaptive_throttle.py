"""How much long work gets beside the foreground: a controller fed with measurements, no clock."""

from __future__ import annotations

import pytest

from bkbox.repair.adaptive_throttle import SHARE_LEAST, AdaptiveThrottle, LatencyBaseline


class Host:
    """A disk whose adds take ``base_us`` alone, and longer the more the jobs take, up to ``worst`` times."""

    def __init__(self, growth_max: float, base_us: int, worst: float) -> None:
        self.governor = AdaptiveThrottle(growth_max)
        self.usual = LatencyBaseline()
        self.base_us = base_us
        self.worst = worst
        self.growths: list[float] = []

    def seconds(self, count: int) -> list[float]:
        shares = []
        for _ in range(count):
            share = self.governor.share
            p99_us = round(self.base_us * (1 + (self.worst - 1) * share))
            growth = self.usual.growth(1000, p99_us, idle=share == SHARE_LEAST)
            self.growths.append(growth)
            shares.append(self.governor.second_passed(growth))
        return shares

    def alone(self) -> None:
        for _ in range(3):
            self.usual.growth(1000, self.base_us, idle=True)


def test_jobs_that_disturb_nobody_get_all() -> None:
    host = Host(1.5, 5_000, worst=1.2)
    host.alone()
    assert host.seconds(100)[-1] == 1.0


def test_jobs_give_way_within_seconds_and_stay_where_the_foreground_can_bear_them() -> None:
    host = Host(1.5, 5_000, worst=9.0)
    host.alone()
    assert host.seconds(5)[-1] <= 0.1
    later = host.seconds(600)
    assert max(later[60:]) <= 0.15, "beyond 0.06 the adds take 1.5 times as long"
    assert sum(later) / 600 >= SHARE_LEAST
    assert max(host.growths[65:]) <= 2.3, "what is usual must not follow what the jobs do"


def test_they_come_back_slowly_when_the_foreground_can_bear_them_again() -> None:
    host = Host(1.5, 5_000, worst=9.0)
    host.alone()
    host.seconds(20)
    host.worst = 1.0
    shares = host.seconds(60)
    assert shares[3] < 0.3
    assert shares[-1] == 1.0


def test_a_foreground_that_is_slow_by_itself_does_not_stop_the_jobs_for_ever() -> None:
    host = Host(1.5, 5_000, worst=1.1)
    host.alone()
    host.seconds(10)
    host.base_us = 50_000
    assert host.seconds(10)[-1] <= 0.1
    assert host.seconds(300)[-1] >= 0.9


def test_few_adds_and_fast_adds_say_nothing() -> None:
    usual = LatencyBaseline()
    assert usual.growth(10, 1_000_000, idle=True) == 1.0
    assert usual.growth(1000, 100, idle=True) < 1.0
    assert usual.growth(10, 1_000_000, idle=False) == 1.0
    assert usual.growth(1000, 190, idle=False) < 1.0
    assert usual.growth(1000, 2_000, idle=False) == pytest.approx(10.0, rel=0.1)


def test_jobs_that_begin_with_the_foreground_rest_until_it_is_known() -> None:
    """Else the first that is measured, which they have disturbed already, would be taken for usual."""
    governor, usual = AdaptiveThrottle(1.5), LatencyBaseline()
    shares, growths = [1.0], []
    for _ in range(60):
        p99_us = 20_000 if shares[-1] > 0.3 else 5_000
        growths.append(usual.growth(1000, p99_us, idle=shares[-1] == SHARE_LEAST))
        shares.append(governor.second_passed(growths[-1], unknown=usual.is_unknown))
    assert shares[1:4] == [SHARE_LEAST] * 3
    assert shares[4:7] == pytest.approx([0.1, 0.2, 0.4]), "they rest for a moment only"
    assert growths[6] > 1.5
    assert shares[7] <= 0.2, "the first that is too much ends the doubling"
    assert max(shares[8:20]) <= 0.35
    usual = LatencyBaseline()
    usual.growth(1000, 5_000, idle=False)
    assert usual.is_unknown
    usual.growth(3, 5_000, idle=True)
    assert not usual.is_unknown, "nobody is there who could be disturbed"
    nobody = LatencyBaseline()
    assert nobody.growth(3, 20_000, idle=False) == 1.0
    assert not nobody.is_unknown


def test_jobs_that_the_foreground_can_bear_have_all_within_seconds() -> None:
    governor = AdaptiveThrottle(1.5)
    for _ in range(3):
        governor.second_passed(1.0, unknown=True)
    assert [governor.second_passed(1.0) for _ in range(6)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    )


def test_the_share_has_a_least() -> None:
    governor = AdaptiveThrottle(2.0)
    for _ in range(100):
        governor.second_passed(1000.0)
    assert governor.share == SHARE_LEAST
