"""What a job says of itself: percent, rate, time left, blockers. The clock is passed in."""

from __future__ import annotations

import json

import pytest

from bkbox.ipc.channel import MESSAGE_BYTES_MAX
from bkbox.repair.progress import Progress


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    progress = Progress(0.0)
    for second in range(1, 101):
        progress.add_progress(0, 0, 1000 if second <= 50 else 10, float(second))
    assert progress.rates(100.0)[2] == pytest.approx(10.0, rel=0.1)


def test_time_left_and_percent_are_of_the_measure_that_is_furthest_back() -> None:
    progress = Progress(0.0)
    assert progress.percent() is None
    assert progress.eta_s(0.0) is None
    progress.expect(ledgers=10, entries=1000, size=None)
    assert progress.eta_s(0.0) is None, "nothing is known of its rate yet"
    for second in range(1, 11):
        progress.add_progress(0, 50, 500, float(second))
    progress.add_progress(1, 0, 0, 10.0)
    assert progress.percent() == 10.0
    assert progress.eta_s(10.0) == pytest.approx(90.0, rel=0.2)
    progress.block(7, "no peer has it", "bring one back")
    assert progress.eta_s(10.0) is None
    progress.unblock(7)
    progress.add_progress(9, 500, 0, 10.0)
    assert (progress.percent(), progress.eta_s(11.0)) == (100.0, 0.0)


def test_it_is_blocked_when_nothing_goes_on_beside_what_is_blocked() -> None:
    progress = Progress(0.0)
    assert not progress.is_blocked(100.0)
    progress.block(7, "a", "b")
    progress.add_progress(1, 0, 0, 100.0)
    assert not progress.is_blocked(101.0)
    assert progress.is_blocked(110.0)
    progress.count("entries_checked", 1, 110.0)
    assert not progress.is_blocked(111.0)
    progress.unblock(7)
    progress.unblock(8)
    assert not progress.is_blocked(200.0)


def test_a_rest_counts_for_no_rate() -> None:
    progress = Progress(0.0)
    progress.add_progress(0, 0, 1000, 1.0)
    progress.resume_clock(1000.0)
    progress.add_progress(0, 0, 1000, 1001.0)
    assert progress.rates(1002.0)[2] == pytest.approx(500.0)


def test_a_report_fits_into_a_message_whatever_is_blocked() -> None:
    progress = Progress(0.0)
    for ledger in range(10_000):
        progress.block(2**62 + ledger, "é" * 5000, "ü" * 5000)
    progress.step = "x" * 100_000
    values = progress.values(1.0)
    assert values["blocked"] == 10_000
    assert len(values["blockers"]) > 10
    assert len(json.dumps(values)) < MESSAGE_BYTES_MAX


def test_one_that_stands_by_has_no_percentage_and_no_time_left() -> None:
    progress = Progress(0.0)
    progress.expect(0, None, None)
    assert (progress.values(1.0)["percent"], progress.values(1.0)["eta_s"]) == (100.0, 0.0)
    progress.standing_by = True
    assert (progress.values(1.0)["percent"], progress.values(1.0)["eta_s"]) == (None, None)
