"""Runs say what was put into them, whatever columns they need, and refuse what they are not."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.base.limits import EXTENT_ENTRIES_MAX
from bkbox.errors import DamagedError
from bkbox.storage.index.extents import RUN_VERSION, Extent, ExtentEncoder

Row = tuple[int, int, int, int]
"""Entry, segment, offset, length."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from((1, 1, 1, 2, 7, 1 << 33)),
        st.sampled_from((0, 0, 0, 1)),
        st.sampled_from((0, 0, 0, 100, -300, 1 << 33)),
        st.sampled_from((40, 40, 40, 0, 5_000_000)),
    ),
    min_size=1,
    max_size=60,
)


def rows_of(steps: list[tuple[int, int, int, int]]) -> list[Row]:
    rows: list[Row] = []
    entry, segment, end = 0, 1, 1_000
    for id_step, segment_step, gap, length in steps:
        entry, segment, offset = entry + id_step, segment + segment_step, max(64, end + gap)
        rows.append((entry, segment, offset, length))
        end = offset + 16 + length
    return rows


def encode(rows: list[Row], ledger: int = 5) -> list[Extent]:
    encoder = ExtentEncoder()
    runs = []
    for row in rows:
        if not encoder.add(*row):
            runs.append(encoder.end(ledger))
            assert encoder.add(*row)
    return [*runs, encoder.end(ledger)]


def decoded(runs: list[Extent]) -> list[Row]:
    return [
        (entry, run.segment, offset, length)
        for run in runs
        for entry, offset, length in run.entries()
    ]


@given(STEPS)
def test_what_was_added_is_found(steps: list[tuple[int, int, int, int]]) -> None:
    rows = rows_of(steps)
    runs = encode(rows)
    assert decoded(runs) == rows
    places = {row[0]: row for row in rows}
    for run in runs:
        assert Extent(run.ledger, run.first, run.value).last == run.last
        near = {entry + step for entry, *_ in run.entries() for step in (-1, 0, 1)}
        for entry in near:
            index = run.index_of(entry)
            if entry not in places or not run.first <= entry <= run.last:
                assert index == -1
            else:
                found = entry, run.segment, run.offset_of(index), run.length_of(index)
                assert found == places[entry]
        ranges = [n for first, last in run.ranges() for n in range(first, last + 1)]
        assert ranges == [entry for entry, *_ in run.entries()]
    ends = [(run.first, run.last) for run in runs]
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    ("step", "gap", "lengths", "per_entry"),
    [(1, 0, (40,), 0), (1, 0, (40, 41), 4), (1, 9, (40,), 4), (2, 9, (40, 41), 12)],
)
def test_a_column_is_there_only_where_it_says_something(
    step: int, gap: int, lengths: tuple[int, ...], per_entry: int
) -> None:
    rows, offset = [], 64
    for number in range(100):
        length = lengths[number % len(lengths)]
        rows.append((number * step, 1, offset, length))
        offset += 16 + length + gap
    [run] = encode(rows)
    assert len(run.value) == 20 + 100 * per_entry
    assert decoded([run]) == rows


def test_a_run_is_bounded() -> None:
    rows = [(entry, 1, 64 + 56 * entry, 40) for entry in range(EXTENT_ENTRIES_MAX + 1)]
    runs = encode(rows)
    assert [run.count for run in runs] == [EXTENT_ENTRIES_MAX, 1]


def test_the_layout() -> None:
    [run] = encode([(7, 3, 64, 40), (9, 3, 200, 41)])
    head = struct.pack(">BBHIQI", RUN_VERSION, 7, 2, 3, 64, 0)
    assert run.value == head + struct.pack(">6I", 0, 2, 0, 136, 40, 41)
    [run] = encode([(7, 3, 1 << 40, 40), (8, 3, (1 << 40) + 56, 40)])
    assert run.value == struct.pack(">BBHIQI", RUN_VERSION, 0, 2, 3, 1 << 40, 40)
    assert (run.offset_of(1), run.length_of(1)) == ((1 << 40) + 56, 40)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01" + bytes(12),
        struct.pack(">BBHIQI", 1, 0, 1, 1, 64, 40),
        struct.pack(">BBHIQI", 3, 0, 1, 1, 64, 40),
        struct.pack(">BBHIQI", 2, 0, 0, 1, 64, 40),
        struct.pack(">BBHIQI", 2, 8, 1, 1, 64, 40),
        struct.pack(">BBHIQI", 2, 1, 1, 1, 64, 40),
        struct.pack(">BBHIQIB", 2, 0, 1, 1, 64, 40, 0),
    ],
)
def test_what_is_no_run_is_refused(value: bytes) -> None:
    with pytest.raises(DamagedError):
        Extent(1, 0, value)
