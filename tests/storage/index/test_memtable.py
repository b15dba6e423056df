"""Entries since the last checkpoint against a dict, and the look-up through all layers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.storage.index import memtable as module
from bkbox.storage.index.extents import Extent, ExtentEncoder
from bkbox.storage.index.memtable import (
    FOUND,
    NOT_HERE,
    TOMBSTONE,
    EntryLocation,
    EntryLookup,
    Memtable,
)

PUTS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 60),
        st.integers(1, 30),
        st.sampled_from((1, 1, 2, 16, -1)),
        st.booleans(),
    ),
    max_size=20,
)

Model = dict[tuple[int, int], tuple[int, int, int]]


def put_all(
    recent: Memtable, puts: list[tuple[int, int, int, int, bool]]
) -> tuple[Model, set[int]]:
    model: Model = {}
    forgotten = set()
    offset = 64
    for turn, (ledger, first, count, step, forget) in enumerate(puts):
        if forget and turn % 3 == 0:
            recent.forget(ledger)
            forgotten.add(ledger)
            model = {key: place for key, place in model.items() if key[0] != ledger}
        for entry in range(first, first + count * step, step):
            if entry >= 0:
                place = turn // 8 + 1, offset, 30 + turn % 2
                recent.put(ledger, entry, *place)
                model[ledger, entry] = place
                offset += 16 + place[2]
    return model, forgotten


def found(recent: Memtable | EntryLookup, ledger: int, entry: int) -> tuple[int, int, int] | None:
    place = EntryLocation()
    if not recent.find(ledger, entry, place):
        return None
    return place.segment, place.offset, place.length


@given(PUTS)
def test_what_was_put_last_is_found(puts: list[tuple[int, int, int, int, bool]]) -> None:
    recent = Memtable(4)
    for _ in range(2):
        model, forgotten = put_all(recent, puts)
        for ledger in range(5):
            for entry in range(120):
                assert found(recent, ledger, entry) == model.get((ledger, entry))
            entries = [entry for owner, entry in model if owner == ledger]
            assert recent.last(ledger) == max(entries, default=-1)
            assert recent.forgets(ledger) == (ledger in forgotten)
        assert recent.forgotten() == sorted(forgotten)
        assert recent.entries >= len(model)
        listed = [
            ((run.ledger, entry), (run.segment, offset, length))
            for run in recent.runs()
            for entry, offset, length in run.entries()
        ]
        assert listed == sorted(model.items())
        recent.clear()
        assert (recent.entries, recent.memory, recent.ledgers()) == (0, 0, [])


def test_memory_of_the_ordinary_case_is_bounded() -> None:
    recent = Memtable()
    for entry in range(10_000):
        for ledger in range(4):
            recent.put(ledger, entry, 1, 64 + entry, 100)
    assert recent.entries == 40_000
    assert recent.memory <= 25 * recent.entries
    assert sum(1 for _ in recent.runs()) <= 4 * 10_000 / 1_024 + 4


def test_a_forgotten_ledger_is_void_and_not_missing() -> None:
    recent, place = Memtable(), EntryLocation()
    recent.put(1, 0, 1, 64, 100)
    recent.forget(1)
    recent.put(1, 7, 1, 200, 100)
    assert recent.look_up(1, 7, place) == FOUND
    assert recent.look_up(1, 0, place) == TOMBSTONE
    assert recent.look_up(2, 0, place) == NOT_HERE
    assert [(run.first, run.last) for run in recent.runs()] == [(7, 7)]


class Stored:
    """Runs of 10 entries for each of 50 ledgers of 100 entries; counts the loads."""

    def __init__(self) -> None:
        self.loads = 0

    def __call__(self, ledger: int, entry: int) -> Extent | None:
        self.loads += 1
        if entry >= 100 or ledger >= 50:
            return None
        encoder = ExtentEncoder()
        for number in range(entry // 10 * 10, entry // 10 * 10 + 10):
            encoder.add(number, ledger, 64 + number, 40)
        return encoder.end(ledger)


def test_the_newest_layer_answers() -> None:
    finder = EntryLookup(Stored(), 1 << 20)
    assert found(finder, 1, 5) == (1, 69, 40)
    finder.frozen = Memtable()
    finder.frozen.put(1, 5, 8, 80, 1)
    finder.frozen.put(1, 6, 8, 81, 1)
    finder.active.put(1, 5, 9, 90, 1)
    assert found(finder, 1, 5) == (9, 90, 1)
    assert found(finder, 1, 6) == (8, 81, 1)
    assert found(finder, 1, 7) == (1, 71, 40)
    finder.active.forget(1)
    assert [found(finder, 1, entry) for entry in (5, 6, 7)] == [None] * 3
    finder.active = Memtable()
    finder.frozen.forget(1)
    finder.frozen.put(1, 6, 8, 82, 1)
    assert [found(finder, 1, entry) for entry in (5, 6, 7)] == [None, (8, 82, 1), None]


@pytest.mark.parametrize("bytes_max", [1, 1_500, 1 << 20])
def test_runs_are_kept_as_memory_allows(bytes_max: int) -> None:
    stored = Stored()
    finder = EntryLookup(stored, bytes_max)
    rng = random.Random(1)
    for _ in range(3_000):
        ledger, entry = rng.randrange(52), rng.randrange(105)
        there = ledger < 50 and entry < 100
        assert found(finder, ledger, entry) == ((ledger, 64 + entry, 40) if there else None)
        if rng.random() < 0.01:
            finder.drop(ledger)
    if bytes_max == 1 << 20:
        assert stored.loads < 1_500
        finder.drop_all()
    before = stored.loads
    for entry in range(100):
        assert found(finder, 7, entry) is not None
    assert stored.loads - before == 10, "one load for each run of a sequential reader"


def test_memory_is_said_of_what_it_is_made_of() -> None:
    recent = Memtable()
    recent.put(1, 10, 1, 64, 100)
    first = recent.memory
    recent.put(1, 5, 1, 64, 100)
    assert recent.memory - first == module.OUT_OF_ORDER_BYTES
    recent.put(2, 0, 1, 64, 100)
    assert recent.memory - first - module.OUT_OF_ORDER_BYTES == first
