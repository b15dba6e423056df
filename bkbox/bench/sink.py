"""``bkbox bench sink``: a server that only answers, for the ceiling of the load generator and, with
a file to append to, for the limit of any bookie."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

from bkbox.errors import FrameError
from bkbox.kernel.sink import Sink


def serve(host: str, port: int, size: int, file: Path | None, ready: Callable[[str], None]) -> None:
    """Answer until interrupted. ``size``: payload of the entries that reads get, in bytes.
    ``ready`` gets HOST:PORT once connections are taken. Raises OSError."""
    descriptor = -1
    if file is not None:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        with socket.create_server((host, port)) as listener, select.epoll() as poll:
            listener.setblocking(False)
            ready(f"{host}:{listener.getsockname()[1]}")
            _serve(listener, poll, size, descriptor)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _serve(listener: socket.socket, poll: select.epoll, size: int, file: int) -> None:
    poll.register(listener, select.EPOLLIN)
    links: dict[int, tuple[socket.socket, Sink]] = {}
    waiting: set[int] = set()
    while True:
        for number, event in poll.poll():
            if number == listener.fileno():
                link, _ = listener.accept()
                link.setblocking(False)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                poll.register(link, select.EPOLLIN)
                links[link.fileno()] = (link, Sink(link, size, file))
                continue
            link, sink = links[number]
            try:
                if event & select.EPOLLOUT:
                    sink.answer()
                    lives = True
                else:
                    lives = sink.receive()
            except (ConnectionError, FrameError):
                lives = False
            if not lives:
                link.close()
                del links[number]
                waiting.discard(number)
            elif sink.has_unsent != (number in waiting):
                poll.modify(number, select.EPOLLOUT if sink.has_unsent else select.EPOLLIN)
                waiting ^= {number}
