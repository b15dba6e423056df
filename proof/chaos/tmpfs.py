"""Small file systems in memory that can be shrunk below what their content needs: full disks, without filling the
host's.

They are mounted in a mount namespace of this process (``own_namespace``), which its children share: no other process
sees them, and the kernel removes them with the last process, however that ends. If this process may not mount, a user
namespace of its own may permit it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from pathlib import Path

from bkbox.errors import ChaosError

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_REMOUNT = 0x20
_MS_REC_PRIVATE = 0x4000 | (1 << 18)

BYTES = 2 << 30
"""Size of a file system that is not full: memory is allocated only for what is written."""

_MNT_DETACH = 2
_TRIES = 20


def own_namespace() -> str | None:
    """Gives this process and its future children mounts of their own. Returns the reason if that is impossible, or
    None.

    Call it at the beginning of a process, which must still have one thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if threading.active_count() > 1:
        return "the process has several threads already"
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWNS) != 0:
        if libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER) != 0:
            return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        except OSError as error:
            return f"no user namespace: {error.strerror}"
    if libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) != 0:
        return f"no mounts of its own: {os.strerror(ctypes.get_errno())}"
    return None


class Tmpfs:
    """One file system at ``path``, an existing folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._libc = ctypes.CDLL(None, use_errno=True)

    def open(self) -> None:
        """Mounts it. Raises ChaosError."""
        self._mount(0, BYTES)

    def squeeze(self, free_bytes: int) -> None:
        """Shrinks it to leave this much free space. Raises ChaosError."""
        for _ in range(_TRIES):
            stat = os.statvfs(self.path)
            used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
            try:
                self._mount(_MS_REMOUNT, used + free_bytes)
            except ChaosError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or cause.errno != errno.EINVAL:
                    raise
                continue  # more was written meanwhile
            return
        raise ChaosError(f"{self.path} grows faster than it can be made small")

    def widen(self) -> None:
        """Restores its original size."""
        self._mount(_MS_REMOUNT, BYTES)

    def close(self) -> None:
        if self._libc.umount2(os.fsencode(self.path), _MNT_DETACH) != 0:
            raise ChaosError(f"unmounting {self.path}: {os.strerror(ctypes.get_errno())}")

    def _mount(self, flags: int, size: int) -> None:
        options = f"size={size},mode=0700".encode()
        if self._libc.mount(b"none", os.fsencode(self.path), b"tmpfs", flags, options) != 0:
            number = ctypes.get_errno()
            cause = OSError(number, os.strerror(number))
            raise ChaosError(f"mounting {self.path}: {cause.strerror}") from cause
