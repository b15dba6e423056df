"""File systems that lose synced data in a power cut: as /proc and /sys show them, and real ones on loop devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.base.host.files import HostFiles
from bkbox.base.host.filesystems import risks
from tests.harness.mounts import MakeMount, run

JOURNALED = "rw\nbarrier\ncommit=5\ndata=ordered\n"
WITHOUT = "rw\nbarrier\ncommit=5\n"


def host_of(
    tmp_path: Path, kind: str, *, mount: str = "rw", ext: str = "", source: str = "/dev/sdx1"
) -> HostFiles:
    """A host with a file system of this kind, with these options, at /data. Its device is dm-7 to the kernel."""
    host = HostFiles(tmp_path / "host")
    files = {
        "/proc/self/mountinfo": f"30 22 253:7 / /data rw,noatime - {kind} {source} {mount}\n",
        "/sys/devices/dm-7/dev": "253:7",
    }
    if ext:
        files["/proc/fs/ext4/dm-7/options"] = ext
    for name, text in files.items():
        host.at(name).parent.mkdir(parents=True, exist_ok=True)
        host.at(name).write_text(text)
    link = host.at("/sys/dev/block/253:7")
    link.parent.mkdir(parents=True)
    link.symlink_to(host.at("/sys/devices/dm-7"))
    return host


@pytest.mark.parametrize(
    ("kind", "mount", "ext", "grave", "text"),
    [
        ("ext4", "rw", JOURNALED, None, ""),
        ("ext4", "rw", "", None, ""),  # the kernel does not say
        ("xfs", "rw", "", None, ""),
        ("btrfs", "rw", "", None, ""),
        ("ext4", "rw", WITHOUT, False, "has no journal"),
        ("ext2", "rw", WITHOUT, False, "has no journal"),
        ("ext2", "rw", "", False, "has no journal"),
        ("ext3", "rw", JOURNALED, None, ""),
        ("vfat", "rw", "", False, "has no journal"),
        ("ext4", "rw,nobarrier", JOURNALED, True, "without barriers"),
        ("ext4", "rw,barrier=0", JOURNALED, True, "without barriers"),
        ("ext4", "rw", JOURNALED + "nobarrier\n", True, "without barriers"),  # by its superblock
        ("btrfs", "rw,nobarrier", "", True, "without barriers"),
        ("f2fs", "rw,fsync_mode=nobarrier", "", True, "without barriers"),
        ("ext4", "rw,data=writeback", "data=writeback\n", False, "data=writeback"),
        ("ext4", "rw", "data=writeback\n", False, "data=writeback"),  # by its superblock
        ("ext4", "ro,norecovery", WITHOUT, True, "norecovery"),
        ("xfs", "ro", "", True, "read-only"),
        ("ext4", "rw,emergency_ro", JOURNALED, True, "takes no writes"),
        ("tmpfs", "rw", "", True, "forgets everything"),
        ("overlay", "rw", "", False, "container"),
        ("nfs4", "rw", "", False, "another host"),
        ("virtiofs", "rw", "", False, "another host"),
        ("fuse.s3fs", "rw", "", False, "served by a program"),
    ],
)
def test_what_the_kernel_shows(
    tmp_path: Path, kind: str, mount: str, ext: str, grave: bool | None, text: str
) -> None:
    host = host_of(tmp_path, kind, mount=mount, ext=ext, source="/dev/mapper/data")
    found = risks(host, Path("/data/disk"))
    if grave is None:
        assert found == []
        return
    (risk,) = found
    assert (risk.grave, text in risk.text) == (grave, True), risk
    assert risk.command


def test_each_of_several(tmp_path: Path) -> None:
    host = host_of(tmp_path, "ext4", mount="rw,nobarrier", ext="rw\nnobarrier\n")
    texts = [risk.text for risk in risks(host, Path("/data/metadata.db"))]
    assert len(texts) == 2
    assert "journal" in texts[0]
    assert "barriers" in texts[1]


def test_a_folder_on_another_mount(tmp_path: Path) -> None:
    assert risks(host_of(tmp_path, "tmpfs"), Path("/other")) == []


# ---- real ones -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "options", "tune", "text"),
    [
        ("", "", "", None),
        ("^has_journal", "", "", "has no journal"),
        ("", "nobarrier", "", "without barriers"),
        ("", "barrier=0", "", "without barriers"),
        ("", "", "nobarrier", "without barriers"),
        ("", "data=writeback", "", "data=writeback"),
        ("", "", "journal_data_writeback", "data=writeback"),
        ("", "data=journal", "", None),
        ("", "ro,noload", "", "norecovery"),
    ],
)
def test_a_real_ext4(
    make_mount: MakeMount, features: str, options: str, tune: str, text: str | None
) -> None:
    point = make_mount(features, options, tune)
    found = risks(HostFiles(), point / "some" / "file")
    assert len(found) == (text is not None), found
    if text is not None:
        assert text in found[0].text


def test_a_journal_that_is_added_as_advised(make_mount: MakeMount) -> None:
    point = make_mount("^has_journal")
    (risk,) = risks(HostFiles(), point)
    device = run("findmnt", "-no", "SOURCE", point).strip()
    assert f"umount {point} && tune2fs -O has_journal {device}" in risk.command
    image = point.with_name("image")
    run("umount", point)
    run("tune2fs", "-O", "has_journal", image)
    run("e2fsck", "-fp", image)
    run("mount", "-o", "loop", image, point)
    assert risks(HostFiles(), point) == []


def test_a_file_system_that_stopped_itself(make_mount: MakeMount) -> None:
    """The kernel says ``emergency_ro``, or ``ro`` before Linux 6.15."""
    point = make_mount(options="errors=remount-ro")
    device = Path(run("findmnt", "-no", "SOURCE", point).strip())
    Path("/sys/fs/ext4", device.name, "trigger_fs_error").write_text("a test")
    (risk,) = risks(HostFiles(), point)
    assert risk.grave
    assert "after errors" in risk.text
