"""The block device itself: a power cut takes what was not flushed and nothing else, and each other
fault does what it says.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.device import blockdevice
from tests.crash.device.blockdevice import BlockDevice, missing
from tests.harness.waiting import wait_for

CUTS = 16
SECTOR = 512
BLOCK = 64 * SECTOR
OLD, NEW = b"\1", b"\2"
FAILED = "Input/output error|Read-only file system|Structure needs cleaning"


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def overwrite_unsynced(path: Path, byte: bytes) -> None:
    """Overwrite past the page cache: the device has acknowledged it when this returns."""
    with mmap.mmap(-1, BLOCK) as buffer:  # aligned, as O_DIRECT wants it
        buffer.write(byte * BLOCK)
        fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
        try:
            assert os.pwrite(fd, buffer, 0) == BLOCK
        finally:
            os.close(fd)


def sectors(path: Path) -> set[bytes]:
    data = path.read_bytes()
    return {data[at : at + SECTOR] for at in range(0, len(data), SECTOR)}


def test_a_cut_loses_what_was_not_flushed_and_nothing_else(device: BlockDevice) -> None:
    kept = lost = torn = 0
    promised: dict[str, bytes] = {}
    for cut in range(CUTS):
        promised[f"synced {cut}"] = os.urandom(3000 * cut)
        write_synced(device.path / f"synced {cut}", promised[f"synced {cut}"])
        write_synced(device.path / "overwritten", OLD * BLOCK)
        overwrite_unsynced(device.path / "overwritten", NEW)
        (device.path / f"never synced {cut}").write_bytes(b"x" * 10_000)
        device.cut(cut)
        with pytest.raises(OSError, match=FAILED):
            write_synced(device.path / "after the cut", b"x")
        device.come_back()
        for name, data in promised.items():
            assert (device.path / name).read_bytes() == data, (cut, name)
        found = sectors(device.path / "overwritten")
        assert found <= {OLD * SECTOR, NEW * SECTOR}
        kept += found == {NEW * SECTOR}
        lost += found == {OLD * SECTOR}
        torn += len(found) == 2
        assert not (device.path / "after the cut").exists()
    assert kept
    assert lost
    assert torn
    counted = device.counters()
    assert counted["cuts"] == CUTS
    assert 0 < counted["lost_sectors"] < counted["cached_sectors"]


def test_the_same_seed_loses_the_same(device: BlockDevice) -> None:
    found = []
    write_synced(device.path / "overwritten", OLD * BLOCK)
    for seed in (5, 5, 6, 6, 7, 7):
        overwrite_unsynced(device.path / "overwritten", NEW)
        device.cut(seed)
        device.come_back()
        found.append((device.path / "overwritten").read_bytes())
        write_synced(device.path / "overwritten", OLD * BLOCK)
    assert found[0::2] == found[1::2]
    assert len(set(found)) > 1


def test_a_device_that_lies_is_noticed(device: BlockDevice) -> None:
    device.lie()
    missed = 0
    for cut in range(CUTS):
        data = os.urandom(BLOCK)
        write_synced(device.path / "synced", data)
        device.cut(cut)
        try:
            device.come_back()
            missed += (device.path / "synced").read_bytes() != data
        except (OSError, subprocess.CalledProcessError):
            missed += 1
            device.format()
            device.mount()
    assert missed


def test_a_cut_that_is_armed(device: BlockDevice) -> None:
    device.arm(30, 1)
    written = 0
    with pytest.raises(OSError, match=FAILED):
        while True:
            write_synced(device.path / f"file {written}", b"x" * 100)
            written += 1
    assert written
    assert select.select([device], [], [], 10)[0]
    assert device.was_cut()
    device.come_back()
    assert all((device.path / f"file {number}").exists() for number in range(written))
    device.arm(1_000_000, 1)
    assert not device.was_cut()


def test_eio(device: BlockDevice) -> None:
    write_synced(device.path / "before", b"before" * 1000)
    with (device.path / "file").open("wb") as file:
        file.write(b"x" * 5000)
        file.flush()
        device.eio()
        with pytest.raises(OSError, match="Input/output error"):
            os.fsync(file.fileno())
    device.come_back()
    assert (device.path / "before").read_bytes() == b"before" * 1000
    assert device.counters()["failed"]
    write_synced(device.path / "after", b"after")


def test_vanish_and_come_back(device: BlockDevice) -> None:
    write_synced(device.path / "before", b"before" * 1000)
    with (device.path / "before").open("r+b") as file:
        device.vanish()
        file.write(b"never")
        file.flush()
        with pytest.raises(OSError, match=FAILED):
            os.fsync(file.fileno())
        device.come_back(lazy=True)
        write_synced(device.path / "after", b"after")
        file.write(b"never")
        with pytest.raises(OSError, match=FAILED):  # this mount is dead for good
            file.flush()
            os.fsync(file.fileno())
    assert (device.path / "before").read_bytes() == b"before" * 1000
    device.remount()
    assert (device.path / "after").read_bytes() == b"after"


def test_an_older_copy(device: BlockDevice) -> None:
    write_synced(device.path / "file", b"older")
    device.remount()
    device.snapshot()
    write_synced(device.path / "file", b"newer")
    write_synced(device.path / "later", b"later")
    device.restore()
    assert (device.path / "file").read_bytes() == b"older"
    assert not (device.path / "later").exists()
    device.cut(1)
    device.come_back()
    assert (device.path / "file").read_bytes() == b"older"


def test_save(device: BlockDevice, tmp_path: Path) -> None:
    write_synced(device.path / "file", b"to be found in the image")
    device.save(tmp_path / "saved")
    saved = (tmp_path / "saved").read_bytes()
    assert len(saved) == blockdevice.IMAGE_BYTES
    assert b"to be found in the image" in saved


def test_ext4_without_a_journal(tmp_path: Path) -> None:
    if lacks := missing("ext4"):
        pytest.skip(f"no block device: {lacks}")
    with BlockDevice(tmp_path / "device", journal=False) as device:
        for cut in range(CUTS):
            write_synced(device.path / f"file {cut}", b"x" * 5000)
            device.cut(cut)
            device.come_back()
        assert (device.path / "file 0").exists()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """A process that is killed with a device mounted, files open on it and writes under way."""
    if lacks := missing("ext4"):
        pytest.skip(f"no block device: {lacks}")
    folder = tmp_path / "device"
    program = (
        "import sys, time; from pathlib import Path\n"
        "from tests.crash.device.blockdevice import BlockDevice\n"
        "with BlockDevice(Path(sys.argv[1])) as device:\n"
        "    print(device.loop, flush=True)\n"
        "    file = (device.path / 'file').open('wb')\n"
        "    while True: file.write(b'x' * 10000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, folder], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        used = Path("/sys/block") / Path(process.stdout.readline().strip()).name / "loop"
        assert used.exists()
        process.send_signal(signal.SIGKILL)
    mounts = Path("/proc/self/mountinfo")
    wait_for(lambda: str(folder) not in mounts.read_text(), "the mounts to be gone")
    wait_for(
        lambda: not used.exists() or str(folder) not in (used / "backing_file").read_text(),
        "the loop device to be gone",
    )


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing() == "only root may mount"
    monkeypatch.undo()
    if missing():
        return
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing().startswith("not installed: mkfs.ext4, mount")


def test_another_mount_namespace_does_not_hold_it(device: BlockDevice) -> None:
    """One that was made while the device was mounted, by a process that still runs."""
    command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo made; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"made\n"
        write_synced(device.path / "file", b"x")
        device.cut(1)
        device.come_back()
        assert (device.path / "file").read_bytes() == b"x"
