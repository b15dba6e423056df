"""Lines that strangers cause: a few of each kind, and the number of the others."""

from __future__ import annotations

import logging

import pytest

from bkbox.base.logs.rate_limited import RateLimited


class Clock:
    now_s = 5.0


@pytest.fixture
def limited_log(monkeypatch: pytest.MonkeyPatch) -> RateLimited:
    monkeypatch.setattr(Clock, "now_s", 5.0)
    return RateLimited(logging.getLogger("tests.seldom"), lambda: Clock.now_s)


def test_ten_of_a_kind_and_then_one_a_second(
    limited_log: RateLimited, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(3000):
        limited_log.log(logging.WARNING, "one", "number %d", number, extra={"trace": f"c{number}"})
        if number % 1000 == 0:
            limited_log.log(logging.WARNING, "other", "another: %d", number)
        Clock.now_s += 0.001
    of_one = [record for record in caplog.records if "number" in record.getMessage()]
    assert len(caplog.records) - len(of_one) == 3
    assert [record.getMessage() for record in of_one[:10]] == [f"number {n}" for n in range(10)]
    assert len(of_one) in (11, 12, 13)
    told = of_one[10].getMessage()
    assert told.startswith("number ")
    assert told.endswith("more like it since the last line)")
    left_out = int(told.split("(and ")[1].split()[0])
    assert left_out == int(told.split()[1]) - 10
    assert of_one[10].__dict__["trace"] == f"c{told.split()[1]}"


def test_what_is_not_written_anyway_counts_for_nothing(
    limited_log: RateLimited, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(100):
        limited_log.log(logging.INFO, "one", "nothing")
    assert not caplog.records
    limited_log.log(logging.WARNING, "one", "something")
    assert [record.getMessage() for record in caplog.records] == ["something"]
