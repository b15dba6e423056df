"""Histograms: percentiles are off by 3 % at most, and never too low."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from bkbox.native.histogram import Histogram

VALUES = st.one_of(
    st.integers(0, 200), st.integers(0, 10**7), st.integers(0, 2**63 - 1), st.integers(-5, -1)
)


@given(st.lists(VALUES, min_size=1), st.sampled_from([0.0, 1.0, 50.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_at_most_a_thirtieth_above_the_exact_one(
    values: list[int], percent: float
) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    ordered = sorted(max(value, 0) for value in values)
    exact = ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
    assert exact <= histogram.percentile(percent) <= exact + exact // 31


@given(st.lists(st.integers(0, 2**40)), st.lists(st.integers(0, 2**40)))
def test_merged_histograms_are_that_of_all_values(some: list[int], others: list[int]) -> None:
    one, other, whole = Histogram(), Histogram(), Histogram()
    for value in some:
        one.record(value)
        whole.record(value)
    for value in others:
        other.record(value)
        whole.record(value)
    one.merge(other)
    for percent in (0, 50, 99, 99.9, 100):
        assert one.percentile(percent) == whole.percentile(percent)
    assert one.count == len(some) + len(others)
    assert one.total == sum(some) + sum(others)
    assert one.max == max([*some, *others], default=0)


def test_an_empty_histogram_says_zeros() -> None:
    empty = Histogram()
    assert {empty.count, empty.total, empty.max, empty.percentile(99)} == {0}
