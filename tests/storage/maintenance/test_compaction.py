"""Segments are emptied and removed, and nothing that counts goes with them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from bkbox.errors import DamagedError
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.rebuild import rebuild_index
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import (
    LAC_PACKET,
    AckAfter,
    LedgerRecord,
    Record,
    lac_record,
    ledger_record,
)
from bkbox.storage.maintenance.compaction import Compaction, remove_segment
from bkbox.storage.maintenance.index_scan import IndexScan
from tests.storage.bench import KEY, Disk, entry, entry_bytes, put
from tests.storage.maintenance.compacting import compact, copy_out, look_through, reindexed

OPEN = LedgerRecord(KEY)
FENCED = LedgerRecord(KEY, fenced=True)
LIMBO = LedgerRecord(KEY, fenced=True, limbo=True)
EMPTIED = LedgerRecord(KEY, fenced=True, deleted_ms=5, emptied=True)


@pytest.fixture
def disk(ram_path: Path) -> Disk:
    return Disk(ram_path, RealFiles(), level=True)


def lac(ledger: int, value: int) -> Record:
    return lac_record(LAC_PACKET.pack(ledger, value) + bytes(20))


def restart(disk: Disk, store: DiskStore, *, clean: bool = True) -> DiskStore:
    if clean:
        store.close()
    else:
        store.abandon()
    return disk.start()


def states(store: DiskStore) -> dict[int, LedgerRecord]:
    return dict(store.ledgers())


@pytest.mark.parametrize("mode", list(AckAfter))
def test_what_is_live_is_there_after_its_segment_went(disk: Disk, mode: AckAfter) -> None:
    store = disk.start(mode)
    for ledger in (1, 2, 3):
        put(store, ledger_record(ledger, OPEN), *(entry(ledger, n) for n in range(50)))
    put(store, ledger_record(2, FENCED), lac(3, 7))
    store.log.seal()
    put(store, entry(1, 10, b"newer"))
    store.forget(3)

    assert compact(store, 1) == ""

    assert store.log.segments() == [2]
    for again in range(3):
        for ledger in (1, 2):
            for number in range(50):
                newer = (ledger, number) == (1, 10)
                wanted = entry_bytes(ledger, number, b"newer" if newer else b"payload")
                assert store.read_entry(ledger, number) == wanted
        assert states(store) == {1: OPEN, 2: FENCED}
        assert store.read_entry(3, 0) is None
        if again < 2:
            store = restart(disk, store, clean=not again)
    store.close()
    report = rebuild_index(RealFiles(), disk.path, keep_going=False, progress=lambda *_: None)
    assert (report.ledgers, report.unreadable) == (2, ())
    store = disk.start()
    assert states(store) == {1: OPEN, 2: FENCED}
    assert store.read_entry(1, 10) == entry_bytes(1, 10, b"newer")
    store.close()


def test_an_old_version_that_is_moved_does_not_come_back(disk: Disk) -> None:
    """Segment 1 has the older entry, 2 the newer one: moving 1 after 2 must not put it on top."""
    store = disk.start()
    put(store, ledger_record(1, OPEN), entry(1, 0, b"old"), entry(1, 1))
    store.log.seal()
    put(store, entry(1, 0, b"new"))
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    assert compact(store, 2) == ""
    assert compact(store, 1) == ""
    index = reindexed(store, RealFiles())
    assert index.find(1, 0) == store.index.find(1, 0)
    assert store.read_entry(1, 0) == entry_bytes(1, 0, b"new")
    store = restart(disk, store, clean=False)
    assert store.read_entry(1, 0) == entry_bytes(1, 0, b"new")
    assert store.read_entry(1, 1) == entry_bytes(1, 1)
    store.close()


def test_states_are_what_they_were_also_after_a_rebuild(disk: Disk) -> None:
    store = disk.start()
    for ledger in range(1, 6):
        put(store, ledger_record(ledger, OPEN), entry(ledger, 0))
    put(store, ledger_record(2, LedgerRecord(None, fenced=True)), lac(5, 3))
    store.log.seal()
    put(
        store, ledger_record(3, LIMBO), ledger_record(4, LIMBO), ledger_record(4, FENCED), lac(5, 9)
    )
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    for segment in (1, 2):
        wanted = states(store)
        assert wanted[2] == FENCED
        assert wanted[3] == LIMBO
        assert compact(store, segment) == ""
        index = reindexed(store, RealFiles())
        assert dict(index.ledgers()) == wanted == states(store)
        assert index.explicit_lac(5) == store.explicit_lac(5) == bytes(lac(5, 9).body)
    store.close()


def test_what_was_forgotten_stays_forgotten(disk: Disk) -> None:
    """The FORGET is needed as long as an older segment has something of the ledger, and no longer."""
    store = disk.start()
    put(store, ledger_record(1, FENCED), entry(1, 0), ledger_record(2, OPEN), entry(2, 0))
    store.log.seal()
    store.forget(1)
    put(store, ledger_record(7, OPEN))
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    assert compact(store, 2) == ""
    assert store.log.segments() == [1, 3]
    assert reindexed(store, RealFiles()).ledger_state(1) is None
    assert reindexed(store, RealFiles()).find(1, 0) is None
    store.log.seal()
    put(store, ledger_record(10, OPEN))
    assert compact(store, 1) == ""
    assert 1 in (store.log.ledgers_of(3) or {})
    assert compact(store, 3) == ""
    store.log.seal()
    assert 1 not in (store.log.ledgers_of(4) or {1: (0, 0)})  # nothing older is left to be voided
    assert reindexed(store, RealFiles()).ledger_state(1) is None
    store.close()


def test_a_ledger_that_came_back_is_not_voided_and_what_it_was_does_not_come_back(
    disk: Disk,
) -> None:
    store = disk.start()
    put(
        store,
        ledger_record(1, FENCED),
        entry(1, 0, b"before"),
        entry(1, 5),
        ledger_record(8, OPEN),
        entry(8, 0),
    )
    store.log.seal()
    store.forget(1)
    put(store, ledger_record(1, OPEN), entry(1, 0, b"after"))
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    why = compact(store, 2)
    assert "ledger 1" in why
    for _ in range(2):
        assert reindexed(store, RealFiles()).ledger_state(1) == OPEN
        assert reindexed(store, RealFiles()).find(1, 5) is None
        assert store.read_entry(1, 0) == entry_bytes(1, 0, b"after")
        assert store.read_entry(1, 5) is None
        store = restart(disk, store)
    assert compact(store, 1) == ""
    assert compact(store, 2) == ""
    assert reindexed(store, RealFiles()).ledger_state(1) == OPEN
    assert reindexed(store, RealFiles()).find(1, 5) is None
    store.close()


def test_a_ledger_that_comes_back_while_its_end_is_carried_on(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, FENCED), entry(1, 0))
    store.log.seal()
    store.forget(1)
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    compaction = Compaction(store, store.ledger_state, 2)
    compaction.step()
    compaction.step()  # the ledger is unknown
    put(store, ledger_record(1, OPEN), entry(1, 3))
    while compaction.needs is None:
        compaction.step()
    assert compaction.kept
    assert reindexed(store, RealFiles()).find(1, 3) is not None
    assert reindexed(store, RealFiles()).ledger_state(1) == OPEN
    store.close()


def test_an_emptied_ledger_stays_fenced_and_empty(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), entry(1, 0))
    store.log.seal()
    put(store, ledger_record(1, EMPTIED))
    assert store.read_entry(1, 0) is None
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    for segment in (2, 1):
        assert compact(store, segment) == ""
        index = reindexed(store, RealFiles())
        assert index.ledger_state(1) == EMPTIED
        assert index.find(1, 0) is None
        store = restart(disk, store, clean=False)
        assert store.ledger_state(1) == EMPTIED
    store.close()


def test_a_newer_state_that_nobody_has_seen_yet_is_not_undone(disk: Disk) -> None:
    """A state that was appended, and waits for its sync, is newer than what is moved behind it."""
    store = disk.start()
    put(store, ledger_record(1, LIMBO), entry(1, 0))
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    newer = ledger_record(1, FENCED)
    store.append([newer])
    store.index_appended()
    compaction = Compaction(
        store, lambda ledger: FENCED if ledger == 1 else store.ledger_state(ledger), 1
    )
    while compaction.needs is None:
        compaction.step()
    store.sync()
    store.show(newer)
    assert reindexed(store, RealFiles()).ledger_state(1) == FENCED
    store.close()


def test_a_segment_goes_only_when_the_copies_are_stored(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), entry(1, 0))
    store.log.seal()
    put(store, entry(1, 1))
    half = Compaction(store, store.ledger_state, 1)
    assert "copied" in remove_segment(store, half, look_through(store))
    store.checkpoint()
    early = look_through(store)
    compaction = copy_out(store, 1)
    assert "looked through" in remove_segment(store, compaction, early)
    assert "looked through" in remove_segment(store, compaction, look_through(store))
    store.checkpoint()
    assert "looked through" in remove_segment(store, compaction, early)
    # not one with entries in it, whoever says that all was copied
    put(store, entry(1, 2))
    store.log.seal()
    put(store, entry(1, 3))
    store.checkpoint()
    compaction.segment = 2
    assert "entries lie in it" in remove_segment(store, compaction, look_through(store))
    current = copy_out(store, 1)
    current.segment = store.log.position.segment
    store.checkpoint()
    assert "written to" in remove_segment(store, current, look_through(store))
    compaction.segment = 1
    assert remove_segment(store, compaction, look_through(store)) == ""
    assert store.read_entry(1, 0) == entry_bytes(1, 0)
    store.close()


def test_a_half_done_compaction_is_done_again(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), *(entry(1, n) for n in range(3_000)))
    store.log.seal()
    put(store, entry(1, 3_000))
    compaction = Compaction(store, store.ledger_state, 1)
    compaction.step()
    store = restart(disk, store, clean=False)
    assert [store.read_entry(1, n) for n in range(3_001)] == [
        entry_bytes(1, n) for n in range(3_001)
    ]
    assert compact(store, 1) == ""
    store = restart(disk, store, clean=False)
    assert [store.read_entry(1, n) for n in range(3_001)] == [
        entry_bytes(1, n) for n in range(3_001)
    ]
    store.close()


def test_a_damaged_segment_stays_until_its_entries_are_refilled(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), *(entry(1, n) for n in range(10)))
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    store.checkpoint()
    path = store.log.path_of(1)
    data = bytearray(path.read_bytes())
    data[data.index(entry_bytes(1, 4)) + 35] ^= 1
    path.write_bytes(data)
    compaction = copy_out(store, 1)
    store.checkpoint()
    [region] = compaction.bad
    assert "1 entry lies in it" in remove_segment(store, compaction, look_through(store))
    with pytest.raises(DamagedError):
        store.read_entry(1, 4)
    survey = IndexScan(store, {1: [region]})
    assert survey.step() == [(1, 4)]
    put(store, entry(1, 4))
    assert compact(store, 1) == ""
    store = restart(disk, store)
    assert [store.read_entry(1, n) for n in range(10)] == [entry_bytes(1, n) for n in range(10)]
    assert states(store) == {1: OPEN, 9: OPEN}
    store.close()


def test_without_its_footers_a_segment_is_left_alone(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), entry(1, 0))
    store.log.seal()
    put(store, ledger_record(9, OPEN))
    store.checkpoint()
    path = store.log.path_of(1)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedError, match="footers"):
        Compaction(store, store.ledger_state, 1)
    store.close()


def test_a_start_removes_what_was_to_be_removed_and_never_uses_an_id_again(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), entry(1, 0))
    store.log.seal()
    put(store, entry(1, 1))
    path = store.log.path_of(1)
    data = path.read_bytes()
    assert compact(store, 1) == ""
    path.write_bytes(data)  # as if the removal had not come to its end
    store = restart(disk, store, clean=False)
    assert not path.exists()
    store.close()
    (disk.path / "CHECKPOINT").unlink()
    store = disk.open()
    report = store.replay(False)
    assert report.damaged == ()
    assert store.log.position.segment >= 2
    assert store.read_entry(1, 0) == entry_bytes(1, 0)
    store.close()


def test_a_reader_of_a_removed_segment_has_let_go_of_it(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), entry(1, 0))
    store.log.seal()
    put(store, entry(1, 1))
    assert store.read_entry(1, 0)
    store.await_read([(1, 64, 16)])
    assert compact(store, 1) == ""
    open_files = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            open_files.append(os.readlink(f"/proc/self/fd/{number}"))
    assert not any("0000000001.log" in name and str(disk.path) in name for name in open_files)
    store.close()


def test_where_all_segments_went_the_next_one_has_a_new_id(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN), entry(1, 0))
    store.forget(1)
    store.log.seal()
    assert compact(store, 1) == ""
    store.abandon()
    (disk.path / "CHECKPOINT").unlink()
    store = disk.start()
    put(store, ledger_record(2, OPEN), entry(2, 0))
    store = restart(disk, store, clean=False)  # which removes what is left of retired segments
    assert store.read_entry(2, 0) == entry_bytes(2, 0)
    store.close()
