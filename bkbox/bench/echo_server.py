"""The peer of the load generator that measures the ceiling: a server that does none of a bookie's work.

A sink reads only the length of a frame and the ids that its response has to repeat. It responds to every
add with EOK, having kept nothing or, with a file, having appended the bytes as they came ('the
limit': no bookie can do less), and every read with an entry that has the right ids. Nothing is
synced, checked or found again. Layouts: wire/v2.py.
"""

from __future__ import annotations

import contextlib
import os
import socket

from bkbox.errors import FrameError
from bkbox.native import memory

_REQUEST_BYTES = 1 << 20
_ADD_RESPONSE_BYTES = 28
_OP_ADD = 1


class Sink:
    """One connection. ``size``: payload, in bytes, of the entries in responses to reads.
    ``file``: descriptor of the file that adds are appended to, -1 for none."""

    def __init__(self, link: socket.socket, size: int, file: int) -> None:
        self.link = link
        self.file = file
        requests = bytearray(_REQUEST_BYTES)
        self.requests = requests
        self.requests_view = memoryview(requests)
        self.limit = _REQUEST_BYTES
        self.filled = 0
        self.read_response_bytes = _ADD_RESPONSE_BYTES + 32 + size
        # As many responses as requests of the least size fit, made at once and sent at once.
        self.responses_limit = 1 << 20
        responses = bytearray(self.responses_limit + self.read_response_bytes)
        self.responses = responses
        self.responses_view = memoryview(responses)
        self.start = 0
        self.end = 0

    @property
    def has_unsent(self) -> bool:
        """True if responses wait for the socket."""
        return self.start < self.end

    def receive(self) -> bool:
        """Receives requests; False if the peer has closed the connection."""
        size = self.link.recv_into(self.requests_view[self.filled :])
        self.filled += size
        return size > 0

    def store(self) -> bool:
        """Processes the complete frames received, unless earlier responses wait; returns True if there is something to
        send. Raises FrameError."""
        if self.start == self.end:
            done = self._process()
            if done:
                if self.file >= 0:
                    os.write(self.file, self.requests_view[:done])
                self.requests_view[: self.filled - done] = self.requests_view[done : self.filled]
                self.filled -= done
        return self.start < self.end

    def send(self) -> bool:
        """Sends responses as far as the socket takes them; True if all are sent."""
        with contextlib.suppress(BlockingIOError):
            self.start += self.link.send(self.responses_view[self.start : self.end])
        return self.start == self.end

    def _process(self) -> int:
        at = 0
        end = 0
        while self.filled - at >= 24 and end < self.responses_limit:
            length = memory.u32(self.requests, at) + 4
            if length > self.limit or length < 24:
                raise FrameError(f"a request of {length} bytes")
            if length > self.filled - at:
                break
            if memory.u16(self.requests, at + 4) & 0xFF == _OP_ADD:
                memory.put_u32(self.responses, end, _ADD_RESPONSE_BYTES - 4)
                memory.copy(self.responses, end + 12, self.requests, at + 28, at + 44)
                memory.put_u32(self.responses, end + 4, memory.u32(self.requests, at + 4))
                memory.put_u32(self.responses, end + 8, 0)
                end += _ADD_RESPONSE_BYTES
            else:
                memory.put_u32(self.responses, end, self.read_response_bytes - 4)
                memory.copy(self.responses, end + 12, self.requests, at + 8, at + 24)
                memory.copy(self.responses, end + 28, self.requests, at + 8, at + 24)
                memory.put_u32(self.responses, end + 4, memory.u32(self.requests, at + 4))
                memory.put_u32(self.responses, end + 8, 0)
                end += self.read_response_bytes
            at += length
        self.start = 0
        self.end = end
        return at
