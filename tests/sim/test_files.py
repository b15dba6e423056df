"""The simulated file system keeps what it must keep, and loses what it may lose."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bkbox.errors import DiskError, DiskFailedError, DiskFullError
from bkbox.storage.files import write_atomic
from proof.sim.world.disk import Disk
from proof.sim.world.files import FaultTrigger, SimFiles
from proof.sim.world.loop import Crash, Process, Scheduler

ROOT = Path("/d")


def new_files(seed: int = 1) -> tuple[Disk, SimFiles, random.Random]:
    scheduler = Scheduler(seed, traced=False)
    disk = Disk(ROOT)
    return disk, SimFiles([disk], Process(scheduler, "p"), scheduler.rng), scheduler.rng


@pytest.mark.parametrize("seed", range(30))
def test_what_was_synced_stays(seed: int) -> None:
    disk, files, rng = new_files(seed)
    file = files.open_append(ROOT / "a")
    file.append(b"x" * 700)
    file.fdatasync()
    files.fsync_dir(ROOT)
    file.append(b"y" * 2000)
    disk.lose_host(rng)
    data = files.read_bytes(ROOT / "a")
    assert data is not None
    assert data[:700] == b"x" * 700
    assert len(data) <= 2700


def test_some_of_the_rest_goes() -> None:
    left = set()
    for seed in range(60):
        disk, files, rng = new_files(seed)
        file = files.open_append(ROOT / "a")
        file.fdatasync()
        files.fsync_dir(ROOT)
        file.append(b"y" * 2000)
        disk.lose_host(rng)
        data = files.read_bytes(ROOT / "a") or b""
        left.add("all" if data == b"y" * 2000 else "torn" if data.strip(b"y") else "cut")
    assert left == {"all", "torn", "cut"}


@pytest.mark.parametrize("seed", range(20))
def test_a_file_without_a_durable_name_may_be_gone_and_a_removed_one_back(seed: int) -> None:
    disk, files, rng = new_files(seed)
    files.open_append(ROOT / "old").fdatasync()
    files.fsync_dir(ROOT)
    files.unlink(ROOT / "old")
    files.open_append(ROOT / "new").fdatasync()
    disk.lose_host(rng)
    assert set(files.listdir(ROOT)) <= {"old", "new"}
    files.fsync_dir(ROOT)
    names = files.listdir(ROOT)
    disk.lose_host(rng)
    assert files.listdir(ROOT) == names


@pytest.mark.parametrize("seed", range(30))
def test_filler_that_is_written_over_is_there_or_what_was_written(seed: int) -> None:
    disk, files, rng = new_files(seed)
    file = files.open_append(ROOT / "a")
    file.append(b"x" * 100)
    file.fill(100, b"f" * 2972)
    file.fdatasync()
    files.fsync_dir(ROOT)
    file.append(b"y" * 1500)
    disk.lose_host(rng)
    data = files.read_bytes(ROOT / "a")
    assert data is not None
    assert len(data) == 3072
    assert data[:100] == b"x" * 100
    assert data[2048:] == b"f" * 1024


@pytest.mark.parametrize("seed", range(20))
def test_an_atomic_write_leaves_the_old_or_the_new(seed: int) -> None:
    disk, files, rng = new_files(seed)
    write_atomic(files, ROOT / "a", b"old")
    files.crash_at(rng.randint(1, 5))
    with pytest.raises(Crash):
        write_atomic(files, ROOT / "a", b"new")
    disk.lose_host(rng)
    assert files.read_bytes(ROOT / "a") in (b"old", b"new")


@pytest.mark.parametrize("seed", range(20))
def test_a_later_sync_does_not_save_what_a_failed_one_left(seed: int) -> None:
    """But for a sector that is written again, which is written whole."""
    disk, files, rng = new_files(seed)
    file = files.open_append(ROOT / "a")
    file.append(b"x" * 512)
    file.fdatasync()
    files.fsync_dir(ROOT)
    file.append(b"y" * 1200)
    disk.fail_syncs = 1
    with pytest.raises(DiskFailedError):
        file.fdatasync()
    file.append(b"z" * 100)
    file.fdatasync()
    assert files.read_bytes(ROOT / "a") == b"x" * 512 + b"y" * 1200 + b"z" * 100
    disk.lose_host(rng)
    assert files.read_bytes(ROOT / "a") == b"x" * 512 + bytes(1024) + b"y" * 176 + b"z" * 100


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_sector_is_as_it_was_or_zeros_or_as_it_was_written(seed: int) -> None:
    disk, files, rng = new_files(seed)
    file = files.open_append(ROOT / "a")
    file.append(b"x" * 100)
    file.fill(100, b"f" * 924)
    file.fdatasync()
    files.fsync_dir(ROOT)
    file.append(b"y" * 3000)
    disk.lose_host(rng)
    data = files.read_bytes(ROOT / "a") or b""
    for start in range(0, len(data), 512):
        sector = data[start : start + 512].removeprefix(b"x" * 100 if start == 0 else b"")
        assert len(set(sector)) == 1
        assert sector[0] in (b"yf" if start < 1024 else b"y\0")


def test_a_device_that_comes_back_has_lost_what_it_was_not_given() -> None:
    disk, files, rng = new_files()
    file = files.open_append(ROOT / "a")
    file.append(b"x" * 100)
    file.fdatasync()
    files.fsync_dir(ROOT)
    disk.is_failing = True
    file.append(b"y" * 600)
    disk.reattach()
    assert files.read_bytes(ROOT / "a") == b"x" * 100 + b"y" * 600, "memory has it"
    with pytest.raises(DiskFailedError):
        file.fdatasync()
    with pytest.raises(DiskFailedError):
        files.sync_file_system(ROOT)
    file.fdatasync()
    files.sync_file_system(ROOT)
    disk.drop_caches()
    assert (files.read_bytes(ROOT / "a") or b"").rstrip(b"\0") == b"x" * 100
    assert disk.mounts == 1
    disk.remount(rng)
    assert disk.mounts == 2


def test_a_copy_of_a_disk_has_what_was_durable_and_goes_its_own_way() -> None:
    disk, files, _rng = new_files()
    file = files.open_append(ROOT / "a")
    file.append(b"x" * 100)
    file.fdatasync()
    files.fsync_dir(ROOT)
    file.append(b"y")
    copy = disk.copy()
    file.append(b"z")
    file.fdatasync()
    disk.restore_from(copy)
    assert files.read_bytes(ROOT / "a") == b"x" * 100


def test_what_is_written_again_after_a_failed_sync_can_be_saved() -> None:
    disk, files, rng = new_files()
    file = files.open_append(ROOT / "a")
    files.fsync_dir(ROOT)
    file.append(b"y" * 100)
    disk.fail_syncs = 1
    with pytest.raises(DiskFailedError):
        file.fdatasync()
    file.truncate(0)
    file.append(b"z" * 100)
    file.fdatasync()
    disk.lose_host(rng)
    assert files.read_bytes(ROOT / "a") == b"z" * 100


def test_a_full_disk_takes_what_fits_and_a_lost_one_nothing() -> None:
    disk, files, _rng = new_files()
    file = files.open_append(ROOT / "a")
    disk.free_bytes = 10
    with pytest.raises(DiskFullError):
        file.append(b"x" * 20)
    assert file.size() == 10
    disk.free_bytes = None
    disk.mounted = False
    with pytest.raises(DiskFailedError):
        file.append(b"x")
    with pytest.raises(DiskError):
        files.read_bytes(ROOT / "a")


def test_the_dead_change_nothing() -> None:
    disk, files, _rng = new_files()
    file = files.open_append(ROOT / "a")
    files.crash_at(1)
    with pytest.raises(Crash):
        file.append(b"x" * 20)
    before = bytes(disk.names[str(ROOT)]["a"].data)
    with pytest.raises(Crash):
        file.append(b"x" * 20)
    with pytest.raises(Crash):
        files.unlink(ROOT / "a")
    assert bytes(disk.names[str(ROOT)]["a"].data) == before


def test_an_ambush_strikes_whichever_process_makes_the_change() -> None:
    scheduler = Scheduler(1, traced=False)
    disk, ambush = Disk(ROOT), FaultTrigger()
    one, other = (
        SimFiles([disk], Process(scheduler, name), scheduler.rng, ambush) for name in "ab"
    )
    struck: list[int] = []

    def strike() -> bool:
        struck.append(1)
        return len(struck) == 2

    ambush.lay(2, strike)
    file = one.open_append(ROOT / "a")
    other.fsync_dir(ROOT)
    assert struck == [1], "it does not strike, and goes on"
    file.append(b"x")
    ambush.lay(1, strike)
    with pytest.raises(Crash):
        file.fdatasync()
    file.append(b"y")
    assert len(struck) == 2


def test_what_comes_of_a_sync_that_fails_comes_once() -> None:
    disk, files, _ = new_files()
    told: list[bool] = []
    disk.fail_syncs = 2
    disk.on_failed_sync = lambda: told.append(True)
    for _ in range(2):
        with pytest.raises(DiskFailedError):
            files.fsync_dir(ROOT)
    files.fsync_dir(ROOT)
    assert told == [True]


def test_bits_of_logs_flip_only_where_two_more_syncs_came_after_them() -> None:
    for seed in range(50):
        disk, files, rng = new_files(seed)
        file = files.open_append(ROOT / "a.log")
        for data in (b"a" * 700, b"b" * 300, b"c" * 300, b"d" * 300):
            assert disk.flip(rng, ".log") is None
            file.append(data)
            file.fill(file.size(), b"filler.." * 64)
            if data[0] != ord("b"):
                file.fdatasync()
        before = files.read_bytes(ROOT / "a.log")
        assert disk.flip(rng, ".log") is not None
        after = files.read_bytes(ROOT / "a.log")
        assert before is not None
        assert after is not None
        (changed,) = [at for at, byte in enumerate(after) if byte != before[at]]
        assert changed < 700
