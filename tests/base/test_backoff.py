"""The back-off: pure arithmetic, with the randomness passed in."""

from __future__ import annotations

import random

from bkbox.base.backoff import JITTER_AROUND, Backoff, backoff_s, jittered


def test_waits_double_up_to_the_longest() -> None:
    assert [backoff_s(tries, 0.5, 3.0) for tries in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff_s(10_000, 1.0, 60.0) == 60.0, "no overflow"
    assert [backoff_s(tries, 0.1) for tries in range(3)] == [0.1, 0.2, 0.4]
    assert backoff_s(0, 5.0, 2.0) == 2.0


def test_jitter_below_is_never_longer_than_the_wait() -> None:
    rng = random.Random(1)
    waits = [[backoff_s(tries, 1.0, 60.0, rng) for _ in range(200)] for tries in (0, 3, 200)]
    assert all(0.5 <= wait <= 1.0 for wait in waits[0])
    assert all(4.0 <= wait <= 8.0 for wait in waits[1])
    assert all(30.0 <= wait <= 60.0 for wait in waits[2])
    assert all(len(set(group)) > 100 for group in waits)


def test_jitter_around_keeps_the_mean() -> None:
    rng = random.Random(1)
    waits = [jittered(2.0, rng, JITTER_AROUND) for _ in range(1000)]
    assert 1.0 <= min(waits) < 1.1
    assert 2.9 < max(waits) <= 3.0
    assert 1.9 < sum(waits) / 1000 < 2.1


def test_failures_in_a_row_are_counted_until_one_succeeds() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next_s() == 1.0
