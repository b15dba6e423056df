"""Control channels: typed messages over a SOCK_SEQPACKET pair. Here the blocking end, which workers use; the other
processes have asyncio and its end (asyncchannel.py).

End-of-file on a channel means that the other process is gone; both classes say so, with EOFError (blocking) or by
failing all calls with ConnectionLostError and calling ``on_close`` (asyncio).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import NoReturn

from bkbox import errors
from bkbox.errors import BkboxError, BugError
from bkbox.ipc import messages
from bkbox.ipc.messages import Message, Refused

MESSAGE_BYTES_MAX = 128 * 1024
FDS_MAX = 4

Handler = Callable[[Message, list[int]], None]
"""Takes a message and the descriptors that came with it."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def refusal(error: BkboxError) -> Refused:
    """The reply that carries an error to the caller's process."""
    return Refused(error=type(error).__name__, text=str(error))


def raise_refusal(refused: Refused) -> NoReturn:
    """Raise, in the caller's process, the error that the other process met."""
    kind = getattr(errors, refused.error, None)
    if isinstance(kind, type) and issubclass(kind, BkboxError):
        raise kind(refused.text)
    raise BugError(f"{refused.error}: {refused.text}")


class Channel:
    """Blocking end, used by disk workers."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Raises EOFError."""
        data = messages.encode(message)
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
        return messages.decode(data), fds

    def close(self) -> None:
        self.sock.close()
