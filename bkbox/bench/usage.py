"""Resource usage of a server's processes, as the kernel counts it: a process and its descendants.

CPU seconds include children that have ended and were waited for. ``written_bytes`` is what the
processes have made dirty or written around the page cache (write_bytes of /proc/PID/io): a page that
is written, reaches the disk and is written again counts twice, as on the disk. RSS counts shared
pages in each process, PSS divides them. Source: proc(5).
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SECTOR_BYTES = 512
_PROC = Path("/proc")
_STEAL = 8
"""The column of /proc/stat."""

_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over a server's processes."""

    processes: int
    cpu_s: float
    rss_bytes: int
    pss_bytes: int
    written_bytes: int


def usage_of(pid: int) -> Usage:
    """The usage of a process and its descendants so far; zeros for processes that are gone."""
    processes, cpu_s, rss, pss, written = 0, 0.0, 0, 0, 0
    for each in tree(pid):
        try:
            fields = _stat(each)
            memory = _fields(_PROC / str(each) / "smaps_rollup")
            io = _fields(_PROC / str(each) / "io")
        except (FileNotFoundError, ProcessLookupError):
            continue
        processes += 1
        cpu_s += sum(map(int, fields[11:15])) / _TICKS_PER_S
        rss += memory["Rss"] * 1024
        pss += memory["Pss"] * 1024
        written += io["write_bytes"]
    return Usage(processes, cpu_s, rss, pss, written)


def cpu_s(pids: list[int]) -> float:
    """CPU seconds so far of those of the processes that exist; fast."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += sum(map(int, _stat(pid)[11:15]))
    return total / _TICKS_PER_S


def stolen_s() -> float:
    """CPU seconds so far that the host of a virtual machine kept from its processors while they had something to
    run; 0 where the host does not say."""
    first = (_PROC / "stat").read_text().partition("\n")[0]
    return int(first.split()[_STEAL]) / _TICKS_PER_S


def context_switches(pids: list[int]) -> int:
    """Context switches so far of the threads that exist of those of the processes that exist."""
    total = 0
    for pid in pids:
        try:
            threads = list((_PROC / str(pid) / "task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue
        for thread in threads:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = (thread / "status").read_text()
                total += sum(map(int, _SWITCHES.findall(status)))
    return total


def tree(pid: int) -> list[int]:
    """A process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for path in _PROC.iterdir():
        if path.name.isdecimal():
            try:
                parent = int(_stat(int(path.name))[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(path.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def device_written_bytes(folder: Path) -> int | None:
    """Bytes that the block device of a folder has written since the host started, for all processes; None if
    the kernel keeps no count for it."""
    device = folder.stat().st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    try:
        return int(path.read_text().split()[6]) * _SECTOR_BYTES
    except FileNotFoundError:
        return None


def drop_cache(folder: Path) -> None:
    """Writes dirty pages to the disk, and drops every file below a folder from the page cache."""
    os.sync()
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if not path.is_file():
                continue
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state (field 3) on."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _fields(path: Path) -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+)", path.read_text(), re.MULTILINE)
    return {name: int(value) for name, value in found}
