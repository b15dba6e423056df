"""What the kernel says of processes: their limits, their threads, and who holds a lock.

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
    """A thread: its state (one letter, as in ps), what it sleeps in ("" where it does not, or that is not told), and
    the seconds of CPU that it has used.
    """

    tid: int
    name: str
    state: str
    sleeps_in: str
    cpu_s: float


def open_files_limit(host: HostFiles, pid: int | str = "self") -> int | None:
    """How many descriptors a process may have open; None where that cannot be read."""
    for line in host.lines(f"/proc/{pid}/limits"):
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdecimal() else None
    return None


def threads(host: HostFiles, pid: int) -> list[Thread]:
    """All threads of a process, the first first; none where it is gone or belongs to somebody else."""
    found = []
    for name in sorted(host.names(f"/proc/{pid}/task"), key=int):
        folder = f"/proc/{pid}/task/{name}"
        stat = host.text(f"{folder}/stat")
        if stat is None:
            continue
        head, _, tail = stat.rpartition(")")  # the name may hold anything, a bracket for one
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
    """The pid of who holds a flock on a file, without trying to take it; None where nobody does, or it is not there.

    The pid is that of the process that took the lock, which may have ended since while its children hold it.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in host.lines("/proc/locks"):
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4])
    return None
