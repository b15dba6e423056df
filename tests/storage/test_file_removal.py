"""Files that nothing needs any more: they are given up durably, removed by another thread, and freed in pieces."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bkbox.errors import DiskError, DiskFailedError, DiskFullError
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.file_removal import UnneededFiles
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import AckAfter, LedgerRecord, ledger_record
from tests.harness.faultyfiles import CrashableFiles
from tests.storage.bench import KEY, Disk, entry, entry_bytes, put
from tests.storage.conftest import ram_path

__all__ = ["ram_path"]

LARGE_BYTES = 5 << 20


class RefusingFiles(CrashableFiles):
    """Removes no file while ``error`` is set."""

    error: DiskError | None = None

    def detach(self, path: Path) -> Callable[[], None]:
        if self.error is not None:
            raise self.error
        return super().detach(path)


@pytest.fixture
def files(ram_path: Path) -> RefusingFiles:
    return RefusingFiles(ram_path, random.Random(1))


@pytest.fixture
def disk(ram_path: Path, files: RefusingFiles) -> Disk:
    return Disk(ram_path, files)


def journaled(disk: Disk) -> DiskStore:
    store = disk.start(AckAfter.JOURNAL)
    put(store, ledger_record(1, LedgerRecord(KEY)), entry(1, 0))
    return store


def take_checkpoint(store: DiskStore) -> None:
    """As a worker does, which leaves the removal for later."""
    checkpointing = store.begin_checkpoint()
    checkpointing.run()
    store.end_checkpoint(checkpointing)


def journal_segments(disk: Disk) -> list[int]:
    return sorted(int(path.stem) for path in disk.journal_dir.rglob("*.log"))


# ---- the file system -----------------------------------------------------------------------------


def test_a_detached_file_has_no_name_and_is_freed_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * LARGE_BYTES)
    sizes: list[int] = []
    truncate = os.ftruncate

    def noted(fd: int, size: int) -> None:
        sizes.append(size)
        truncate(fd, size)

    monkeypatch.setattr(os, "ftruncate", noted)
    with path.open("rb") as held:
        free = RealFiles().detach(path)
        assert not path.exists()
        assert os.fstat(held.fileno()).st_size == LARGE_BYTES
        free()
        assert sizes == [3 << 20, 1 << 20, 0]
        assert os.fstat(held.fileno()).st_blocks == 0


def test_a_file_with_another_name_keeps_its_bytes(tmp_path: Path) -> None:
    path, copy = tmp_path / "segment", tmp_path / "copy"
    path.write_bytes(b"x" * LARGE_BYTES)
    os.link(path, copy)
    RealFiles().detach(path)()
    assert copy.read_bytes() == b"x" * LARGE_BYTES


def test_a_file_that_cannot_be_detached_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiskFailedError, match=r"remove .*/segment: No such file"):
        RealFiles().detach(tmp_path / "segment")


# ---- the disk ------------------------------------------------------------------------------------


def test_the_end_of_a_checkpoint_removes_no_file(disk: Disk) -> None:
    store = journaled(disk)
    before = journal_segments(disk)
    take_checkpoint(store)
    assert journal_segments(disk) == [*before, before[-1] + 1]
    removal = store.begin_removal()
    assert removal is not None
    assert store.begin_removal() is None
    take_checkpoint(store)  # while the removal is in flight
    removal.run()
    store.end_removal(removal)
    assert journal_segments(disk) == [before[-1] + 1, before[-1] + 2]
    store.remove_unneeded()
    assert journal_segments(disk) == [before[-1] + 2]
    store.abandon()


@pytest.mark.parametrize("host_crash", [False, True])
def test_the_next_start_removes_what_a_crash_left(disk: Disk, host_crash: bool) -> None:
    store = journaled(disk)
    take_checkpoint(store)
    store.abandon()
    old = journal_segments(disk)
    if host_crash:
        disk.files = disk.files.lose_host()  # type: ignore[attr-defined]
    store = disk.start(AckAfter.JOURNAL, host_crash=host_crash)
    assert not set(journal_segments(disk)) & set(old)
    assert store.read_entry(1, 0) == entry_bytes(1, 0)
    store.close()
    assert journal_segments(disk) == []


def test_what_found_no_space_is_removed_with_the_next_file(
    disk: Disk, files: RefusingFiles
) -> None:
    store = journaled(disk)
    files.error = DiskFullError("remove: ordered")
    take_checkpoint(store)
    removal = store.begin_removal()
    assert removal is not None
    removal.run()
    with pytest.raises(DiskFullError):
        store.end_removal(removal)
    assert store.health.failed_reason is None
    assert store.begin_removal() is None  # not again and again
    put(store, entry(1, 1))
    files.error = None
    take_checkpoint(store)
    store.remove_unneeded()
    assert len(journal_segments(disk)) == 1
    store.close()


def test_a_removal_that_fails_is_a_failed_disk_with_its_checkpoint(
    disk: Disk, files: RefusingFiles
) -> None:
    store = journaled(disk)
    number = store.checkpoints.last.number
    files.error = DiskFailedError("remove: ordered")
    with pytest.raises(DiskFailedError):
        store.checkpoint()
    assert store.health.failed_reason is not None
    assert store.checkpoints.last.number == number + 1
    store.abandon()
    files.error = None
    store = disk.start(AckAfter.JOURNAL)
    assert store.read_entry(1, 0) == entry_bytes(1, 0)
    store.close()


def test_files_are_given_up_before_they_are_removed(tmp_path: Path) -> None:
    unneeded = UnneededFiles(RealFiles())
    assert unneeded.begin() is None
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_bytes(b"x")
    unneeded.add(paths)
    assert all(path.exists() for path in paths)
    removal = unneeded.begin()
    assert removal is not None
    removal.run()
    unneeded.end(removal)
    assert not any(path.exists() for path in paths)


# ---- the journal ---------------------------------------------------------------------------------


def test_a_sync_makes_the_segment_that_the_next_checkpoint_starts(
    disk: Disk, files: RefusingFiles
) -> None:
    store = disk.open(AckAfter.JOURNAL, segment_bytes_max=64 << 20)  # a checkpoint is each MiB
    store.replay(False)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    [first] = journal_segments(disk)
    for number in range(10):
        assert not store.checkpoint_due
        put(store, entry(1, number, bytes(90 << 10)))
    assert journal_segments(disk) == [first, first + 1]
    before = files.syncs
    checkpointing = store.begin_checkpoint()
    assert files.syncs == before
    checkpointing.run()
    store.end_checkpoint(checkpointing)
    put(store, entry(1, 10))
    store.remove_unneeded()
    assert journal_segments(disk) == [first + 1]
    store.close()
