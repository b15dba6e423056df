"""One established connection to a bookie: frames out, responses in.

The frames of one event-loop turn leave in one write. Under backpressure from the socket they wait here, by reference,
not as copies in the transport's buffer. The window of each writer bounds them. Responses are read into one buffer,
which grows to the largest response. A lost connection ends every request outstanding on it (CONNECTION_LOST).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from bkbox.client.connection.add_responses import whole_frames
from bkbox.client.connection.adds import AddSend
from bkbox.client.connection.flush_batcher import FlushBatcher
from bkbox.client.connection.response_matcher import Buffer, Decode, PendingRequests, Request
from bkbox.errors import FrameError
from bkbox.wire.frames import LENGTH, PREFIX_BYTES

_READ_BYTES = 64 << 10
_READ_BYTES_MAX = 1 << 20
"""Bytes of one read: the size of the first buffer, and of the one after reads that filled it. A larger response has a
larger buffer.
"""

_WRITE_BYTES_MAX = 256 << 10
_FORGOTTEN_MAX = 256
"""Timed-out requests whose responses are outstanding; a connection with more is closed."""


class FramedConnection(asyncio.BufferedProtocol):
    """A connection from connection_made to connection_lost; ``number`` is the one in its replies."""

    def __init__(
        self,
        number: int,
        decode: Decode,
        pending: PendingRequests,
        frame_bytes_max: int,
        flush_batcher: FlushBatcher,
        on_lost: Callable[[FramedConnection], None],
    ) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self.has_received = False
        self.pending = pending
        self._number = number
        self._decode = decode
        self._on_lost = on_lost
        self._frame_bytes_max = frame_bytes_max
        self._flush_batcher = flush_batcher
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._outbox: deque[Request | AddSend] = deque()
        self._unsent = memoryview(b"")
        """The unsent part of the frames being written."""
        self._read = memoryview(bytearray(_READ_BYTES))
        self._filled = 0

    # ---- out ------------------------------------------------------------------------------------

    def send(self, item: Request | AddSend) -> None:
        self.pending.add(item)
        self._outbox.append(item)
        self._flush_batcher.write(self._flush)

    def forget(self, item: Request | AddSend) -> None:
        """Note that a request timed out."""
        self.pending.forget(item)
        if self.pending.forgotten > _FORGOTTEN_MAX:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        try:
            while not self._paused and self._transport is not None and (pieces := self._pieces()):
                # Not writelines: Python 3.12's does not tell the protocol when to pause.
                self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        except BaseException:
            self.abort()  # frames taken off the outbox are not on the wire
            raise

    def _pieces(self) -> list[Buffer]:
        """The next buffers to write; empty if all is written."""
        pieces: list[Buffer] = []
        budget = _WRITE_BYTES_MAX
        while budget > 0:
            if not self._unsent:
                if not self._outbox:
                    break
                item = self._outbox.popleft()
                if item.is_over:
                    self.pending.withdraw(item)
                    continue
                self._unsent = memoryview(item.frame)
                item.frame = b""
            pieces.append(self._unsent[:budget])
            self._unsent = self._unsent[budget:]
            budget -= len(pieces[-1])
        return pieces

    # ---- in -------------------------------------------------------------------------------------

    def get_buffer(self, _hint: int) -> memoryview:
        return self._read[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self._filled += size
        try:
            self._receive()
        except FrameError:
            self.abort()

    def _receive(self) -> None:
        data, filled = self._read, self._filled
        end = whole_frames(data, 0, filled, self._frame_bytes_max)
        start = 0
        while start < end:
            start = self.pending.match_adds(data, start, end, self._number)
            if start < end:
                start = self._receive_frame(data, start)
        self.has_received = self.has_received or end > 0
        self._grow_buffer(end)

    def _receive_frame(self, data: memoryview, start: int) -> int:
        (size,) = LENGTH.unpack_from(data, start)
        end: int = start + PREFIX_BYTES + size
        body = bytes(data[start + PREFIX_BYTES : end])  # replies outlive the buffer's contents
        self.pending.complete(*self._decode(body, self._number), self._number)
        return end

    def _grow_buffer(self, end: int) -> None:
        """Keep the bytes from ``end`` on, in a buffer large enough for the frame that they begin."""
        data, filled = self._read, self._filled
        partial = filled - end
        needed = len(data)
        if partial >= PREFIX_BYTES:
            needed = max(needed, PREFIX_BYTES + LENGTH.unpack_from(data, end)[0])
        elif filled == len(data):
            needed = min(2 * needed, max(needed, _READ_BYTES_MAX))
        if needed > len(data):
            self._read = memoryview(bytearray(needed))
        if partial and (end or needed > len(data)):
            self._read[:partial] = data[end:filled]
        self._filled = partial

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
        self._unsent = memoryview(b"")
        self.pending.end_all()
        self._on_lost(self)
        self.closed.set_result(None)
