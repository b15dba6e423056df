"""Runs against a brute-force model, and LevelDB against the same in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkbox.errors import DamagedError, DiskFailedError
from bkbox.limits import RUN_ENTRIES_MAX
from bkbox.storage.files import RealFiles
from bkbox.storage.index import LedgerIndex, Run, changes_of
from bkbox.storage.orderedstore import LevelStore, MemoryStore, discard_unsynced
from bkbox.storage.records import (
    LedgerRecord,
    Location,
    forget_record,
    ledger_record,
)
from tests.storage.bench import entry

RANGES = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 40), st.integers(1, 15)), max_size=25)


def run_of(ledger: int, first: int, count: int, turn: int) -> Run:
    return Run(ledger, first, turn, 64, [10 + (first + n) % 7 for n in range(count)])


@given(RANGES, st.integers(1, 4))
def test_what_was_written_last_is_found(ranges: list[tuple[int, int, int]], at_once: int) -> None:
    store = MemoryStore()
    index = LedgerIndex(store)
    model: dict[tuple[int, int], Location] = {}
    runs = [run_of(*one, turn) for turn, one in enumerate(ranges)]
    for start in range(0, len(runs), at_once):
        index.apply(runs[start : start + at_once])
    for run in runs:
        offset = run.offset
        for number, length in enumerate(run.lengths):
            model[run.ledger, run.first + number] = Location(run.segment, offset, length)
            offset += 16 + length
    for fresh in (index, LedgerIndex(store)):  # with and without what it remembers
        for ledger in (1, 2):
            numbers = sorted(number for found, number in model if found == ledger)
            for number in range(60):
                assert fresh.find(ledger, number) == model.get((ledger, number))
            assert fresh.last_entry_id(ledger) == max(numbers, default=-1)
            listed = [n for a, b in fresh.entries(ledger) for n in range(a, b + 1)]
            assert listed == numbers
    index.apply(runs)  # as a replay does
    for place, location in model.items():
        assert index.find(*place) == location


@given(RANGES)
def test_runs_never_overlap(ranges: list[tuple[int, int, int]]) -> None:
    store = MemoryStore()
    index = LedgerIndex(store)
    index.apply([run_of(*one, turn) for turn, one in enumerate(ranges)])
    last = (0, -1)
    for key, value in store.iterate(b"R", b"S"):
        ledger, first = int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big")
        assert (ledger, first) > last
        last = (ledger, first + (len(value) - 13) // 4 - 1)


CHANGES = st.lists(
    st.dictionaries(
        st.binary(min_size=1, max_size=3),
        st.one_of(st.none(), st.binary(max_size=5)),
        max_size=6,
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=25)
@example([{b"#": b""}], b"", b"\x00")
@given(CHANGES, st.binary(max_size=2), st.binary(max_size=3))
def test_leveldb_is_the_store_in_memory(
    changes: list[dict[bytes, bytes | None]], start: bytes, stop: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory, level = MemoryStore(), LevelStore(Path(folder) / "index", create=True)
        for one in changes:
            memory.write(one)
            level.write(one)
        for reverse in (False, True):
            expected = list(memory.iterate(b"#" + start, b"#" + stop, reverse=reverse))
            assert list(level.iterate(b"#" + start, b"#" + stop, reverse=reverse)) == expected
        for key in {key for one in changes for key in one}:
            assert level.get(key) == memory.get(key)
        level.close()


def test_a_flush_outlives_the_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "index"
    store = LevelStore(path, create=True)
    store.write({b"flushed": b"1"})
    store.flush()
    store.write({b"later": b"2"})
    store.close()
    discard_unsynced(RealFiles(), path)
    store = LevelStore(path)
    assert store.get(b"flushed") == b"1"
    assert store.get(b"later") is None
    store.close()


def test_a_missing_or_broken_index_says_how_to_rebuild_it(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="bkbox index rebuild"):
        LevelStore(tmp_path / "index")
    store = LevelStore(tmp_path / "index", create=True)
    store.close()
    (tmp_path / "index" / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(DamagedError, match="bkbox index rebuild"):
        LevelStore(tmp_path / "index")


def test_runs_are_rows_of_adjacent_records_of_one_ledger() -> None:
    records = [entry(1, 5), entry(1, 6), entry(2, 0), entry(1, 7), entry(1, 9), entry(1, 10)]
    offset, locations = 64, []
    for record in records:
        locations.append(Location(1, offset, len(record.body)))
        offset += 16 + len(record.body)
    runs = [run for run in changes_of(records, locations) if isinstance(run, Run)]
    assert [(run.ledger, run.first, run.last) for run in runs] == [
        (1, 5, 6),
        (2, 0, 0),
        (1, 7, 7),
        (1, 9, 10),
    ]
    apart = [locations[0], Location(1, locations[1].offset + 1, len(records[1].body))]
    assert len(changes_of(records[:2], apart)) == 2


def test_a_run_is_bounded() -> None:
    records = [entry(1, number) for number in range(RUN_ENTRIES_MAX + 1)]
    size = 16 + len(records[0].body)
    locations = [Location(1, 64 + n * size, size - 16) for n in range(len(records))]
    index = LedgerIndex(MemoryStore())
    changes = changes_of(records, locations)
    assert len(changes) == 2
    index.apply(changes)
    assert index.find(1, RUN_ENTRIES_MAX) == locations[-1]
    assert index.entries(1) == [(0, RUN_ENTRIES_MAX)]


def test_a_fence_is_one_way_and_a_key_is_not_forgotten() -> None:
    index = LedgerIndex(MemoryStore())
    index.apply([ledger_record(1, LedgerRecord(fenced=True, limbo=True))])
    assert index.ledger_state(1) == LedgerRecord(None, True, True)
    index.apply([ledger_record(1, LedgerRecord(b"key"))])
    index.apply([ledger_record(1, LedgerRecord(None))])
    assert index.ledger_state(1) == LedgerRecord(b"key", True, False)
    index.apply([ledger_record(1, LedgerRecord(b"")), ledger_record(2, LedgerRecord(b""))])
    assert list(index.ledgers()) == [
        (1, LedgerRecord(b"", True, False)),
        (2, LedgerRecord(b"", False, False)),
    ]


def test_forgetting_voids_what_came_before_and_not_what_follows() -> None:
    index = LedgerIndex(MemoryStore())
    index.apply(
        [
            run_of(1, 0, 5, 1),
            ledger_record(1, LedgerRecord(b"k", fenced=True)),
            forget_record(1),
            run_of(1, 2, 1, 2),
        ]
    )
    assert index.entries(1) == [(2, 2)]
    assert index.last_entry_id(1) == 2
    assert index.ledger_state(1) is None


def test_dropping_takes_out_single_entries() -> None:
    index = LedgerIndex(MemoryStore())
    run = run_of(1, 0, 5, 1)
    index.apply([run, run_of(2, 0, 3, 2)])
    gone = run.part(2, 2)
    changes, count = index.find_gone(
        lambda segment, start, end: segment == 1 and start < gone.end and gone.offset < end
    )
    assert count == 1
    assert index.entries(1) == [(0, 4)]
    index.drop(changes)
    assert index.entries(1) == [(0, 1), (3, 4)]
    assert index.entries(2) == [(0, 2)]


class _FullStore(MemoryStore):
    def write(self, changes: object) -> None:
        raise DiskFailedError("no")


def test_a_failed_write_leaves_no_memory_of_what_it_would_have_written() -> None:
    index = LedgerIndex(_FullStore())
    with pytest.raises(DiskFailedError):
        index.apply([run_of(1, 0, 5, 1)])
    assert index.last_entry_id(1) == -1
