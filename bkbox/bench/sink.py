"""``bkbox bench sink``: a server that only sends responses, for the ceiling of the load generator and, with
a file to append to, for the limit of any bookie."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

from bkbox.bench.echo_server import Sink
from bkbox.errors import FrameError


def serve(
    host: str,
    port: int,
    size: int,
    file: Path | None,
    ready: Callable[[str], None],
    *,
    sync: bool = False,
) -> None:
    """Serves until interrupted. ``size``: payload, in bytes, of the entries in responses to reads; ``sync``: appended
    bytes are synced before the response. ``ready`` gets HOST:PORT once connections are accepted. Raises OSError."""
    descriptor = -1
    if file is not None:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        with socket.create_server((host, port)) as listener, select.epoll() as poll:
            listener.setblocking(False)
            ready(f"{host}:{listener.getsockname()[1]}")
            _Server(listener, poll, size, descriptor, sync=sync).run()
    finally:
        if descriptor >= 0:
            os.close(descriptor)


class _Server:
    """One turn serves all connections: their requests are stored, synced once if necessary, and responded to."""

    def __init__(
        self, listener: socket.socket, poll: select.epoll, size: int, file: int, *, sync: bool
    ) -> None:
        self._listener = listener
        self._poll = poll
        self._size = size
        self._file = file
        self._sync = sync
        self._links: dict[int, tuple[socket.socket, Sink]] = {}
        self._waiting: set[int] = set()

    def run(self) -> None:
        self._poll.register(self._listener, select.EPOLLIN)
        while True:
            came = [number for number, event in self._poll.poll() if self._receive(number, event)]
            while came:
                stored = [number for number in came if self._attempt(number, Sink.store)]
                if stored and self._sync and self._file >= 0:
                    os.fdatasync(self._file)
                came = [number for number in stored if self._attempt(number, Sink.send)]
                for number in set(stored) & self._links.keys():
                    self._await(number)

    def _receive(self, number: int, event: int) -> bool:
        """True if there may be requests to respond to."""
        if number == self._listener.fileno():
            link, _ = self._listener.accept()
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.register(link, select.EPOLLIN)
            self._links[link.fileno()] = (link, Sink(link, self._size, self._file))
            return False
        return bool(event & select.EPOLLOUT) or self._attempt(number, Sink.receive, ends=True)

    def _attempt(self, number: int, step: Callable[[Sink], bool], *, ends: bool = False) -> bool:
        """The result of the step. A connection that the step breaks is closed, and with ``ends`` also one for which it
        returns False."""
        link, sink = self._links[number]
        try:
            done = step(sink)
        except (ConnectionError, FrameError):
            done, ends = False, True
        if ends and not done:
            link.close()
            del self._links[number]
            self._waiting.discard(number)
        return done

    def _await(self, number: int) -> None:
        """Waits until the socket takes responses, or for requests."""
        has_unsent = self._links[number][1].has_unsent
        if has_unsent != (number in self._waiting):
            self._poll.modify(number, select.EPOLLOUT if has_unsent else select.EPOLLIN)
            self._waiting ^= {number}
