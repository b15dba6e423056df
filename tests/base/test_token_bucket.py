"""The token bucket: pure arithmetic, with the clock passed in."""

from __future__ import annotations

import pytest

from bkbox.base.token_bucket import TokenBucket


def passed(bucket: TokenBucket, pieces: int, size: float, now: float) -> float:
    """When so many pieces, one after the other, have passed."""
    for _ in range(pieces):
        now += bucket.wait_s(now)
        bucket.spend(size, now)
    return now


def test_a_bucket_lets_its_units_pass() -> None:
    assert 24.0 <= passed(TokenBucket(1000), 51, 500, 100.0) - 100.0 <= 25.0


def test_a_bucket_saves_up_one_second_at_most() -> None:
    bucket = TokenBucket(1000)
    assert bucket.wait_s(0.0) == 0.0
    assert passed(bucket, 3, 1000, 1000.0) == pytest.approx(1001.0)


def test_a_bucket_without_a_bound_never_waits_and_owes_nothing_later() -> None:
    bucket = TokenBucket(None)
    assert passed(bucket, 10, 1 << 40, 5.0) == 5.0
    bucket.set_rate(10, 5.0)
    assert bucket.wait_s(5.0) == 0.0


def test_a_new_rate_holds_for_what_is_owed_already() -> None:
    bucket = TokenBucket(1)
    bucket.spend(1_000_000, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(1_000_000)
    bucket.set_rate(1_000_000, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(1.0)
    bucket.set_rate(None, 0.0)
    assert bucket.wait_s(0.0) == 0.0


def test_requests_empty_a_bucket_and_time_fills_it() -> None:
    bucket = TokenBucket(10, is_full=True)
    assert [bucket.try_acquire(0.0) for _ in range(11)] == [True] * 10 + [False]
    assert [bucket.try_acquire(0.25) for _ in range(3)] == [True, True, False]
    assert sum(bucket.try_acquire(100.0) for _ in range(50)) == 10


def test_an_empty_bucket_refuses_the_first_request() -> None:
    bucket = TokenBucket(10)
    assert not bucket.try_acquire(5.0)
    assert bucket.try_acquire(5.5)


def test_requests_without_a_bound_are_never_refused() -> None:
    bucket = TokenBucket(None, is_full=True)
    assert all(bucket.try_acquire(0.0) for _ in range(1000))
