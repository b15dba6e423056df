"""Marker, identity, checkpoint and lock: the small files of a disk."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from bkbox.base.values import replaced
from bkbox.errors import BookieRunningError, DamagedError, DiskError, FormatVersionError
from bkbox.storage.checksummed_document import write_document
from bkbox.storage.disk.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from bkbox.storage.disk.dirty_marker import (
    Incarnation,
    Marker,
    begin_run,
    clear,
    commit,
    mark_replaced,
    read_marker,
    record_failure,
)
from bkbox.storage.disk.identity import DiskIdentity, read_identity, write_identity
from bkbox.storage.disk.lock import DiskLock
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import AckAfter
from tests.harness.faultyfiles import CrashableFiles

FILES = RealFiles()
FIRST = Incarnation("boot 1", AckAfter.WRITE, "a")
SECOND = Incarnation("boot 2", AckAfter.SYNC, "b")


def test_runs_add_up_until_settled(tmp_path: Path) -> None:
    assert read_marker(FILES, tmp_path) is None
    assert begin_run(FILES, tmp_path, FIRST) is None
    before = begin_run(FILES, tmp_path, SECOND)
    assert before == Marker(runs=(FIRST,))
    assert read_marker(FILES, tmp_path) == Marker(runs=(FIRST, SECOND))
    commit(FILES, tmp_path, SECOND, before)
    assert read_marker(FILES, tmp_path) == Marker(runs=(SECOND,))


def test_starts_that_never_settle_do_not_add_up_without_end(tmp_path: Path) -> None:
    begin_run(FILES, tmp_path, SECOND)
    for number in range(20):
        begin_run(FILES, tmp_path, replaced(FIRST, run_id=f"again {number}"))
    marker = read_marker(FILES, tmp_path)
    assert marker is not None
    assert [run.run_id for run in marker.runs] == [SECOND.run_id, "again 18", "again 19"]


def test_classes(tmp_path: Path) -> None:
    assert not Marker(runs=(FIRST,)).is_host_crash("boot 1")
    assert Marker(runs=(FIRST,)).is_host_crash("boot 2")
    assert Marker(runs=(SECOND, FIRST)).is_host_crash("boot 1")
    assert Marker(runs=(FIRST,), failures=("sync failed",)).is_host_crash("boot 1")
    assert Marker(runs=(FIRST,), replaced=True).is_host_crash("boot 1")
    assert Marker().is_host_crash("boot 1")
    assert Marker(runs=(SECOND, FIRST)).acked_unsynced
    assert not Marker(runs=(SECOND,)).acked_unsynced


def test_only_a_settled_run_without_failure_is_cleared(tmp_path: Path) -> None:
    begin_run(FILES, tmp_path, FIRST)
    before = begin_run(FILES, tmp_path, SECOND)
    assert not clear(FILES, tmp_path, SECOND)
    commit(FILES, tmp_path, SECOND, before)
    assert clear(FILES, tmp_path, SECOND)
    assert read_marker(FILES, tmp_path) is None
    begin_run(FILES, tmp_path, SECOND)
    record_failure(FILES, tmp_path, "sync failed")
    assert not clear(FILES, tmp_path, SECOND)
    assert read_marker(FILES, tmp_path) == Marker(runs=(SECOND,), failures=("sync failed",))


def test_settling_keeps_the_failures_of_this_run(tmp_path: Path) -> None:
    record_failure(FILES, tmp_path, "old")
    before = begin_run(FILES, tmp_path, SECOND)
    record_failure(FILES, tmp_path, "new")
    commit(FILES, tmp_path, SECOND, before)
    assert read_marker(FILES, tmp_path) == Marker(runs=(SECOND,), failures=("new",))


def test_a_replaced_disk_stays_so_until_settled(tmp_path: Path) -> None:
    mark_replaced(FILES, tmp_path)
    before = begin_run(FILES, tmp_path, SECOND)
    assert before is not None
    assert before.replaced
    assert read_marker(FILES, tmp_path) == Marker(runs=(SECOND,), replaced=True)


def test_an_unreadable_marker_is_a_host_crash_and_stays_one(tmp_path: Path) -> None:
    begin_run(FILES, tmp_path, SECOND)
    path = tmp_path / "DIRTY"
    for broken in (b"", b"x", path.read_bytes()[:-3], path.read_bytes().replace(b"boot", b"b00t")):
        path.write_bytes(broken)
        found = read_marker(FILES, tmp_path)
        assert found is not None
        assert found.is_host_crash("boot 2")
        assert found.acked_unsynced
    before = begin_run(FILES, tmp_path, SECOND)
    assert before is not None
    again = read_marker(FILES, tmp_path)
    assert again is not None
    assert again.is_host_crash("boot 2")
    assert not clear(FILES, tmp_path, SECOND)


def test_an_error_while_looking_is_a_host_crash(tmp_path: Path) -> None:
    files = CrashableFiles(tmp_path, random.Random(1))
    files.fail_read = True
    found = read_marker(files, tmp_path)
    assert found is not None
    assert found.is_host_crash("boot 1")


@pytest.mark.parametrize("seed", range(20))
def test_a_marker_that_was_begun_outlives_the_host(tmp_path: Path, seed: int) -> None:
    files = CrashableFiles(tmp_path, random.Random(seed))
    begin_run(files, tmp_path, FIRST)
    files = files.lose_host()
    assert read_marker(files, tmp_path) == Marker(runs=(FIRST,))
    assert clear(files, tmp_path, FIRST)
    assert read_marker(files.lose_host(), tmp_path) is None


def test_identity(tmp_path: Path) -> None:
    assert read_identity(FILES, tmp_path) is None
    identity = DiskIdentity(UUID(int=5), "host:3181", "cluster")
    write_identity(FILES, tmp_path, identity)
    assert read_identity(FILES, tmp_path) == identity
    path = tmp_path / "DISK"
    path.write_bytes(path.read_bytes().replace(b"cluster", b"another"))
    with pytest.raises(DamagedError):
        read_identity(FILES, tmp_path)


def test_checkpoint(tmp_path: Path) -> None:
    assert read_checkpoint(FILES, tmp_path) is None
    for checkpoint in (Checkpoint(1, 2, 3, 4, None), Checkpoint(2, 2, 3, 0, 7)):
        write_checkpoint(FILES, tmp_path, checkpoint)
        assert read_checkpoint(FILES, tmp_path) == checkpoint
    assert oct((tmp_path / "CHECKPOINT").stat().st_mode)[-3:] == "600"


def test_a_newer_document_is_refused(tmp_path: Path) -> None:
    write_document(FILES, tmp_path / "CHECKPOINT", {"format": 2, "number": 1})
    with pytest.raises(FormatVersionError, match="format 2"):
        read_checkpoint(FILES, tmp_path)


def test_a_disk_is_locked_once(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path)
    with pytest.raises(BookieRunningError, match=rf"{tmp_path}.*pid {os.getpid()}"):
        DiskLock(tmp_path)
    lock.release()
    DiskLock(tmp_path).release()


def test_a_child_that_inherits_the_lock_holds_it(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[lock.fileno()],
    ) as child:
        lock.release()
        with pytest.raises(BookieRunningError):
            DiskLock(tmp_path)
        child.communicate()
    DiskLock(tmp_path).release()


def test_a_folder_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="absent"):
        DiskLock(tmp_path / "absent")
