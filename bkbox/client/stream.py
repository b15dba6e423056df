"""One established connection to a bookie: frames out, answers in.

Frames of one turn of the event loop leave in one write. While the socket takes no more they wait
here, by reference, not as copies in the transport's buffer. What bounds them is the window of each
writer. A lost connection answers everything outstanding on it (CONNECTION_LOST).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from bkbox.client.matching import Decode, Request, Waiting
from bkbox.errors import FrameError
from bkbox.wire.frames import bodies, complete_frames

_WRITE_BYTES_MAX = 256 << 10
_FORGOTTEN_MAX = 256
"""Requests that timed out and are still owed an answer; a connection with more is given up."""


class Stream(asyncio.Protocol):
    """A connection from connection_made to connection_lost; ``number`` is that of its replies."""

    def __init__(
        self,
        number: int,
        decode: Decode,
        waiting: Waiting,
        frame_bytes_max: int,
        on_lost: Callable[[Stream], None],
    ) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self.has_answered = False
        self._number = number
        self._decode = decode
        self._waiting = waiting
        self._on_lost = on_lost
        self._frame_bytes_max = frame_bytes_max
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._flush_is_due = False
        self._outbox: deque[Request] = deque()
        self._partial = bytearray()

    # ---- out ------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        self._waiting.add(request)
        self._outbox.append(request)
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def forget(self) -> None:
        """One of the requests has timed out."""
        self._waiting.forgotten += 1
        if self._waiting.forgotten > _FORGOTTEN_MAX:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        self._flush_is_due = False
        while self._outbox and not self._paused and self._transport is not None:
            frames: list[bytes] = []
            size = 0
            while self._outbox and size < _WRITE_BYTES_MAX:
                request = self._outbox.popleft()
                if request.reply.done():
                    self._waiting.take_back(request)
                    continue
                frames.append(request.frame)
                size += len(request.frame)
                request.frame = b""
            if frames:
                # Not writelines: Python 3.12's does not tell the protocol when to pause.
                self._transport.write(b"".join(frames))

    # ---- in -------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self._take(data)
        except FrameError:
            self.abort()

    def _take(self, data: bytes) -> None:
        chunk: bytes | bytearray = data
        if self._partial:
            self._partial += data
            chunk = self._partial
        end = complete_frames(chunk, self._frame_bytes_max)
        if end == 0:
            if not self._partial:
                self._partial += chunk
            return
        self._partial = bytearray(chunk[end:])
        for body in bodies(memoryview(chunk)[:end], self._frame_bytes_max):
            self._waiting.answered(*self._decode(body, self._number))
            self.has_answered = True

    # ---- the transport's calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        link: socket.socket = transport.get_extra_info("socket")
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, _exception: Exception | None) -> None:
        self._transport = None
        self._outbox.clear()
        self._waiting.end_all()
        self._on_lost(self)
        self.closed.set_result(None)
