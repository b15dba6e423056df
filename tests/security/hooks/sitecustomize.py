"""On the path of a bookie by test_process_boundaries.py: a front-end that somebody has taken over.

Whenever the file that ``TAKEN_OVER`` names is there, the front-end says over its ``channel`` to the supervisor, or over
its ``links`` to the workers, what the test has written into it: which of both, then a message in hex a line. A
descriptor goes with each. When all is said the file is removed. Nothing in bkbox knows of it.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
import time
from pathlib import Path


def _say() -> None:
    script = Path(os.environ["TAKEN_OVER"])
    while True:
        while not script.exists():
            time.sleep(0.05)
        where, *lines = script.read_text().split()
        kind = socket.SOCK_SEQPACKET if where == "channel" else socket.SOCK_STREAM
        for sock in _sockets():
            for line in lines:
                if sock.type != kind:
                    continue
                try:
                    socket.send_fds(sock, [bytes.fromhex(line)], [0], socket.MSG_DONTWAIT)
                except OSError:
                    break
        script.unlink(missing_ok=True)


def _sockets() -> list[socket.socket]:
    """Those that lead to other processes of the bookie."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(number).st_mode)
        except OSError:
            continue
        if is_socket:
            sock = socket.socket(fileno=os.dup(number))
            if sock.family == socket.AF_UNIX:
                found.append(sock)
    return found


if "TAKEN_OVER" in os.environ and "bkbox.frontend" in sys.orig_argv:
    threading.Thread(target=_say, daemon=True).start()
