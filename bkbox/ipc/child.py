"""How a child process begins: bound to its parent's life, deaf to the terminal, with one control channel.

The supervisor starts children with a fresh interpreter (never fork: LevelDB, threads and locks do not survive it)
and hands over one end of a socket pair. A child dies with its parent by PR_SET_PDEATHSIG; the parent's pid is
compared afterwards, because the parent may have died before the signal was asked for. SIGTERM and SIGINT are
ignored: a service manager or a terminal sends them to the whole group, and only the supervisor knows the order in
which to stop.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ChildArguments:
    """What the supervisor put on the command line."""

    control: socket.socket
    name: str


def begin(role: str) -> ChildArguments:
    """Read the command line, bind to the parent, take the control channel."""
    parser = argparse.ArgumentParser(
        prog=f"bkbox.{role}", description="started by the bkbox supervisor only"
    )
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--name", required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != arguments.parent:
        raise SystemExit("the supervisor was gone before this process began")
    return ChildArguments(socket.socket(fileno=arguments.control_fd), arguments.name)
