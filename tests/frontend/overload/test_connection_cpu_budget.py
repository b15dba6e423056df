"""What newcomers may take of the front-end's time, told what time it is."""

from __future__ import annotations

import pytest

from bkbox.frontend.overload.connection_cpu_budget import SAVED_S, SHARE, ConnectionCpuBudget


class Scene:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.others_work = True
        self.cpu_s = 0.0
        self.cpu_budget = ConnectionCpuBudget(
            lambda: self.now_s, lambda: self.cpu_s, lambda: self.others_work
        )

    def flood(self, seconds: float, each_s: float) -> float:
        """Newcomers come as often as they may; how much of the time they took."""
        until_s, took_s = self.now_s + seconds, 0.0
        while self.now_s < until_s:
            throttle_s = self.cpu_budget.throttle_s()
            if throttle_s:
                self.now_s += throttle_s
            else:
                began_s = self.cpu_budget.cpu_s()
                self.now_s += 2 * each_s  # half of the time somebody else has the processor
                self.cpu_s += each_s
                self.cpu_budget.charge(began_s)
                took_s += each_s
        return took_s


def test_many_at_once_and_then_a_share() -> None:
    scene = Scene()
    assert scene.flood(2 * SAVED_S, 0.0001) == pytest.approx(SAVED_S, rel=0.01)
    scene.flood(1.0, 0.0001)
    assert scene.flood(100.0, 0.0001) == pytest.approx(100.0 * SHARE, rel=0.05)
    assert scene.flood(100.0, 0.1) == pytest.approx(100.0 * SHARE, rel=0.1)


def test_who_waited_long_enough_may_come_at_once_again() -> None:
    scene = Scene()
    scene.flood(10.0, 0.001)
    scene.now_s += 2 * SAVED_S / SHARE
    assert scene.flood(2 * SAVED_S, 0.001) == pytest.approx(SAVED_S, rel=0.01)


def test_nobody_rests_where_nobody_is_held_up() -> None:
    scene = Scene()
    scene.others_work = False
    assert scene.flood(10.0, 0.001) == pytest.approx(5.0, rel=0.01)
    scene.others_work = True
    assert scene.cpu_budget.throttle_s() == 0.0, "what they took while nobody worked does not count"
