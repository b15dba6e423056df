"""Children that begin before they are needed.

A child is a fresh interpreter (as multiprocessing calls 'spawn') and never a fork: neither LevelDB nor threads nor
locks survive one. It gets one end of a control channel and nothing else, imports what it runs, and then waits for its
first order: it opens nothing and writes nothing before. The imports are most of what a start costs, so a nursery
begins children while the supervisor's own imports, locks and cookies are still ahead; whatever comes of these, the
order of the start is that of the orders.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from types import TracebackType
from typing import NamedTuple, Self

from bkbox.base.logs import LogSettings
from bkbox.ipc import child


class Begun(NamedTuple):
    """A child that nobody watches yet, and this side of its control channel."""

    process: subprocess.Popen[bytes]
    control: socket.socket


class Nursery:
    """Children by role and name. At its end those that nobody took are killed.

    Belongs to the main thread: a child dies when the thread that started it does. ``log``: how children log that are
    begun from now on.
    """

    def __init__(self, log: LogSettings) -> None:
        self.log = log
        self._waiting: dict[tuple[str, str], Begun] = {}

    def begin(self, role: str, name: str) -> None:
        """Start a child that ``take`` is going to ask for."""
        self._waiting[role, name] = self._begin(role, name)

    def take(self, role: str, name: str) -> Begun:
        """The child that was begun, or else a new one."""
        begun = self._waiting.pop((role, name), None)
        return begun if begun is not None else self._begin(role, name)

    def _begin(self, role: str, name: str) -> Begun:
        """Start ``python -m bkbox.<role>``."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = child.arguments(theirs.fileno(), name, str(self.log))
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", f"bkbox.{role}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        return Begun(process, ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for begun in self._waiting.values():
            begun.process.kill()
            begun.process.wait()
            begun.control.close()
        self._waiting.clear()
