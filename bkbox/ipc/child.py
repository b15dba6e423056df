"""The start of a child process: it is bound to its parent's life, ignores the terminal and has one control channel.

The supervisor starts children with a fresh interpreter (never fork: LevelDB, threads and locks do not survive it) and
passes one end of a socket pair. A child dies with its parent. SIGTERM and SIGINT are ignored: a service
manager or a terminal sends them to the whole group, and only the supervisor knows the order in which to stop.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

from bkbox.base.host.prctl import die_with_parent, forbid_new_privileges
from bkbox.base.limits import GC_THRESHOLDS
from bkbox.ipc.messages.message import encode
from bkbox.ipc.messages.process import ChildStarted
from bkbox.native import kernel_in_use


class ChildArguments(NamedTuple):
    """A child: its control channel, its name, and its log settings (logs.LogSettings as text)."""

    control: socket.socket
    name: str
    log: str


def arguments(control_fd: int, name: str, log: str) -> list[str]:
    """The command line of a child of this process. ``name`` identifies it in process listings."""
    ours = ["--control-fd", str(control_fd), "--parent", str(os.getpid())]
    return [*ours, "--log", log, "--name", name]


def begin(role: str) -> ChildArguments:
    """Parses the command line, binds the process to its parent, and tells it the kernel in use (ChildStarted)."""
    try:
        _, control_fd, _, parent, _, log, _, name = sys.argv[1:]
    except ValueError:
        sys.stderr.write(f"bkbox.{role} is started by the bkbox supervisor only\n")
        raise SystemExit(2) from None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent(int(parent), "the supervisor")
    forbid_new_privileges()
    # Objects made so far stay alive, and few later ones form cycles: frequent collections would only delay requests.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    control = socket.socket(fileno=int(control_fd))
    with suppress(BrokenPipeError):  # the supervisor is gone: the role notices
        control.send(encode(ChildStarted(kernel=kernel_in_use())))
    return ChildArguments(control, name, log)
