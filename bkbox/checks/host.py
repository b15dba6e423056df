"""The checks of this host: what makes a bookie slow, makes it fail later, or does not keep what is synced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from types import MappingProxyType

from bkbox.base.host.blocks import device_of, mount_of
from bkbox.base.host.clock import Clock
from bkbox.base.host.files import HostFiles
from bkbox.base.host.filesystems import device_name, risks
from bkbox.base.host.processes import open_files_limit
from bkbox.base.limits import BOOKIE_DESCRIPTORS_MIN, DESCRIPTORS_TARGET, FRONTEND_DESCRIPTORS
from bkbox.checks.registry import CLOCK, FILE_SYSTEM, KERNEL, LIMITS, MEMORY, Finding

DIRTY_BYTES_MAX = 2 << 30
"""So much that is not on the disk yet can take a disk a minute to write, and what is synced meanwhile waits for it."""

CLOCK_ERROR_MAX_S = 1.0

_CACHE = {True: " with a volatile cache", False: " without a volatile cache", None: ""}
_RAISE = "raise the limit before the bookie is started, or with LimitNOFILE=131072 in its unit"

_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def kernel(in_use: str, processes: Mapping[str, str] = MappingProxyType({})) -> Finding:
    """True if the inner loops are compiled, in all processes alike. ``processes``: by name, what each runs; "" until it
    said so."""
    others = [f"{name}: {its}" for name, its in processes.items() if its not in ("", in_use)]
    if others:
        return KERNEL.warn(
            f"the processes run different kernels (the supervisor: {in_use}; {', '.join(others)}): bkbox was compiled "
            "or installed anew while the bookie ran; restart the bookie",
            command="",
        )
    if in_use == "compiled":
        return KERNEL.ok("the inner loops are compiled")
    return KERNEL.warn(
        "the kernel is interpreted: the bookie takes a small part of the load that it could; install a C compiler and "
        "install bkbox again, or unset BKBOX_KERNEL"
    )


def limits(host: HostFiles, pid: int | None) -> Finding:
    """Descriptors that the bookie with this front-end may open; without one, those of this process, as a hint."""
    subject = "the bookie" if pid is not None else "a bookie started from here"
    limit = open_files_limit(host, pid if pid is not None else "self")
    if limit is None:
        return LIMITS.warn(f"how many files {subject} may open cannot be read", command="")
    return limits_of(limit, subject, DESCRIPTORS_TARGET)


def limits_of(limit: int, subject: str, target: int) -> Finding:
    """Descriptors; each client takes one."""
    if limit < BOOKIE_DESCRIPTORS_MIN:
        return LIMITS.fail(
            f"{subject} may open {limit} files, and does not start with less than {BOOKIE_DESCRIPTORS_MIN}: {_RAISE}"
        )
    if limit >= target:
        return LIMITS.ok(f"{subject} may open {limit} files")
    return LIMITS.warn(
        f"{subject} may open {limit} files: at most {limit - FRONTEND_DESCRIPTORS} clients are served at once; {_RAISE}"
    )


def memory(host: HostFiles) -> Iterator[Finding]:
    """Huge pages, and how much may wait for the disk."""
    thp = host.choice(_THP)
    if thp == "always":
        yield MEMORY.warn(
            "transparent huge pages are on for everything: memory of the workers grows beyond what they use, and "
            "making a page can stop one for milliseconds",
            "huge pages",
            f"echo madvise > {_THP}",
        )
    elif thp is not None:
        yield MEMORY.ok(f"transparent huge pages: {thp}", "huge pages")
    dirty = _dirty_bytes(host)
    if dirty is None:
        return
    gib = f"{dirty / (1 << 30):.1f} GiB"
    if dirty > DIRTY_BYTES_MAX:
        yield MEMORY.warn(
            f"{gib} may be written without the disk having begun with it; the sync that comes then takes as long as "
            "the disk needs for all of it",
            "dirty pages",
        )
    else:
        yield MEMORY.ok(f"the system begins to write with {gib}", "dirty pages")


def _dirty_bytes(host: HostFiles) -> int | None:
    """At how many dirty bytes the system begins to write. Source: Documentation/admin-guide/sysctl/vm.rst of Linux."""
    absolute = host.number("/proc/sys/vm/dirty_background_bytes")
    if absolute:
        return absolute
    ratio = host.number("/proc/sys/vm/dirty_background_ratio")
    for line in host.lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable" and ratio is not None:
            return int(value.split()[0]) * 1024 * ratio // 100
    return None


def clocks(found: Clock | None) -> Finding:
    """Checks that the clock is synchronized: leases of maintenance and reported times rely on it; no entry does."""
    if found is None:
        return CLOCK.warn("the kernel does not say whether the clock is kept right", command="")
    if not found.synchronised:
        return CLOCK.warn(
            "nothing keeps the clock of this host right: a maintenance that was asked for may end too early or too late"
        )
    if found.error_max_s > CLOCK_ERROR_MAX_S:
        text = f"the clock may be {found.error_max_s:.1f} s off"
        return CLOCK.warn(text, command="timedatectl timesync-status")
    return CLOCK.ok(f"kept right, at most {found.error_max_s * 1000:.0f} ms off")


def file_system(host: HostFiles, path: Path) -> Iterator[Finding]:
    """Checks that the file system of a folder or file keeps synced data; nothing where the kernel does not name it."""
    mount, where = mount_of(host, path), str(path)
    if mount is None:
        return
    found = risks(host, path)
    for risk in found:
        bad = FILE_SYSTEM.fail if risk.grave else FILE_SYSTEM.warn
        yield bad(risk.text, where, risk.command)
    if not found:
        device = device_of(host, path)
        on = (
            f"on {mount.source}"
            if device is None
            else f"on {device.name}{_CACHE[device.volatile_cache]}"
        )
        yield FILE_SYSTEM.ok(f"{mount.kind} {on}", where)


def file_system_errors(host: HostFiles, path: Path) -> Iterator[Finding]:
    """Errors that ext4 has counted; the count stays until the file system is checked."""
    mount = mount_of(host, path)
    if mount is None:
        return
    count = host.number(f"/sys/fs/ext4/{device_name(host, mount)}/errors_count")
    if count:
        yield FILE_SYSTEM.fail(
            f"ext4 has met {count} errors on {mount.source} since it was last checked",
            str(path),
            f"stop the bookie, then: umount {quote(mount.point)} && e2fsck -f {mount.source}",
        )
