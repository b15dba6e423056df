"""What is made of a host: /proc and /sys as small folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkbox.base.host.blocks import device_of, flushes, mount_of
from bkbox.base.host.clock import Clock, clock
from bkbox.base.host.files import HostFiles
from bkbox.base.host.processes import flock_holder, open_files_limit, threads
from bkbox.checks import host as host_checks
from bkbox.storage.disk.lock import DiskLock


def host_of(tmp_path: Path, files: dict[str, str]) -> HostFiles:
    for name, text in files.items():
        path = tmp_path / "host" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HostFiles(tmp_path / "host")


THP = "sys/kernel/mm/transparent_hugepage/enabled"


@pytest.mark.parametrize(
    ("text", "verdict"), [("[always] madvise never", "warn"), ("always [madvise] never", "ok")]
)
def test_huge_pages(tmp_path: Path, text: str, verdict: str) -> None:
    (found,) = host_checks.memory(host_of(tmp_path, {THP: text}))
    assert found.verdict == verdict
    assert ("madvise" in found.command) == (verdict == "warn")


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({"proc/sys/vm/dirty_background_bytes": "268435456"}, "ok"),
        ({"proc/sys/vm/dirty_background_bytes": str(8 << 30)}, "warn"),
        (
            {
                "proc/sys/vm/dirty_background_bytes": "0",
                "proc/sys/vm/dirty_background_ratio": "10",
                "proc/meminfo": "MemTotal: 300 kB\nMemAvailable:   268435456 kB\n",
            },
            "warn",
        ),
        (
            {
                "proc/sys/vm/dirty_background_ratio": "10",
                "proc/meminfo": "MemAvailable:   8388608 kB\n",
            },
            "ok",
        ),
    ],
)
def test_dirty_pages(tmp_path: Path, files: dict[str, str], verdict: str) -> None:
    (found,) = host_checks.memory(host_of(tmp_path, files))
    assert found.verdict == verdict, found


@pytest.mark.parametrize(
    ("limit", "verdict"), [("1024", "warn"), ("131072", "ok"), ("unlimited", "warn")]
)
def test_limits(tmp_path: Path, limit: str, verdict: str) -> None:
    text = (
        f"Limit  Soft Limit Hard Limit Units\nMax open files            {limit}   524288   files\n"
    )
    host = host_of(tmp_path, {"proc/7/limits": text})
    assert host_checks.limits(host, 7).verdict == verdict


@pytest.mark.parametrize(
    ("in_use", "processes", "verdict"),
    [
        ("compiled", {}, "ok"),
        ("compiled", {"bookie": "compiled", "disk0": "compiled", "repair": ""}, "ok"),
        ("compiled", {"bookie": "compiled", "disk0": "interpreted"}, "warn"),
        ("interpreted", {"bookie": "interpreted", "disk0": "compiled"}, "warn"),
        ("interpreted", {"bookie": "interpreted", "disk0": "interpreted"}, "warn"),
    ],
)
def test_kernels(in_use: str, processes: dict[str, str], verdict: str) -> None:
    found = host_checks.kernel(in_use, processes)
    assert found.verdict == verdict
    assert ("different kernels" in found.why) is (
        set(processes.values()) >= {"compiled", "interpreted"}
    )


def test_limits_of_this_process() -> None:
    import resource

    assert open_files_limit(HostFiles()) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Clock(True, 0.01), "ok"),
        (Clock(True, 12.0), "warn"),
        (Clock(False, 16.0), "warn"),
        (None, "warn"),
    ],
)
def test_clocks(found: Clock | None, verdict: str) -> None:
    assert host_checks.clocks(found).verdict == verdict


def test_the_clock_of_this_host_can_be_asked() -> None:
    found = clock()
    assert found is None or found.error_max_s >= 0


MOUNTS = (
    "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "30 22 8:1 / /data\\040a rw,noatime - xfs /dev/sda1 rw,nobarrier\n"
    "31 22 0:44 / /data\\040a/net rw - nfs4 server:/x rw\n"
)


def test_mounts(tmp_path: Path) -> None:
    host = host_of(tmp_path, {"proc/self/mountinfo": MOUNTS})
    of_disk = mount_of(host, Path("/data a/disk"))
    assert of_disk is not None
    assert (of_disk.kind, of_disk.point) == ("xfs", "/data a")
    assert "nobarrier" in of_disk.options
    of_network = mount_of(host, Path("/data a/net/x"))
    assert of_network is not None
    assert of_network.kind == "nfs4"
    of_root = mount_of(host, Path("/elsewhere"))
    assert of_root is not None
    assert of_root.source == "/dev/vda1"


def test_a_partition_says_what_its_disk_says(tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    if os.major(number) == 0:
        number = os.makedev(8, 1)  # what lies on no device here
    disk = "sys/devices/pci/block/sdx"
    host = host_of(
        tmp_path,
        {
            f"{disk}/queue/write_cache": "write back",
            f"{disk}/queue/rotational": "0",
            f"{disk}/queue/logical_block_size": "512",
            f"{disk}/stat": " ".join(map(str, range(17))),
            f"{disk}/sdx1/partition": "1",
        },
    )
    link = host.at(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    link.parent.mkdir(parents=True)
    link.symlink_to(host.at(f"/{disk}/sdx1"))
    if os.major(os.stat(tmp_path).st_dev) == 0:
        pytest.skip("the folder of the tests lies on no block device")
    device = device_of(host, tmp_path)
    assert device is not None
    assert (device.name, device.volatile_cache, device.rotational) == ("sdx", True, False)
    assert flushes(host, device) == 15


def test_who_holds_a_lock(tmp_path: Path) -> None:
    assert flock_holder(HostFiles(), tmp_path / "LOCK") is None
    lock = DiskLock(tmp_path)
    assert flock_holder(HostFiles(), tmp_path / "LOCK") == os.getpid()
    lock.release()
    assert flock_holder(HostFiles(), tmp_path / "LOCK") is None


def test_threads_of_this_process() -> None:
    first, *_ = threads(HostFiles(), os.getpid())
    assert first.tid == os.getpid()
    assert first.cpu_s > 0
    assert threads(HostFiles(), 1 << 22) == []
