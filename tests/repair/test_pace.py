"""Budgets, back-off and progress of repair: pure arithmetic, with the clock and the randomness passed in."""

from __future__ import annotations

import random

import pytest

from bkbox.repair.pace import ByteBudget, retry_wait_s
from bkbox.repair.progress import Progress


def test_a_budget_lets_its_bytes_per_second_pass() -> None:
    budget = ByteBudget(1000)
    now = 100.0
    for _ in range(50):
        now += budget.wait_s(500, now)
    assert 23.0 <= now - 100.0 <= 25.0


def test_a_budget_saves_up_one_second_at_most() -> None:
    budget = ByteBudget(1000)
    assert budget.wait_s(1000, 1000.0) == 0.0
    assert budget.wait_s(1000, 1000.0) == pytest.approx(1.0)


def test_no_budget_never_waits() -> None:
    assert ByteBudget(0).wait_s(1 << 40, 0.0) == 0.0


def test_retries_back_off_with_jitter_up_to_the_longest_wait() -> None:
    rng = random.Random(1)
    waits = [[retry_wait_s(tries, 1.0, 60.0, rng) for _ in range(200)] for tries in (0, 3, 200)]
    assert all(0.5 <= wait <= 1.0 for wait in waits[0])
    assert all(4.0 <= wait <= 8.0 for wait in waits[1])
    assert all(30.0 <= wait <= 60.0 for wait in waits[2])
    assert all(len(set(group)) > 100 for group in waits)


def test_an_eta_is_only_given_where_it_means_something() -> None:
    progress = Progress(ledgers=4)
    assert progress.eta_s(10.0) is None
    progress.done = 1
    assert progress.eta_s(10.0) == pytest.approx(30.0)
    progress.blockers[7] = ("no peer has it", "bring one back")
    assert progress.eta_s(10.0) is None
    progress.done = 4
    assert progress.eta_s(10.0) == 0.0
