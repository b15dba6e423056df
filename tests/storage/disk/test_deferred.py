"""Deferred commits: no sync, served at once, there after a process crash, there or not after a lost host, and durable
after a force."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.errors import DiskFailedError, DiskFullError
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.rebuild import rebuild_index
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import (
    LAC_PACKET,
    AckAfter,
    LedgerRecord,
    Record,
    forget_record,
    lac_record,
    ledger_record,
)
from tests.storage.bench import KEY, Disk, Host, defer, entry, entry_bytes, put

MODES = list(AckAfter)
DURABLE = [AckAfter.SYNC, AckAfter.JOURNAL]
SEEDS = range(12)


def force(store: DiskStore) -> None:
    """As a force does: all that was appended so far is durable."""
    if store.must_sync(entries=False, states=False, force=True):
        store.sync()


def lac(ledger: int, number: int) -> Record:
    return lac_record(LAC_PACKET.pack(ledger, number) + b"digest")


@pytest.mark.parametrize("mode", MODES)
def test_a_deferred_commit_does_not_sync_and_a_force_does_once(
    ram_path: Path, mode: AckAfter
) -> None:
    host = Host(ram_path, mode)
    store, files = host.store, host.files
    syncs = files.syncs
    for number in range(5):
        defer(store, entry(1, number))
        assert store.read_entry(1, number) == entry_bytes(1, number)
    assert store.entries(1) == [(0, 4)]
    assert store.last_entry_id(1) == 4
    assert files.syncs == syncs
    force(store)
    assert files.syncs == syncs + 1
    force(store)
    assert files.syncs == syncs + 1, "there was nothing to sync"
    store.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "state", [ledger_record(2, LedgerRecord(KEY)), forget_record(1), lac(1, 3)]
)
def test_a_state_is_synced_though_its_batch_is_deferred(
    ram_path: Path, mode: AckAfter, state: Record
) -> None:
    host = Host(ram_path, mode)
    syncs = host.files.syncs
    defer(host.store, state, entry(2, 0))
    assert host.files.syncs == syncs + 1
    host.store.close()


@pytest.mark.parametrize("mode", MODES)
def test_what_was_deferred_survives_the_process(ram_path: Path, mode: AckAfter) -> None:
    host = Host(ram_path, mode)
    defer(host.store, entry(1, 0))
    defer(host.store, entry(1, 0, b"again"), entry(1, 1))
    store = host.kill()
    assert host.report.trusted
    assert store.read_entry(1, 0) == entry_bytes(1, 0, b"again")
    assert store.read_entry(1, 1) == entry_bytes(1, 1)
    store = host.lose()  # what a start found is durable
    assert store.entries(1) == [(0, 1)]
    store.close()


@pytest.mark.parametrize("mode", DURABLE)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reached", [True, False])
def test_a_lost_host_gives_up_what_was_deferred_and_nothing_else(
    ram_path: Path, mode: AckAfter, seed: int, reached: bool
) -> None:
    """Whatever is left of it, nothing that was promised is missing, so nothing has to go to limbo."""
    host = Host(ram_path, mode, seed)
    put(host.store, *(entry(1, number) for number in range(10)))
    if seed % 2:
        host.store.checkpoint()
    for number in range(4, 16):
        defer(host.store, entry(1, number, b"new" * 300))
    store = host.lose(index_reached_the_disk=reached)
    assert host.report.trusted
    assert host.report.damaged == ()
    if mode is AckAfter.SYNC:
        assert host.report.dropped_entries == 0
    for number in range(16):
        old = entry_bytes(1, number) if number < 10 else None
        new = entry_bytes(1, number, b"new" * 300) if number >= 4 else old
        assert store.read_entry(1, number) in (old, new)
    store.close()


@pytest.mark.parametrize("mode", DURABLE)
@pytest.mark.parametrize("how", ["force", "ordinary commit", "state", "checkpoint"])
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_lost_host_keeps_what_was_synced_since(
    ram_path: Path, mode: AckAfter, how: str, seed: int
) -> None:
    host = Host(ram_path, mode, seed)
    put(host.store, entry(1, 3, b"old"))
    for number in range(6):
        defer(host.store, entry(1, number))
    if how == "force":
        force(host.store)
    elif how == "ordinary commit":
        put(host.store, entry(2, 0))
    elif how == "state":
        defer(host.store, ledger_record(3, LedgerRecord(KEY)))
    else:
        host.store.checkpoint()
    store = host.lose()
    assert host.report.trusted
    assert store.entries(1) == [(0, 5)]
    assert store.read_entry(1, 3) == entry_bytes(1, 3)
    store.close()


def test_a_force_on_a_disk_that_only_writes_syncs(ram_path: Path) -> None:
    host = Host(ram_path, AckAfter.WRITE)
    put(host.store, entry(1, 0))
    defer(host.store, entry(1, 1))
    force(host.store)
    store = host.lose()
    assert store.entries(1) == [(0, 1)]
    assert not host.report.trusted, "others may be missing, and nobody knows which"


@pytest.mark.parametrize("mode", DURABLE)
def test_a_force_that_fails_ends_the_writing(ram_path: Path, mode: AckAfter) -> None:
    host = Host(ram_path, mode)
    defer(host.store, entry(1, 0))
    host.files.fail_sync(1)
    with pytest.raises(DiskFailedError):
        host.store.sync()
    with pytest.raises(DiskFailedError):
        host.store.sync()
    assert host.store.read_entry(1, 0) == entry_bytes(1, 0)
    host.store.abandon()


# ---- explicit LAC -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_highest_explicit_lac_survives_everything(ram_path: Path, mode: AckAfter) -> None:
    host = Host(ram_path, mode)
    assert host.store.explicit_lac(1) is None
    for number in (3, 9, 4):
        put(host.store, lac(1, number))
    store = host.lose(index_reached_the_disk=False)
    assert store.explicit_lac(1) == lac(1, 9).body
    put(store, lac(1, 8))
    store = host.kill()
    assert store.explicit_lac(1) == lac(1, 9).body
    store.forget(1)
    put(store, lac(1, 2))
    store = host.lose()
    assert store.explicit_lac(1) == lac(1, 2).body
    store.close()


def test_the_journal_brings_an_explicit_lac_back(ram_path: Path) -> None:
    host = Host(ram_path, AckAfter.JOURNAL)
    put(host.store, lac(1, 7))
    host.store.abandon()
    host.disk.segment().unlink()
    host.files = host.files.next_process()
    store = host.open(host_crash=True)
    assert (host.report.trusted, store.explicit_lac(1)) == (True, lac(1, 7).body)
    store.close()


def test_a_rebuild_finds_explicit_lacs(tmp_path: Path) -> None:
    disk = Disk(tmp_path, RealFiles(), level=True)
    store = disk.start()
    put(store, ledger_record(1, LedgerRecord(KEY)), lac(1, 7), lac(1, 5), lac(2, 1))
    store.forget(2)
    store.close()
    rebuild_index(disk.files, disk.path, keep_going=False, progress=lambda done, total: None)
    store = disk.start()
    assert store.explicit_lac(1) == lac(1, 7).body
    assert store.explicit_lac(2) is None
    store.close()


def test_a_checkpoint_for_which_the_journal_had_no_room_comes_later_and_covers_everything(
    ram_path: Path,
) -> None:
    """One that named a place or a journal segment of before would not be that of what it stores."""
    host = Host(ram_path, AckAfter.JOURNAL)
    put(host.store, entry(1, 0))
    host.files.fail_append(2, DiskFullError, 0)  # after the footer: the header of the next segment
    with pytest.raises(DiskFullError):
        host.store.checkpoint()
    put(host.store, entry(1, 1))
    host.store.checkpoint()
    taken, position = host.store.checkpoints.last, host.store.log.position
    assert (taken.segment, taken.offset) == (position.segment, position.offset)
    put(host.store, entry(1, 2))
    assert host.lose().entries(1) == [(0, 2)]
