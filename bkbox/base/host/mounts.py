"""The identity of a mounted file system: if it is unchanged, everything written is still there.

A process that died lost nothing that write(2) took, as long as the kernel goes on writing it to the same device. That
ends with the file system being unmounted, or the device being detached: unwritten data is gone then, and the kernel's
boot id does not show it.

The identity is, best first:

- the superblock's own folder in /sys/fs, by its inode, which the kernel never uses twice while it is up: it lives
  from the mount to the last unmount, and is the same in all mount namespaces (a service of systemd gets a new one
  with each start);
- the unique id of the mount (STATX_MNT_ID_UNIQUE, Linux 6.8 and later);
- the id of the mount, which may be used again, with the device and the id of the file system.

Each is combined with the device, by its number and by the sequence number of its attachment (diskseq, Linux 5.15 and
later).

Sources: statx(2); Documentation/ABI/testing/sysfs-block; fs/kernfs and fs/ext4/sysfs.c of Linux.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from bkbox.base.host.files import HostFiles

_AT_FDCWD = -100
_AT_NO_AUTOMOUNT = 0x800
_STATX_MNT_ID = 0x1000
_STATX_MNT_ID_UNIQUE = 0x4000
_MASK = struct.Struct("=I")
_MNT_ID = struct.Struct("=Q")
_MNT_ID_AT = 144
_STATX_BYTES = 256

_FILE_SYSTEMS = ("ext4", "xfs", "f2fs")
"""File systems with a folder in /sys/fs for each superblock, named after its device."""


def mount_identity(host: HostFiles, folder: Path) -> str:
    """The identity of a folder's file system, as text; empty if the kernel reports nothing of it."""
    try:
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        block = f"/sys/dev/block/{number}"
        attached = host.number(f"{block}/diskseq")
        if attached is None:
            attached = host.number(f"{block}/../diskseq")  # of a partition
        where = f"device {number} attachment {attached or 0}"
        name = Path(os.path.realpath(host.at(block))).name if host.has(block) else ""
        for kind in _FILE_SYSTEMS if name else ():
            superblock = f"/sys/fs/{kind}/{name}"
            if host.has(superblock):
                return f"{kind} superblock {os.stat(host.at(superblock)).st_ino} {where}"
        mount = _mount_id(folder)
        if mount is None:
            return ""
        if mount[1]:
            return f"mount {mount[0]} {where}"
        return f"mount id {mount[0]} file system {os.statvfs(folder).f_fsid} {where}"
    except OSError:
        return ""


def _mount_id(folder: Path) -> tuple[int, bool] | None:
    """The id of a mount, and whether it is never used again; None if statx does not report it."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:  # a C library without it
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    for mask in (_STATX_MNT_ID_UNIQUE, _STATX_MNT_ID):
        if statx(_AT_FDCWD, os.fsencode(folder), _AT_NO_AUTOMOUNT, mask, buffer):
            return None
        if _MASK.unpack_from(buffer)[0] & mask:
            return int(_MNT_ID.unpack_from(buffer, _MNT_ID_AT)[0]), mask == _STATX_MNT_ID_UNIQUE
    return None
