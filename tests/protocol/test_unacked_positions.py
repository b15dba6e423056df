"""Watermarks say the same as a set of positions for every entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bkbox.protocol.quorum import QuorumSizes
from bkbox.protocol.unacked_positions import UnackedPositions

SIZES = st.sampled_from([(1, 1, 1), (3, 3, 2), (3, 3, 3), (3, 2, 1), (3, 2, 2), (5, 3, 2)])
STEPS = st.lists(
    st.tuples(st.sampled_from("aaaf"), st.integers(0, 4), st.integers(0, 6), st.integers(0, 8)),
    max_size=40,
)
"""Adds and changes: position, how far beyond the LAC, how many more. Near it is where order matters."""
LAST = 24


@given(SIZES, STEPS)
def test_against_sets(
    numbers: tuple[int, int, int], steps: list[tuple[str, int, int, int]]
) -> None:
    sizes = QuorumSizes(*numbers)
    holdings = UnackedPositions(sizes)
    holders: list[set[int]] = [set() for _ in range(LAST + 1)]
    lac = -1
    for step, position, beyond, more in steps:
        position %= sizes.ensemble_size
        first = max(0, lac + beyond)
        if step == "f":
            holdings.forget(position)
            for held in holders[lac + 1 :]:
                held.discard(position)
        elif first <= LAST:
            last = min(first + more, LAST)
            holdings.add(position, first, last, lac)
            for entry in range(first, last + 1):
                if position in sizes.write_set(entry):
                    holders[entry].add(position)
        end = lac
        while end < LAST and len(holders[end + 1]) >= sizes.ack_quorum:
            end += 1
        assert holdings.acknowledged(lac, LAST) == end
        lac = end
        for entry in range(lac + 1, LAST + 1):
            for one in sizes.write_set(entry):
                assert holdings.holds(one, entry) == (one in holders[entry])


def test_what_came_out_of_order_counts() -> None:
    """Entry 1 is on the first two: on one of them before entry 0, which this one never got."""
    holdings = UnackedPositions(QuorumSizes(3, 3, 2))
    holdings.add(0, 1, 1, -1)
    holdings.add(1, 0, 1, -1)
    assert holdings.acknowledged(-1, 5) == -1
    holdings.add(2, 0, 0, -1)
    assert holdings.acknowledged(-1, 5) == 1
    assert holdings.acknowledged(-1, 0) == 0
    holdings.forget(0)
    assert holdings.acknowledged(-1, 5) == 0
    assert not holdings.holds(0, 1)


def test_what_lies_beyond_a_gap_stays_until_the_gap_is_filled_and_costs_nothing_then() -> None:
    holdings = UnackedPositions(QuorumSizes(3, 3, 2))
    holdings.add(0, 5, 6, -1)
    holdings.add(0, 0, 1, -1)
    assert [holdings.holds(0, entry) for entry in range(8)] == [
        *(True, True, False, False, False, True, True, False),
    ]
    holdings.add(0, 2, 4, -1)
    assert [holdings.holds(0, entry) for entry in range(8)] == [*[True] * 7, False]
    assert holdings._beyond == [set(), set(), set()]
