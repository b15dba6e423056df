"""Runs a command that must not outlive the demo: ``python -m bkbox.demo.bound PARENT COMMAND …``.

The kernel kills the command when the process PARENT, which started this one, is gone, however that
ended. The rest of a bookie is bound to its supervisor in the same way.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Become ``command``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise SystemExit("the demo was gone before this process began")
    os.execv(command[0], command)  # noqa: S606 - the demo's own arguments


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
