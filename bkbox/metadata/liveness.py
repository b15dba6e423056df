"""Liveness of a process on this host by its recorded identity, and a clock that is never set.

A process is named by the boot it belongs to, its PID namespace, its pid and its start time. Seen from another process
of the same host:

- another boot id: dead, whatever its pid;
- the same boot and PID namespace: its entry in /proc decides; a pid that was given to a new process has another start
  time, and a zombie counts as dead;
- another PID namespace (a container): invisible. ProcessIdentity.UNKNOWN: only a lease can decide.

Leases are measured in CLOCK_BOOTTIME: it starts at zero with each boot, goes on while the machine sleeps, and does
not jump when the wall clock is set.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class ProcessIdentity(Enum):
    """Liveness of a process, as far as known."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, distinct from all others that this host ever had.

    ``pid_namespace`` is its inode number; ``started`` is in clock ticks after boot.
    """

    boot_id: str
    pid_namespace: int
    pid: int
    started: int


def this_process() -> Process:
    """The calling process."""
    pid = os.getpid()
    started = _start_time(pid)
    assert started is not None
    return Process(
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        pid_namespace=os.stat("/proc/self/ns/pid").st_ino,
        pid=pid,
        started=started,
    )


def life_of(process: Process, observer: Process) -> ProcessIdentity:
    """The liveness of a process, as seen by ``observer``, the calling process."""
    if process.boot_id != observer.boot_id:
        return ProcessIdentity.DEAD
    if process.pid_namespace != observer.pid_namespace:
        return ProcessIdentity.UNKNOWN
    try:
        started = _start_time(process.pid)
    except OSError:
        return ProcessIdentity.UNKNOWN
    return ProcessIdentity.ALIVE if started == process.started else ProcessIdentity.DEAD


def boottime_ms() -> int:
    """Milliseconds since boot, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _start_time(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat; None if the process has ended. OSError if it cannot be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        # With hidepid, /proc hides other users' processes: ask the kernel itself.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        raise
    # The name, field 2, may hold blanks and parentheses; what follows the last one is regular.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])
