"""The index in layers against a brute-force model, and LevelDB against the same in memory."""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkbox.base.limits import EXTENT_ENTRIES_MAX
from bkbox.errors import BugError, DamagedError, DiskFailedError
from bkbox.storage.files import RealFiles
from bkbox.storage.index.extents import Extent
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.ordered_store import LevelStore, MemoryStore, discard_unsynced
from bkbox.storage.log.records import (
    LAC_PACKET,
    LedgerRecord,
    Location,
    Record,
    forget_record,
    lac_record,
    ledger_record,
)

LEDGERS = (1, 2)
ENTRIES = 60


@dataclass
class Model:
    entries: dict[tuple[int, int], Location] = field(default_factory=dict)
    states: dict[int, LedgerRecord] = field(default_factory=dict)
    lacs: dict[int, bytes] = field(default_factory=dict)

    def check(self, index: LedgerIndex) -> None:
        for ledger in LEDGERS:
            numbers = sorted(number for found, number in self.entries if found == ledger)
            for number in range(ENTRIES):
                assert index.find(ledger, number) == self.entries.get((ledger, number))
            assert index.last_entry_id(ledger) == max(numbers, default=-1)
            listed = [n for a, b in index.entries(ledger) for n in range(a, b + 1)]
            assert listed == numbers
            assert index.ledger_state(ledger) == self.states.get(ledger)
            assert index.explicit_lac(ledger) == self.lacs.get(ledger)
        for after in (-1, 0, 1):
            expected = [(one, state) for one, state in sorted(self.states.items()) if one > after]
            assert list(index.ledgers(after)) == expected


class Life:
    """An index and what it should hold; entries are put at ever higher offsets, as a log does it."""

    def __init__(self, index: LedgerIndex, rng: random.Random) -> None:
        self.index = index
        self.model = Model()
        self._rng = rng
        self._segment, self._offset = 1, 64

    def put(self) -> None:
        rng = self._rng
        ledger, first, step = rng.choice(LEDGERS), rng.randrange(30), rng.choice((1, 1, 2))
        for number in range(first, first + step * rng.randint(1, 10), step):
            place = Location(self._segment, self._offset, rng.choice((40, 40, 50)))
            self.index.finder.active.put(ledger, number, *place)
            self.model.entries[ledger, number] = place
            self._offset += 16 + place.length + rng.choice((0, 0, 100))
        if rng.random() < 0.2:
            self._segment, self._offset = self._segment + 1, 64

    def change_ledger(self) -> None:
        ledger, rng = self._rng.choice(LEDGERS), self._rng
        action = rng.random()
        if action < 0.3:
            self.index.apply(forget_record(ledger))
            self.model.states.pop(ledger, None)
            self.model.lacs.pop(ledger, None)
            for key in [key for key in self.model.entries if key[0] == ledger]:
                del self.model.entries[key]
        elif action < 0.6:
            packet = lac_of(ledger, rng.randrange(20))
            self.index.apply(packet)
            old = self.model.lacs.get(ledger, b"")
            self.model.lacs[ledger] = max(old, bytes(packet.body))
        else:
            state = LedgerRecord(rng.choice((None, b"k")), rng.random() < 0.5, rng.random() < 0.5)
            self.index.apply(ledger_record(ledger, state))
            old_state = self.model.states.get(ledger, LedgerRecord())
            key = old_state.master_key if state.master_key is None else state.master_key
            self.model.states[ledger] = LedgerRecord(
                key, state.fenced or old_state.fenced, state.limbo
            )


def lac_of(ledger: int, lac: int) -> Record:
    return lac_record(LAC_PACKET.pack(ledger, lac) + b"digest")


def put_run(index: LedgerIndex, ledger: int, first: int, count: int, segment: int = 1) -> None:
    for number in range(first, first + count):
        index.finder.active.put(ledger, number, segment, 64 + number * 56, 40)


def spans(store: MemoryStore) -> list[tuple[int, int, int]]:
    found = []
    for key, value in store.iterate(b"R", b"S"):
        run = Extent(int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big"), value)
        found.append((run.ledger, run.first, run.last))
    return found


@given(st.integers(0, 1 << 32))
def test_the_newest_counts_in_whatever_layer_it_is(seed: int) -> None:
    rng = random.Random(seed)
    store = MemoryStore()
    index = LedgerIndex(store)
    life = Life(index, rng)
    frozen = written = False
    for _ in range(rng.randint(1, 30)):
        action = rng.random()
        if action < 0.5:
            life.put()
        elif action < 0.7:
            life.change_ledger()
        elif not frozen:
            index.freeze()
            frozen = True
        elif action < 0.85:
            index.write_frozen()
            written = True
        elif written:
            index.drop_frozen()
            frozen = written = False
        if rng.random() < 0.5:
            life.model.check(index)
    life.model.check(index)
    if frozen:
        index.write_frozen()
        index.drop_frozen()
    index.flush()
    life.model.check(index)
    life.model.check(LedgerIndex(store))
    found = spans(store)
    for (ledger, _, last), (next_ledger, first, _) in itertools.pairwise(found):
        assert (ledger, last) < (next_ledger, first)


class FailingStore(MemoryStore):
    """Fails the write that is ordered."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 1 << 30

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        if self.left == 0:
            raise DiskFailedError("no")
        self.left -= 1
        super().write(changes)


@given(st.integers(0, 1 << 32), st.integers(0, 6))
def test_a_flush_that_fails_halfway_can_be_done_again(seed: int, left: int) -> None:
    rng = random.Random(seed)
    store = FailingStore()
    index = LedgerIndex(store)
    life = Life(index, rng)
    for _ in range(2):
        for _ in range(8):
            life.put()
            life.change_ledger()
        index.freeze()
        life.put()
        store.left = left
        try:
            index.write_frozen()
        except DiskFailedError:
            life.model.check(index)
            life.put()
        store.left = 1 << 30
        life.model.check(index)
        index.write_frozen()
        index.drop_frozen()
        life.model.check(index)


def test_it_is_read_while_another_thread_stores(tmp_path: Path) -> None:
    index = LedgerIndex(LevelStore(tmp_path / "index", create=True))
    rng = random.Random(1)
    life = Life(index, rng)
    for _ in range(12):
        for _ in range(10):
            life.put()
            life.change_ledger()
        index.freeze()
        thread = threading.Thread(target=index.write_frozen)
        thread.start()
        for _ in range(4):
            life.put()
            life.model.check(index)
        thread.join()
        index.drop_frozen()
        life.model.check(index)
    index.close()


def test_a_flush_pauses_between_the_extents_of_one_ledger() -> None:
    index = LedgerIndex(MemoryStore())
    extents = 20
    for entry in range(extents * EXTENT_ENTRIES_MAX):
        index.finder.active.put(1, entry, 1, 64 + 100 * entry, 84)
    index.freeze()
    pauses: list[int] = []
    index.write_frozen(pause=lambda: pauses.append(1))
    index.drop_frozen()
    assert len(pauses) >= extents
    assert index.entries(1) == [(0, extents * EXTENT_ENTRIES_MAX - 1)]


def test_steps_out_of_order() -> None:
    index = LedgerIndex(MemoryStore())
    with pytest.raises(BugError):
        index.write_frozen()
    index.freeze()
    with pytest.raises(BugError):
        index.freeze()
    with pytest.raises(BugError):
        index.drop_frozen()


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.puts = self.reads = 0

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.puts += len(changes)
        super().write(changes)


@pytest.mark.parametrize(("ledgers", "keys_per_thousand"), [(16, 2), (1_000, 21)])
def test_index_keys_per_thousand_entries(ledgers: int, keys_per_thousand: int) -> None:
    """Frames of many ledgers come mixed; a checkpoint every 50,000 entries."""
    store = CountingStore()
    index = LedgerIndex(store)
    total, offset = 150_000, 64
    for number in range(total):
        index.finder.active.put(number % ledgers, number // ledgers, 1, offset, 100)
        offset += 116
        if number % 50_000 == 49_999:
            index.flush()
    assert len(spans(store)) == store.puts <= total / 1_000 * keys_per_thousand
    size = sum(len(key) + len(value) for key, value in store.iterate(b"", b"\xff"))
    assert size <= 6 * total
    assert index.entries(3) == [(0, total // ledgers - 1)]


def test_an_index_of_an_older_version_asks_to_be_rebuilt() -> None:
    store = MemoryStore()
    store.write({b"R" + bytes(16): b"\x01" + bytes(16)})
    with pytest.raises(DamagedError, match="index"):
        LedgerIndex(store)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"R" + bytes(16), b"\x02" + bytes(3)),
        (b"R" + bytes(15), b"\x02" + bytes(19)),
        (b"L" + bytes(8), b"\x07\x00"),
        (b"X" + bytes(8), b"\x01\x00"),
    ],
)
def test_a_value_that_cannot_be_decoded_asks_for_a_rebuild(key: bytes, value: bytes) -> None:
    store = MemoryStore()
    index = LedgerIndex(store)
    store.write({key: value})
    with pytest.raises(DamagedError, match="index"):
        index.explicit_lac(0)
        index.ledger_state(0)
        index.find(0, 0)


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


def test_an_iteration_never_ends_early_where_a_table_cannot_be_read(tmp_path: Path) -> None:
    """A bit is wrong in each part of the only table in turn: the whole list, or an error."""
    path = tmp_path / "index"
    store = LevelStore(path, create=True)
    pairs = {b"L%04d" % number: b"%04d" % number * 20 for number in range(200)}
    store.write(pairs)
    store.flush()
    store.close()
    table = max(path.glob("*.ldb"), key=lambda each: each.stat().st_size)
    whole = table.read_bytes()
    errors = 0
    for at in range(0, len(whole), 211):
        LevelStore(path).close()  # whole: what was refused is put right
        table.write_bytes(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
        for reverse in (False, True):
            with suppress(DamagedError), closing(LevelStore(path)) as store:
                errors += 1
                found = list(store.iterate(b"L", b"M", reverse=reverse))
                errors -= 1
                assert dict(found) == pairs
        table.write_bytes(whole)
    assert errors


def test_a_missing_or_broken_index_says_how_to_rebuild_it(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="index"):
        LevelStore(tmp_path / "index")
    store = LevelStore(tmp_path / "index", create=True)
    store.close()
    (tmp_path / "index" / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(DamagedError, match="index"):
        LevelStore(tmp_path / "index")


def test_a_fence_is_one_way_and_a_key_is_not_forgotten() -> None:
    index = LedgerIndex(MemoryStore())
    index.apply(ledger_record(1, LedgerRecord(fenced=True, limbo=True)))
    assert index.ledger_state(1) == LedgerRecord(None, True, True)
    index.flush()
    index.apply(ledger_record(1, LedgerRecord(b"key")))
    index.apply(ledger_record(1, LedgerRecord(None)))
    assert index.ledger_state(1) == LedgerRecord(b"key", True, False)
    index.apply(ledger_record(1, LedgerRecord(b"")))
    index.apply(ledger_record(2, LedgerRecord(b"")))
    assert list(index.ledgers()) == [
        (1, LedgerRecord(b"", True, False)),
        (2, LedgerRecord(b"", False, False)),
    ]


def test_forgetting_voids_what_came_before_and_not_what_follows() -> None:
    index = LedgerIndex(MemoryStore())
    put_run(index, 1, 0, 5)
    index.apply(ledger_record(1, LedgerRecord(b"k", fenced=True)))
    index.flush()
    index.apply(forget_record(1))
    put_run(index, 1, 2, 1, segment=2)
    for _ in range(2):
        assert index.entries(1) == [(2, 2)]
        assert index.last_entry_id(1) == 2
        assert index.find(1, 3) is None
        assert index.ledger_state(1) is None
        index.flush()


def test_dropping_takes_out_single_entries() -> None:
    index = LedgerIndex(MemoryStore())
    put_run(index, 1, 0, 5)
    put_run(index, 2, 0, 3, segment=2)
    index.flush()
    gone = index.find(1, 2)
    newer = index.find(1, 3)
    assert gone is not None
    assert newer is not None
    put_run(index, 1, 3, 1, segment=3)
    changes, count = index.find_lost(
        lambda segment, start, end: segment == 1 and start < newer.offset + 1 and gone.offset < end
    )
    assert count == 1, "of entry 3 something newer is known"
    assert index.entries(1) == [(0, 4)]
    index.drop(changes)
    assert index.entries(1) == [(0, 1), (3, 4)]
    assert index.find(1, 2) is None
    assert index.find(1, 4) is not None
    assert index.entries(2) == [(0, 2)]
