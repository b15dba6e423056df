"""Processes as the kernel reports them: their limits, their threads, and the holder of a lock.

Sources: proc_pid_limits(5), proc_pid_stat(5), proc_locks(5).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bkbox.base.host.files import HostFiles

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread: its state (one letter, as in ps), the kernel function it sleeps in ("" if it does not sleep, or that
    is not reported), and the seconds of CPU that it has used.
    """

    tid: int
    name: str
    state: str
    sleeps_in: str
    cpu_s: float


def open_files_limit(host: HostFiles, pid: int | str = "self") -> int | None:
    """The limit of open descriptors of a process; None if it cannot be read."""
    for line in host.lines(f"/proc/{pid}/limits"):
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdecimal() else None
    return None


def threads(host: HostFiles, pid: int) -> list[Thread]:
    """All threads of a process, the first first; none if it is gone or belongs to another user."""
    found = []
    # Thread ids wrap around: later ones may be smaller than the first one's, which is the process's.
    for name in sorted(
        host.names(f"/proc/{pid}/task"), key=lambda name: (int(name) != pid, int(name))
    ):
        folder = f"/proc/{pid}/task/{name}"
        stat = host.text(f"{folder}/stat")
        if stat is None:
            continue
        head, _, tail = stat.rpartition(")")  # the name may contain any character, even a bracket
        fields = tail.split()
        sleeps_in = host.text(f"{folder}/wchan") or ""
        found.append(
            Thread(
                tid=int(name),
                name=head.partition("(")[2],
                state=fields[0],
                sleeps_in="" if sleeps_in == "0" else sleeps_in,
                cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
            )
        )
    return found


def flock_holder(host: HostFiles, path: Path) -> int | None:
    """The pid of the holder of a flock on a file, without trying to acquire it; None if there is no holder, or no
    file.

    The pid is that of the process that acquired the lock, which may have ended since while its children hold it.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    lock_file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in host.lines("/proc/locks"):
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == lock_file:
            return int(fields[4])
    return None
