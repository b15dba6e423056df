"""Rates from counters."""

from __future__ import annotations

import pytest

from bkbox.supervisor.disks.rate_meter import Meter


def meter(*seen: tuple[float, int]) -> Meter:
    found = Meter()
    for now_s, adds in seen:
        found.see(now_s, {"adds": adds, "reads": 7})
    return found


@pytest.mark.parametrize(
    ("seen", "adds"),
    [
        ([(0.0, 0), (1.0, 100)], 100.0),
        ([(0.0, 0), (1.0, 100), (2.0, 400)], 200.0),
        ([(0.0, 0), (1.0, 100), (1.1, 200), (1.2, 300), (2.0, 400)], 200.0),
        ([(0.0, 5), (1.0, 5)], 0.0),
    ],
)
def test_what_was_done_per_second(seen: list[tuple[float, int]], adds: float) -> None:
    assert meter(*seen).rates(seen[-1][0]) == {"adds": pytest.approx(adds), "reads": 0.0}


def test_only_the_last_seconds_count() -> None:
    burst = [(float(second), 1_000 if second else 0) for second in range(60)]
    assert meter(*burst).rates(59.0)["adds"] == 0.0
    steady = meter(*((float(second), 10 * second) for second in range(60)))
    assert steady.rates(59.0)["adds"] == pytest.approx(10.0)
    assert len(steady._seen) <= 12


def test_nothing_is_known_at_first_and_after_a_restart() -> None:
    assert meter().rates(0.0) == {}
    assert meter((0.0, 5)).rates(0.0) == {}
    assert meter((0.0, 500), (1.0, 600), (2.0, 3)).rates(2.0) == {}, "it counts from 0 again"
    again = meter((0.0, 500), (1.0, 600), (2.0, 3), (3.0, 13))
    assert again.rates(3.0)["adds"] == pytest.approx(10.0)


def test_being_asked_very_often_costs_no_memory() -> None:
    often = meter(*((number / 1_000, number) for number in range(20_000)))
    assert len(often._seen) < 50
    assert often.rates(20.0)["adds"] == pytest.approx(1_000, rel=0.05)


def test_one_that_no_longer_answers_has_no_rates() -> None:
    found = meter((0.0, 0), (1.0, 100))
    assert found.rates(5.0)["adds"] == pytest.approx(100.0)
    assert found.rates(7.0) == {}
