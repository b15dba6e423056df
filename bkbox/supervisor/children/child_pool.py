"""Starts child processes before they are needed.

A child is a fresh interpreter (multiprocessing's 'spawn') and never a fork: neither LevelDB nor threads nor locks
survive a fork. It gets one end of a control channel and nothing else, imports its code, and waits for its first order.
It opens and writes nothing before that. The imports are most of the cost of a start, so children are started while the
supervisor's own imports, locks and cookies are still ahead. The order of the start is not affected: it is the order of
the orders.
"""

from __future__ import annotations

import socket
import subprocess
from typing import NamedTuple, Self

from bkbox.base.host.interpreter import module_command
from bkbox.base.logs import LogSettings
from bkbox.ipc import child


def frontend_name(bookie: str, count: int, number: int) -> str:
    """The name under which a front-end is started, one of ``count``."""
    return bookie if count == 1 else f"{bookie} {number + 1}"


class ChildHandle(NamedTuple):
    """A child that is not watched yet, and the supervisor's end of its control channel."""

    process: subprocess.Popen[bytes]
    control: socket.socket


class ChildPool:
    """Started children by role and name. At its end the children that were not taken are killed.

    Belongs to the main thread: a child dies when the thread that started it does. ``log``: the log settings of children
    started from now on.
    """

    def __init__(self, log: LogSettings) -> None:
        self.log = log
        self._waiting: dict[tuple[str, str], ChildHandle] = {}

    def spawn(self, role: str, name: str) -> None:
        """Start a child, to be taken later."""
        self._waiting[role, name] = self._spawn(role, name)

    def acquire(self, role: str, name: str) -> ChildHandle:
        """The child that was started before, or else a new one."""
        handle = self._waiting.pop((role, name), None)
        return handle if handle is not None else self._spawn(role, name)

    def _spawn(self, role: str, name: str) -> ChildHandle:
        """Start ``python -m bkbox.<role>``."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = child.arguments(theirs.fileno(), name, str(self.log))
        with theirs:
            process = subprocess.Popen(
                [*module_command(f"bkbox.{role}"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        return ChildHandle(process, ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for handle in self._waiting.values():
            handle.process.kill()
            handle.process.wait()
            handle.control.close()
        self._waiting.clear()
