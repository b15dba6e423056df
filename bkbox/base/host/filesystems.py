"""The risks of a mounted file system: synced data that it loses, or shows wrongly, after a power cut.

A bookie acknowledges data that fdatasync(2) reports durable. That holds on a file system with a journal (or copy on
write) that flushes the cache of its device. ext4 without a journal writes the metadata of a file in no order: a power
cut, and the repair by e2fsck that it needs, can take synced data with it.

ext4 reports the options in force in /proc/fs/ext4/DEVICE/options, including defaults of its superblock, which the
options of the mount leave out; there is a line ``data=`` exactly if the journal is in use.

Sources: Documentation/admin-guide/ext4.rst, Documentation/filesystems/f2fs.rst of Linux; _ext4_show_options in
fs/ext4/super.c.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

from bkbox.base.host.blocks import Device, Mount, device_of, mount_of
from bkbox.base.host.files import HostFiles
from bkbox.base.values import frozen_struct

_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_MEMORY_DEVICES = ("ram", "zram")
_LAYERS = frozenset({"overlay", "aufs"})
_REMOTE = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
    }
)
_EXT = frozenset({"ext2", "ext3", "ext4"})
_NEVER_JOURNALED = frozenset({"exfat", "hfs", "hfsplus", "minix", "msdos", "udf", "vfat"})
_WITHOUT_BARRIERS = frozenset({"nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier"})
_STOPPED = frozenset({"ro", "emergency_ro", "shutdown"})
"""ext4 shows the last two instead of ``ro`` (Linux 6.15 and later) when it has stopped writing by itself."""


@frozen_struct
class Risk:
    """``grave``: the bookie cannot keep its promises there. ``text``: the finding and its meaning; ``command``: the
    remedy.
    """

    grave: bool
    text: str
    command: str


def risks(host: HostFiles, folder: Path) -> list[Risk]:
    """The risks of the file system of a folder or file; empty if there are none, or nothing is known of it."""
    mount = mount_of(host, folder)
    if mount is None:
        return []
    device = device_of(host, folder)
    found = _of_kind(mount, device, folder)
    options = {*mount.options, *_in_force(host, mount)}
    if _STOPPED & options:
        found.append(_read_only(mount, options))
        return found
    if not _has_journal(host, mount):
        found.append(_without_journal(mount))
    without = _WITHOUT_BARRIERS & options
    if without:
        found.append(_without_barriers(mount, device, min(without)))
    if "data=writeback" in options:
        found.append(_writeback(mount))
    return found


def _in_force(host: HostFiles, mount: Mount) -> list[str]:
    """The options of an ext file system, all of them; none if the kernel does not report them."""
    if mount.kind not in _EXT:
        return []
    return list(host.lines(f"/proc/fs/ext4/{device_name(host, mount)}/options"))


def _has_journal(host: HostFiles, mount: Mount) -> bool:
    """False only if there is certainly no journal."""
    if mount.kind in _NEVER_JOURNALED:
        return False
    options = _in_force(host, mount)
    if not options:
        return mount.kind != "ext2"
    return any(option.startswith("data=") for option in options)


def device_name(host: HostFiles, mount: Mount) -> str:
    """The kernel's name of a file system in /sys/fs and /proc/fs: that of its device, or partition, itself
    (``dm-0``), not of the path that was mounted (``/dev/mapper/data``).
    """
    block = f"/sys/dev/block/{mount.number}"
    return Path(os.path.realpath(host.at(block)) if host.has(block) else mount.source).name


# ---- the texts ------------------------------------------------------------------------------------------


def _of_kind(mount: Mount, device: Device | None, folder: Path) -> list[Risk]:
    name = "" if device is None else device.name.rstrip("0123456789")
    if mount.kind in _MEMORY or name in _MEMORY_DEVICES:
        what = (
            mount.kind
            if mount.kind in _MEMORY
            else f"{mount.kind} on {mount.source}, a disk in memory,"
        )
        return [
            Risk(
                True,
                f"{what} forgets everything when the host restarts",
                f"mount a disk at {folder}",
            )
        ]
    if mount.kind in _LAYERS:
        text = f"{mount.kind} is a container's own file system, which goes with the container"
        return [Risk(False, text, f"mount a volume at {folder}")]
    if mount.kind in _REMOTE:
        text = f"{mount.kind} is on another host: whether what was synced is on a disk there is that host's to say"
        return [Risk(False, text, f"mount a local disk at {folder}")]
    if mount.kind == "fuseblk" or mount.kind.startswith("fuse."):
        text = f"{mount.kind} is served by a program: whether what was synced is on a disk is that program's to say"
        return [Risk(False, text, f"mount a local disk with ext4 or xfs at {folder}")]
    return []


def _read_only(mount: Mount, options: set[str]) -> Risk:
    how = "read-only, which the kernel does by itself after errors"
    if {"norecovery", "noload"} & options:
        how = "read-only with its journal left out (norecovery): what that journal has is missing"
    elif "ro" not in options:
        how = "and takes no writes any more: the kernel stopped it after errors"
    name = Path(mount.source).name
    return Risk(True, f"it is mounted {how}", f"dmesg | grep {name}")


def _without_journal(mount: Mount) -> Risk:
    text = (
        f"{mount.kind} on {mount.source} has no journal: a power cut, and the repair of the file system after it, can "
        "take synced data away, and with it acknowledged entries and ledgers of the metadata store"
    )
    if mount.kind in _NEVER_JOURNALED:
        return Risk(
            False, text, f"make ext4 (with its journal, the default) or xfs on {mount.source}"
        )
    add = f"tune2fs -O has_journal {mount.source}"
    if mount.point == "/":
        return Risk(
            False,
            text,
            f"move the folder to a disk with a journal; or, from a rescue system: {add}",
        )
    steps = f"umount {quote(mount.point)} && {add} && e2fsck -f {mount.source} && mount {quote(mount.point)}"
    return Risk(False, text, f"stop the bookie, then: {steps}")


def _without_barriers(mount: Mount, device: Device | None, option: str) -> Risk:
    remount_option = "fsync_mode=posix" if option.startswith("fsync_mode") else "barrier"
    command = f"mount -o remount,{remount_option} {quote(mount.point)}, and take {option} out of /etc/fstab"
    if device is not None and device.volatile_cache is False:
        text = (
            f"it is mounted without barriers ({option}): right only as long as {device.name} has no volatile cache, "
            "as it says of itself; on another device, or with its cache switched on, a power cut loses what was "
            "acknowledged"
        )
        return Risk(False, text, command)
    text = (
        f"it is mounted without barriers ({option}): a sync ends before the disk has written, and a power cut loses "
        "what was acknowledged"
    )
    return Risk(True, text, command)


def _writeback(mount: Mount) -> Risk:
    text = (
        "it is mounted with data=writeback: no synced data is lost by that, but after a power cut a write that was cut "
        "may show what its blocks held before, which looks like rot: ledgers go into limbo that need not"
    )
    where = (
        f"take data=writeback out of /etc/fstab, run tune2fs -o journal_data_ordered {mount.source}"
    )
    return Risk(False, text, f"{where}, then unmount {mount.point} and mount it again")
