"""On the path of a bookie by tests/host: makes a worker slow, or lets it wait in the kernel as for a disk.

``HOST_SLOW_READS`` names a file: while it is there, each read of a segment by a worker takes a tenth of a second.
``HOST_WAIT_AT`` names a FIFO: at SIGUSR1 a worker starts a program whose input is that FIFO, and like everybody who
starts a program so it waits for it in the state D, which no signal ends, until somebody opens the other end.
``HOST_HANGS`` names a FIFO: at SIGUSR1 a worker sleeps until somebody opens its other end, at SIGUSR2 it computes until
it is gone.
``HOST_RESTART_S``: seconds without progress after which the supervisor kills a child.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_pread = os.pread


def _slow_pread(fd: int, length: int, offset: int) -> bytes:
    if "/entrylog/" in os.readlink(f"/proc/self/fd/{fd}") and os.path.exists(
        os.environ["HOST_SLOW_READS"]
    ):
        time.sleep(0.1)
    return _pread(fd, length, offset)


def _wait(_number: int, _frame: object) -> None:
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.environ["HOST_WAIT_AT"], os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)


def _sleep(_number: int, _frame: object) -> None:
    os.close(os.open(os.environ["HOST_HANGS"], os.O_RDONLY))


def _compute(_number: int, _frame: object) -> None:
    while os.path.exists(os.environ["HOST_HANGS"]):
        pass


if "HOST_RESTART_S" in os.environ:
    from bkbox.base import limits

    limits.STALL_RESTART_S = float(os.environ["HOST_RESTART_S"])

if "bkbox.worker" in sys.orig_argv:
    if "HOST_SLOW_READS" in os.environ:
        os.pread = _slow_pread  # type: ignore[assignment]
    if "HOST_WAIT_AT" in os.environ:
        signal.signal(signal.SIGUSR1, _wait)
    if "HOST_HANGS" in os.environ:
        signal.signal(signal.SIGUSR1, _sleep)
        signal.signal(signal.SIGUSR2, _compute)
