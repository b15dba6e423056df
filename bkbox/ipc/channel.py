"""Control channels: typed messages over a SOCK_SEQPACKET pair. This is the blocking end, which workers use; the other
processes run asyncio and use its end (async_channel.py).

End-of-file on a channel means that the other process is gone. The blocking end raises EOFError; the asyncio end fails
all calls with ConnectionLostError and calls ``on_close``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import NoReturn

from bkbox import errors
from bkbox.errors import BkboxError, BugError
from bkbox.ipc.messages.message import Message, Refused, decode, encode

MESSAGE_BYTES_MAX = 128 * 1024
FDS_MAX = 4

Handler = Callable[[Message, list[int]], None]
"""Receives a message and the descriptors that came with it."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def refusal(error: BkboxError) -> Refused:
    """The reply that carries an error to the caller's process."""
    return Refused(error=type(error).__name__, text=str(error))


def raise_refusal(refused: Refused) -> NoReturn:
    """Raises, in the caller's process, the error that the other process reported."""
    kind = getattr(errors, refused.error, None)
    if isinstance(kind, type) and issubclass(kind, BkboxError):
        raise kind(refused.text)
    raise BugError(f"{refused.error}: {refused.text}")


class Channel:
    """The blocking end, used by disk workers."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends a message. Raises EOFError if the other process is gone."""
        data = encode(message)
        try:
            if fds:
                socket.send_fds(self.sock, [data], list(fds))
            else:
                self.sock.send(data)
        except ConnectionError as error:
            raise EOFError("the other end of the control channel is gone") from error

    def receive(self) -> tuple[Message, list[int]]:
        """The next message and the descriptors that came with it. Raises EOFError."""
        try:
            data, fds, _flags, _address = socket.recv_fds(self.sock, MESSAGE_BYTES_MAX, FDS_MAX)
        except ConnectionError:
            data, fds = b"", []
        if not data:
            raise EOFError("the other end of the control channel is gone")
        return decode(data), fds

    def close(self) -> None:
        self.sock.close()
