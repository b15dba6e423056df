"""Handles of a bookie's processes: a signal never reaches another process with a recycled pid."""

from __future__ import annotations

import os
import resource
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self


class ProcessRef(NamedTuple):
    """A child of a supervisor: ``frontend``, ``worker`` or ``repair``, and the name it was started with."""

    pid: int
    role: str
    name: str


class ProcessHandle:
    """One process, by a file descriptor. Raises ProcessLookupError if it is gone or no child of ``parent``."""

    def __init__(self, pid: int, parent: int | None = None) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        if parent is not None and _parent_of(pid) != parent:
            os.close(self._fd)
            raise ProcessLookupError(pid)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; no effect if the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def limit_descriptors(self, limit: int) -> int:
        """Sets the limit of open descriptors, without closing those beyond it; returns the previous limit."""
        if self.has_ended:
            return limit
        with suppress(ProcessLookupError):
            before, most = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (limit, most))
            return before
        return limit

    @property
    def has_ended(self) -> bool:
        """True if the process has ended, even if it has not been reaped yet."""
        return bool(select.select([self._fd], [], [], 0)[0])

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def children(supervisor: int) -> list[ProcessRef]:
    """The children of a supervisor, whether it runs or is stopped."""
    found: list[ProcessRef] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
        for pid in map(int, text.split()):
            with suppress(FileNotFoundError, ProcessLookupError):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if "--name" in arguments and arguments[2].startswith("bkbox."):
                    role = arguments[2].removeprefix("bkbox.")
                    found.append(ProcessRef(pid, role, arguments[arguments.index("--name") + 1]))
    return found


def _parent_of(pid: int) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None
