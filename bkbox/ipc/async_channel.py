"""The asyncio end of a control channel (channel.py): ``call`` waits for the reply, the rest goes to ``on_message``."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Sequence

from bkbox.errors import BugError, ConnectionLostError
from bkbox.ipc.channel import FDS_MAX, MESSAGE_BYTES_MAX, Handler, raise_refusal
from bkbox.ipc.messages.message import Message, Refused, decode, encode


class AsyncChannel:
    """The asyncio end of a control channel."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_message: Handler | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_message = on_message
        self._on_close = on_close
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._queue: list[tuple[bytes, list[int]]] = []
        self.closed = False
        self._loop.add_reader(sock.fileno(), self._readable)

    async def call(
        self, message: Message, fds: Sequence[int] = (), timeout_s: float | None = None
    ) -> Message:
        """Sends a call and waits for its reply. Raises the error that the other process reports, ConnectionLostError or
        TimeoutError."""
        if self.closed:
            raise ConnectionLostError("the process at the other end of the control channel is gone")
        message.call = next(self._numbers)
        reply: asyncio.Future[Message] = self._loop.create_future()
        self._calls[message.call] = reply
        try:
            self.send(message, fds)
            received = await asyncio.wait_for(reply, timeout_s)
        finally:
            self._calls.pop(message.call, None)
        if isinstance(received, Refused):
            raise_refusal(received)
        return received

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends without waiting; queues while the socket buffer is full. Does nothing once the channel is closed.

        The descriptors are duplicated: the caller may close its own at once.
        """
        if self.closed:
            return
        self._queue.append((encode(message), [os.dup(fd) for fd in fds]))
        if len(self._queue) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._queue:
            data, fds = self._queue[0]
            try:
                if fds:
                    socket.send_fds(self._sock, [data], fds)
                else:
                    self._sock.send(data)
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError:
                self.close()
                return
            self._forget_first()
        self._loop.remove_writer(self._sock.fileno())

    def _forget_first(self) -> None:
        _data, fds = self._queue.pop(0)
        for fd in fds:
            os.close(fd)

    def _readable(self) -> None:
        while not self.closed:
            try:
                data, fds, _flags, _address = socket.recv_fds(
                    self._sock, MESSAGE_BYTES_MAX, FDS_MAX
                )
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self.close()
                return
            self._dispatch(data, fds)

    def _dispatch(self, data: bytes, fds: list[int]) -> None:
        """Dispatches a message. Descriptors go to ``on_message`` only: a reply has none, whatever a compromised process
        may attach. A call of the other side may have the number of one of ours: only a reply has no recipients."""
        try:
            message = self._decoded(data)
            is_reply = message.call and not message.recipients
            waiting = self._calls.get(message.call) if is_reply else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            elif self._on_message is not None:
                given, fds = fds, []
                self._on_message(message, given)
        finally:
            for fd in fds:
                os.close(fd)

    def _decoded(self, data: bytes) -> Message:
        """Decodes a message. Raises BugError after closing the channel: the message may have been the reply to any
        call, so all calls fail."""
        try:
            return decode(data)
        except BugError:
            self.close()
            raise

    def close(self) -> None:
        """Closes this end; calls in flight fail with ConnectionLostError."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        while self._queue:
            self._forget_first()
        for waiting in self._calls.values():
            if not waiting.done():
                waiting.set_exception(
                    ConnectionLostError(
                        "the process at the other end of the control channel is gone"
                    )
                )
        if self._on_close is not None:
            self._on_close()
