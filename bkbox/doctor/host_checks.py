"""What on this host makes a bookie slow, or makes it fail later."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from bkbox.base.host.clock import Clock
from bkbox.base.host.files import HostFiles
from bkbox.base.host.processes import open_files_limit
from bkbox.base.limits import BOOKIE_DESCRIPTORS_MIN, DESCRIPTORS_WANTED
from bkbox.doctor.finding import Finding, fail, ok, warn
from bkbox.native import kernel_in_use

DIRTY_BYTES_MAX = 2 << 30
"""So much that is not on the disk yet can take a disk a minute to write, and what is synced meanwhile waits for it."""

CLOCK_ERROR_MAX_S = 1.0

_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def kernel() -> Finding:
    """Whether the inner loops are compiled."""
    if kernel_in_use() == "compiled":
        return ok("kernel", "", "the inner loops are compiled")
    return warn(
        "kernel",
        "",
        "the inner loops are interpreted: the bookie takes a small part of the load that it could",
        "install a C compiler (Debian: apt install gcc python3-dev) and install bkbox again, or unset BKBOX_KERNEL",
    )


def limits(host: HostFiles, pid: int | None) -> Finding:
    """Descriptors that the bookie with this supervisor may open; without one, those of this process, as a hint."""
    whose = "the bookie" if pid is not None else "a bookie started from here"
    limit = open_files_limit(host, pid if pid is not None else "self")
    if limit is None:
        return warn("limits", "", f"how many files {whose} may open cannot be read")
    if limit >= DESCRIPTORS_WANTED:
        return ok("limits", "", f"{whose} may open {limit} files")
    if limit < BOOKIE_DESCRIPTORS_MIN:
        return fail(
            "limits",
            "",
            f"{whose} may open {limit} files, and does not start with less than {BOOKIE_DESCRIPTORS_MIN}",
            "run it by its unit (LimitNOFILE=131072), or after: ulimit -n 131072",
        )
    return warn(
        "limits",
        "",
        f"{whose} may open {limit} files, each client takes one: {DESCRIPTORS_WANTED} are wanted",
        "run it by its unit (LimitNOFILE=131072), or after: ulimit -n 131072",
    )


def memory(host: HostFiles) -> Iterator[Finding]:
    """Huge pages, and how much may wait for the disk."""
    thp = host.choice(_THP)
    if thp == "always":
        yield warn(
            "memory",
            "huge pages",
            "transparent huge pages are on for everything: memory of the workers grows beyond what they use, and "
            "making a page can stop one for milliseconds",
            f"echo madvise > {_THP}",
        )
    elif thp is not None:
        yield ok("memory", "huge pages", f"transparent huge pages: {thp}")
    dirty = _dirty_bytes(host)
    if dirty is None:
        return
    gib = f"{dirty / (1 << 30):.1f} GiB"
    if dirty > DIRTY_BYTES_MAX:
        yield warn(
            "memory",
            "dirty pages",
            f"{gib} may be written without the disk having begun with it; the sync that comes then takes as long as "
            "the disk needs for all of it",
            "sysctl -w vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824",
        )
    else:
        yield ok("memory", "dirty pages", f"the system begins to write with {gib}")


def _dirty_bytes(host: HostFiles) -> int | None:
    """At how many dirty bytes the system begins to write. Source: Documentation/admin-guide/sysctl/vm.rst of Linux."""
    plain = host.number("/proc/sys/vm/dirty_background_bytes")
    if plain:
        return plain
    ratio = host.number("/proc/sys/vm/dirty_background_ratio")
    for line in host.lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable" and ratio is not None:
            return int(value.split()[0]) * 1024 * ratio // 100
    return None


def clocks(found: Clock | None) -> Finding:
    """Whether the clock is kept right: leases of maintenance and what is said of times rely on it; no entry does."""
    if found is None:
        return warn("clock", "", "the kernel does not say whether the clock is kept right")
    if not found.synchronised:
        return warn(
            "clock",
            "",
            "nobody keeps the clock of this host right: a maintenance that was asked for may end too early or too late",
            "timedatectl set-ntp true",
        )
    if found.error_max_s > CLOCK_ERROR_MAX_S:
        text = f"the clock may be {found.error_max_s:.1f} s off"
        return warn("clock", "", text, "timedatectl timesync-status")
    return ok("clock", "", f"kept right, at most {found.error_max_s * 1000:.0f} ms off")


def extras(*, announce: bool) -> Iterator[Finding]:
    """Libraries that what is configured needs and that are not installed."""
    if announce and importlib.util.find_spec("zeroconf") is None:
        yield warn(
            "configuration",
            "announce",
            "announce is on and the library zeroconf is not installed: nobody hears of this bookie",
            "pip install 'bkbox[discovery]'",
        )
