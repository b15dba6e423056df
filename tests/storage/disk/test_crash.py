"""What was committed survives: seeded crashes of process and host, at any call, again and again on the same disk."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bkbox.storage.disk import dirty_marker
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.replay import UNRESOLVED_LOSS, ReplayReport
from bkbox.storage.files import Files
from bkbox.storage.index.ordered_store import LevelStore, OrderedStore, discard_unsynced
from bkbox.storage.log.records import (
    LAC_PACKET,
    STATE_KINDS,
    AckAfter,
    Kind,
    LedgerRecord,
    Record,
    decode_ledger,
    decode_ledger_id,
    forget_record,
    lac_of,
    lac_record,
    ledger_record,
)
from tests.harness.faultyfiles import Crash, CrashableFiles, CrashableStore
from tests.storage.bench import Disk, defer, entry, put

LEDGERS = (1, 2, 3)
ENTRIES = 30
SEEDS_PER_MODE = 70
STARTS = 5


@dataclass
class Model:
    """What was committed, and what was being committed when the crash came."""

    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    states: dict[int, LedgerRecord] = field(default_factory=dict)
    lacs: dict[int, int] = field(default_factory=dict)
    in_flight: list[Record] = field(default_factory=list)
    unsynced: dict[tuple[int, int], set[bytes | None]] = field(default_factory=dict)
    """What a lost host may leave instead of an entry, after deferred commits of it."""

    def commit(self, *, deferred: bool) -> None:
        if not deferred or any(kind in STATE_KINDS for kind, _ in self.in_flight):
            self.unsynced.clear()
            deferred = False
        for kind, body in self.in_flight:
            ledger = decode_ledger_id(body)
            if kind is Kind.ENTRY:
                key = ledger, int.from_bytes(body[8:16], "big")
                if deferred:
                    self.unsynced.setdefault(key, set()).add(self.entries.get(key))
                self.entries[key] = bytes(body)
            elif kind is Kind.LAC:
                self.lacs[ledger] = max(lac_of(body), self.lacs.get(ledger, -1))
            elif kind is Kind.LEDGER:
                state = decode_ledger(body)[1]
                old = self.states.get(ledger, LedgerRecord())
                key = state.master_key if state.master_key is not None else old.master_key
                self.states[ledger] = LedgerRecord(key, state.fenced or old.fenced, state.limbo)
            else:
                self.states.pop(ledger, None)
                self.lacs.pop(ledger, None)
                for number in range(ENTRIES):
                    self.entries.pop((ledger, number), None)
        self.in_flight = []

    def check(self, store: DiskStore, *, host_crash: bool, may_miss_entries: bool) -> None:
        forgotten = {decode_ledger_id(b) for kind, b in self.in_flight if kind is Kind.FORGET}
        for ledger in LEDGERS:
            for number in range(ENTRIES):
                allowed = {
                    bytes(body)
                    for kind, body in self.in_flight
                    if kind is Kind.ENTRY and body[:16] == entry(ledger, number).body[:16]
                }
                committed = self.entries.get((ledger, number))
                found = store.read_entry(ledger, number)  # and never an error
                if may_miss_entries:
                    continue
                instead = self.unsynced.get((ledger, number), set()) if host_crash else set()
                if found is None:
                    assert committed is None or None in instead or ledger in forgotten
                else:
                    assert found == committed or found in allowed or found in instead
            self._check_lac(ledger, store.explicit_lac(ledger), ledger in forgotten)
            self._check_state(ledger, store.ledger_state(ledger), ledger in forgotten)

    def _check_lac(self, ledger: int, packet: bytes | None, forgotten: bool) -> None:
        committed = self.lacs.get(ledger)
        flying = {
            lac_of(body)
            for kind, body in self.in_flight
            if kind is Kind.LAC and decode_ledger_id(body) == ledger
        }
        if packet is None:
            assert committed is None or forgotten
        else:
            assert packet == packet_of(ledger, lac_of(packet))
            assert lac_of(packet) in flying | {committed}
            assert committed is None or forgotten or lac_of(packet) >= committed

    def _check_state(self, ledger: int, found: LedgerRecord | None, forgotten: bool) -> None:
        committed = self.states.get(ledger)
        flying = [
            decode_ledger(body)[1]
            for kind, body in self.in_flight
            if kind is Kind.LEDGER and decode_ledger_id(body) == ledger
        ]
        if found is None:
            assert committed is None or forgotten
            return
        candidates = flying if committed is None else [*flying, committed]
        assert candidates
        if committed is not None and not forgotten:
            assert found.fenced >= committed.fenced
            assert found.master_key is not None or committed.master_key is None
        assert found.limbo in {state.limbo for state in candidates}

    def accept(self, store: DiskStore) -> None:
        """From here on, what is there is what has to be there."""
        self.in_flight = []
        self.unsynced.clear()
        self.states = dict(store.ledgers())
        self.lacs = {
            ledger: lac_of(packet)
            for ledger in LEDGERS
            if (packet := store.explicit_lac(ledger)) is not None
        }
        self.entries = {
            (ledger, number): found
            for ledger in LEDGERS
            for number in range(ENTRIES)
            if (found := store.read_entry(ledger, number)) is not None
        }


def packet_of(ledger: int, lac: int) -> bytes:
    return LAC_PACKET.pack(ledger, lac) + b"digest of %d" % lac


def random_batch(rng: random.Random) -> list[Record]:
    batch: list[Record] = []
    for _ in range(rng.choice((1, 1, 2, 4))):
        ledger = rng.choice(LEDGERS)
        action = rng.random()
        if action < 0.15:
            key = rng.choice((None, b"k" * 20))
            state = LedgerRecord(key, rng.random() < 0.3, rng.random() < 0.5)
            batch.append(ledger_record(ledger, state))
        elif action < 0.19:
            return batch or [forget_record(ledger)]
        elif action < 0.24:
            batch.append(lac_record(packet_of(ledger, rng.randrange(-1, 50))))
        else:
            first = rng.randrange(ENTRIES)
            last = min(ENTRIES, first + rng.choice((1, 1, 3, 8)))
            batch += [
                entry(ledger, n, rng.randbytes(rng.choice((0, 10, 300, 900))))
                for n in range(first, last)
            ]
    return batch


def work(store: DiskStore, model: Model, rng: random.Random) -> None:
    for _ in range(rng.randint(5, 40)):
        model.in_flight = random_batch(rng)
        deferred = rng.random() < 0.4
        (defer if deferred else put)(store, *model.in_flight)
        model.commit(deferred=deferred)
        model.check(store, host_crash=False, may_miss_entries=False)
        if rng.random() < 0.1:
            store.checkpoint()
            model.unsynced.clear()
        elif rng.random() < 0.1:
            store.sync()
            model.unsynced.clear()


class MemoryIndex:
    """The index of a disk over its crashes, in memory."""

    def __init__(self) -> None:
        self._store = CrashableStore()

    def open(self, files: Files, disk: Path, host_crash: bool) -> OrderedStore:
        return self._store

    def lose_host(self, rng: random.Random) -> None:
        self._store = self._store.lose_host(rng)


class SnapshotStore(LevelStore):
    """LevelDB that keeps a copy of its folder as of the last flush: what a lost host leaves at least."""

    def __init__(self, path: Path) -> None:
        self._folder = path
        super().__init__(path)

    def flush(self) -> None:
        super().flush()
        copy = self._folder.with_name("flushed")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._folder, copy)


class LevelIndex:
    """The index of a disk over its crashes, in LevelDB."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "index"
        shutil.copytree(self._path, disk / "flushed")

    def open(self, files: Files, disk: Path, host_crash: bool) -> OrderedStore:
        if host_crash:
            discard_unsynced(files, self._path)
        return SnapshotStore(self._path)

    def lose_host(self, rng: random.Random) -> None:
        flushed = self._path.with_name("flushed")
        if rng.random() < 0.5:
            shutil.rmtree(self._path)
            shutil.copytree(flushed, self._path)
        for log in sorted(self._path.glob("*.log")):
            data, copy = log.read_bytes(), flushed / log.name
            synced = copy.stat().st_size if copy.exists() else 0
            if len(data) > synced:
                log.write_bytes(data[: (synced + len(data)) // 2] + rng.randbytes(100))


def live_through_crashes(
    folder: Path, seed: int, mode: AckAfter, make_index: type[MemoryIndex] | type[LevelIndex]
) -> None:
    rng = random.Random(seed)
    files = CrashableFiles(folder, rng)
    disk = Disk(folder, files, level=make_index is LevelIndex)
    files.mkdir(disk.journal_dir)
    index = MemoryIndex() if make_index is MemoryIndex else LevelIndex(disk.path)
    model = Model()
    boot = 1
    for start in range(STARTS):
        run = dirty_marker.Incarnation(f"boot {boot}", mode, f"run {start}")
        last = start == STARTS - 1
        if not last:
            files.crash_at(rng.choice((rng.randint(1, 30), rng.randint(1, 150))))
        store: DiskStore | None = None
        try:
            before = dirty_marker.begin_run(files, disk.path, run)
            store = disk.open(mode, segment_bytes_max=6_000, open_index=index.open, files=files)
            host_crash = before is not None and before.is_host_crash(run.boot_id)
            report = store.replay(host_crash)
            check_report(report, mode, host_crash)
            lost = host_crash and mode is AckAfter.WRITE
            model.check(store, host_crash=host_crash, may_miss_entries=lost)
            model.accept(store)
            if not report.trusted:
                store.checkpoint()
            dirty_marker.commit(files, disk.path, run, before)
            if last:
                break
            work(store, model, rng)
            store.close()
            assert dirty_marker.clear(files, disk.path, run)
        except Crash:
            pass
        files.stop()
        if store is not None:
            store.abandon()
        if rng.random() < 0.6:
            boot += 1
            files = files.lose_host()
            index.lose_host(rng)
        else:
            files = files.next_process()
    assert store is not None
    store.close()


def check_report(report: ReplayReport, mode: AckAfter, host_crash: bool) -> None:
    assert report.damaged == () or (mode is AckAfter.WRITE and report.damaged == (UNRESOLVED_LOSS,))
    assert report.trusted == (mode is not AckAfter.WRITE or not host_crash)


@pytest.mark.parametrize("mode", list(AckAfter))
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 7))]
)
def test_committed_survives_any_crash(ram_path: Path, mode: AckAfter, part: int) -> None:
    for seed in range(part, SEEDS_PER_MODE, 7):
        live_through_crashes(ram_path / str(seed), seed, mode, MemoryIndex)


@pytest.mark.parametrize("mode", list(AckAfter))
@pytest.mark.parametrize("seeds", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_the_same_with_an_index_that_is_stored_while_a_start_replays(
    ram_path: Path, mode: AckAfter, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bkbox.storage.index.index.INDEX_MEMORY_BYTES", 1_500)
    monkeypatch.setattr("bkbox.storage.log.segment._CHUNK_BYTES", 700)
    for seed in (*range(2_000, 2_000 + seeds), 2_022):
        live_through_crashes(ram_path / str(seed), seed, mode, MemoryIndex)


@pytest.mark.parametrize("mode", list(AckAfter))
def test_the_same_with_leveldb(ram_path: Path, mode: AckAfter) -> None:
    for seed in range(6):
        live_through_crashes(ram_path / str(seed), 1_000 + seed, mode, LevelIndex)
