"""Servers for the load generator: the sink, and one that answers as it is told."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from bkbox.wire import v2
from bkbox.wire.frames import bodies

HOST = "127.0.0.1"

Answer = Callable[[v2.Request], v2.Response | list[v2.Response] | None]
"""The responses to send once a request is there."""


@contextlib.contextmanager
def sink(*arguments: str) -> Iterator[int]:
    """The port of ``bkbox bench sink``."""
    command = [sys.executable, "-m", "bkbox.cli.main", "bench", "sink", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()


@contextlib.contextmanager
def server(answer: Answer) -> Iterator[int]:
    """The port of a server with one connection that answers as it is told; it is done with the
    connection at the end."""
    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answer))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, answer: Answer) -> None:
    try:
        link, _ = listener.accept()
    except OSError:
        return
    data = b""
    with link, contextlib.suppress(ConnectionError):
        while piece := link.recv(1 << 16):
            data += piece
            for body in bodies(data):
                data = data[4 + len(body) :]
                found = answer(_request(bytes(body)))
                for response in found if isinstance(found, list) else [found]:
                    if response is not None:
                        link.sendall(v2.encode_response(response))


def _request(body: bytes) -> v2.Request:
    request = v2.decode_request(body)
    assert isinstance(request, v2.AddRequest | v2.ReadRequest)
    return request
