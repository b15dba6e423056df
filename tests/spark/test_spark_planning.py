"""Partitions cover what is to be read once, and streams share their room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark_bookkeeper.planning import ENTRY_OVERHEAD_BYTES, Extent, partitions
from pyspark_bookkeeper.tail import ReadBudget, shared

EXTENTS = st.lists(
    st.builds(
        lambda first, count, size, cuts: (first, first + count, size * count, tuple(cuts)),
        st.integers(0, 50),
        st.integers(0, 300),
        st.integers(0, 5_000),
        st.lists(st.integers(0, 400), max_size=4),
    ),
    max_size=12,
)


@given(EXTENTS, st.integers(1, 1 << 20), st.integers(1, 20))
def test_every_entry_is_in_one_piece(
    extents: list[tuple[int, int, int, tuple[int, ...]]], max_bytes: int, min_partitions: int
) -> None:
    wanted = [Extent(number, *each) for number, each in enumerate(extents)]
    found = partitions(wanted, max_bytes, min_partitions)
    assert all(found)
    seen = [
        (piece.ledger_id, entry)
        for pieces in found
        for piece in pieces
        for entry in range(piece.first, piece.last + 1)
    ]
    assert seen == [
        (each.ledger_id, entry) for each in wanted for entry in range(each.first, each.stop)
    ]
    for pieces in found:
        for piece in pieces:
            cuts = wanted[piece.ledger_id].cuts
            assert not any(piece.first < cut <= piece.last for cut in cuts), "cut at fragments"


def test_sizes() -> None:
    per_entry = 1_000 + ENTRY_OVERHEAD_BYTES
    large = Extent(1, 0, 1_000, 1_000_000)
    assert len(partitions([large], 100 * per_entry)) == 16, (
        "of ten, two cores have five each, four have three at most"
    )
    assert len(partitions([large], 1000 * per_entry)) == 1
    assert len(partitions([large], 10 * per_entry)) == 100
    assert len(partitions([large], 1 << 40, min_partitions=8)) == 8
    small = [Extent(ledger, 0, 10, 10_000) for ledger in range(100)]
    assert len(partitions(small, 125 * per_entry)) == 8
    assert partitions([Extent(1, 5, 5, 0)], 1_000) == []
    assert len(partitions([Extent(1, 0, 3, 3)], 1 << 20, min_partitions=100)) == 3


def test_room_is_shared_by_what_is_left() -> None:
    left = {"1": Extent(1, 0, 100, 1_000), "2": Extent(2, 50, 60, 100), "3": Extent(3, 7, 8, 10)}
    assert shared(left, ReadBudget()) == {"1": 100, "2": 60, "3": 8}
    ends = shared(left, ReadBudget(entries=11))
    assert ends == {"1": 10, "2": 51, "3": 8}
    assert all(ends[key] > extent.first for key, extent in left.items()), "nobody starves"
    assert shared(left, ReadBudget(size=1)) == {"1": 1, "2": 51, "3": 8}


def test_room_of_a_log() -> None:
    extent = Extent(1, 0, 100, 10_000)
    assert ReadBudget().part(extent) == 100
    assert ReadBudget(entries=30).part(extent) == 30
    assert ReadBudget(entries=30, size=1_000).part(extent) == 10
    assert ReadBudget(size=50).part(extent) == 0
    assert ReadBudget(entries=30, size=9_000).without(extent, 20) == ReadBudget(10, 7_000)
