"""What a start makes of segments that were left for the next one and had not reached the disk, or not all of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.rebuild import rebuild_index
from bkbox.storage.disk.replay import ReplayReport
from bkbox.storage.index import index as index_module
from bkbox.storage.log.records import AckAfter, LedgerRecord, ledger_record
from tests.harness.faultyfiles import CrashableFiles, CrashableStore
from tests.storage.bench import KEY, Disk, entry, entry_bytes, put

SEGMENT_BYTES = 1_000
PAYLOAD = bytes(100)
LARGE = b"x" * 1_500
RECORD_BYTES = 16 + 32 + len(PAYLOAD)
SEAL_BYTES = 24


def start(
    disk: Disk, mode: AckAfter = AckAfter.WRITE, *, host_crash: bool = False
) -> tuple[DiskStore, ReplayReport]:
    store = disk.open(mode, segment_bytes_max=SEGMENT_BYTES)
    return store, store.replay(host_crash)


def entries_of(store: DiskStore) -> list[int]:
    """All that are there, each read."""
    found = [n for first, last in store.entries(1) for n in range(first, last + 1)]
    for number in found:
        assert store.read_entry(1, number) == entry_bytes(1, number, PAYLOAD)
    return found


@pytest.fixture
def disk(ram_path: Path) -> Disk:
    """Ledger 1 with 20 entries in several segments, of which nothing was synced but the ledger; the process is gone."""
    disk = Disk(ram_path)
    store, _report = start(disk)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    for number in range(20):
        put(store, entry(1, number, PAYLOAD))
    assert len(store.log.segments()) >= 4
    store.abandon()
    return disk


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def sync_later(disk: Disk) -> None:
    """Another run that goes on where the last one was, syncs, and says so in the log."""
    store, _report = start(disk, AckAfter.SYNC)
    for number in range(20, 22):
        put(store, entry(1, number, PAYLOAD))
    store.abandon()


@pytest.mark.parametrize("lost_bytes", [1, SEAL_BYTES, SEAL_BYTES + 10, 2 * RECORD_BYTES + 7])
def test_a_lost_host_may_cut_the_end_of_a_segment_that_has_successors(
    disk: Disk, lost_bytes: int
) -> None:
    path = disk.segment(2)
    last_of_two = int.from_bytes(path.read_bytes()[80:96][8:], "big")  # the first entry in it
    cut(path, path.stat().st_size - lost_bytes)
    saved = (disk.path / "CHECKPOINT").read_bytes()
    store, report = start(disk, AckAfter.SYNC, host_crash=True)
    assert report.damaged == ()
    first = entries_of(store)
    assert set(range(20)) - set(first) <= set(range(last_of_two, last_of_two + 7))
    put(store, entry(1, 30, PAYLOAD))
    store.sync()
    put(store, entry(1, 31, PAYLOAD))
    store.abandon()
    (disk.path / "CHECKPOINT").write_bytes(saved)
    store, report = start(disk, AckAfter.SYNC, host_crash=True)
    assert report.damaged == (), (
        "it was sealed, so that what comes after it may say that it is whole"
    )
    assert entries_of(store) == [*first, 30, 31]
    store.close()
    rebuilt = rebuild_index(disk.files, disk.path, keep_going=False, progress=lambda d, t: None)
    assert rebuilt.unreadable == ()


def test_a_hole_in_a_segment_that_has_successors_is_noted(ram_path: Path) -> None:
    disk = Disk(ram_path)
    store, _report = start(disk)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    for number in range(4):
        put(store, entry(1, number, LARGE))
    store.abandon()
    disk.unwrite_sector(400, 2, zeros=True)
    saved = (disk.path / "CHECKPOINT").read_bytes()
    found = []
    for _ in range(2):
        (disk.path / "CHECKPOINT").write_bytes(saved)
        store, report = start(disk, AckAfter.SYNC, host_crash=True)
        assert report.damaged == ()
        found.append(store.entries(1))
        put(store, entry(1, 4, PAYLOAD))
        store.sync()
        store.abandon()
    assert found == [[(1, 3)], [(1, 4)]], (
        "the first entry is gone for good, and the last one is not"
    )


def test_a_wrong_record_of_which_every_sector_was_written_is_lost(disk: Disk) -> None:
    """What a lost host leaves of a write is whole sectors; this is something else."""
    flip(disk.segment(2), 64 + RECORD_BYTES + 20)
    for _ in range(2):
        store, report = start(disk, AckAfter.SYNC, host_crash=True)
        assert f"{disk.segment(2)} bytes 212 to 360" in report.damaged[0]
        assert not report.intact
        store.abandon()


@pytest.mark.parametrize("lost_bytes", [1, SEAL_BYTES, RECORD_BYTES])
def test_after_a_sync_a_segment_that_ends_too_early_has_lost_something(
    disk: Disk, lost_bytes: int
) -> None:
    sync_later(disk)
    (disk.path / "CHECKPOINT").unlink()
    cut(disk.segment(2), disk.segment(2).stat().st_size - lost_bytes)
    for host_crash in (True, False):
        store, report = start(disk, AckAfter.SYNC, host_crash=host_crash)
        assert str(disk.segment(2)) in report.damaged[0] or not host_crash
        assert not report.trusted
        store.abandon()


@pytest.mark.parametrize("lost_bytes", [1, SEAL_BYTES, RECORD_BYTES])
def test_a_process_crash_cuts_no_segment_that_has_successors(disk: Disk, lost_bytes: int) -> None:
    cut(disk.segment(2), disk.segment(2).stat().st_size - lost_bytes)
    store, report = start(disk)
    assert str(disk.segment(2)) in report.damaged[0]
    store.abandon()


@pytest.mark.parametrize("header", [0, 10, 64])
@pytest.mark.parametrize("torn", [0, 20])
def test_segments_that_were_made_ahead_hold_nothing(disk: Disk, header: int, torn: int) -> None:
    """A kill may cut the last record though the next segment is there already."""
    store, report = start(disk, AckAfter.SYNC)
    numbers = entries_of(store)
    put(store, entry(1, 20, PAYLOAD))
    store.abandon()
    used = max(n for n in store.log.segments() if disk.end_of_segment(n) > 64)
    if torn:
        cut(disk.segment(used), disk.end_of_segment(used) - torn)
    other = Path(disk.segment(1)).read_bytes()[:header]
    disk.segment(used + 1).write_bytes(other)
    store, report = start(disk, AckAfter.SYNC)
    assert report.damaged == ()
    assert entries_of(store) == (numbers if torn else [*numbers, 20])
    put(store, entry(1, 21, PAYLOAD))
    assert store.read_entry(1, 21) == entry_bytes(1, 21, PAYLOAD)
    store.close()


@pytest.mark.parametrize("seed", range(8))
def test_what_a_start_found_after_a_process_crash_is_durable(ram_path: Path, seed: int) -> None:
    """Also in the segments that the process had left without syncing them."""
    files = CrashableFiles(ram_path, random.Random(seed))
    disk = Disk(ram_path, files)
    index = CrashableStore()
    store = disk.open(AckAfter.WRITE, segment_bytes_max=SEGMENT_BYTES, open_index=lambda *_: index)
    store.replay(False)
    for number in range(20):
        put(store, entry(1, number, PAYLOAD))
    files.stop()
    store.abandon()
    files = files.next_process()
    store = disk.open(AckAfter.SYNC, open_index=lambda *_: index, files=files)
    assert store.replay(False).trusted
    files = files.lose_host()
    store.abandon()
    store = disk.open(AckAfter.SYNC, open_index=lambda *_: CrashableStore(), files=files)
    (disk.path / "CHECKPOINT").unlink(missing_ok=True)
    report = store.replay(True)
    assert report.damaged == ()
    assert entries_of(store) == list(range(20))
    store.close()


@pytest.mark.parametrize("host_crash", [False, True])
def test_a_log_longer_than_the_index_has_memory_for_is_stored_meanwhile(
    disk: Disk, host_crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "INDEX_MEMORY_BYTES", 400)
    monkeypatch.setattr("bkbox.storage.log.segment._CHUNK_BYTES", 300)
    store, report = start(disk, AckAfter.SYNC, host_crash=host_crash)
    assert report.damaged == ()
    assert report.trusted
    assert entries_of(store) == list(range(20))
    assert store.ledger_state(1) == LedgerRecord(KEY)
    store.close()
