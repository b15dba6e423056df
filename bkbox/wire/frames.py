"""Frames: the delimiting of both protocol versions in the byte stream of a connection.

A frame is ``uint32 length`` and ``length`` bytes of body; the length does not count itself, the limit does
(nettyMaxFrameSizeBytes bounds length + 4). An empty, negative or too long frame cannot be skipped: the connection has
to be closed. Source: BookieNettyServer.java (LengthFieldBasedFrameDecoder).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from bkbox.base.limits import FRAME_BYTES_MAX
from bkbox.errors import FrameError

LENGTH = Struct(">i")
PREFIX_BYTES = LENGTH.size


def frame_end(buffer: bytes | bytearray | memoryview, start: int, limit: int) -> int | None:
    """The end of the frame that begins at ``start``; None while its length is incomplete.

    The end may lie beyond the buffer. Raises FrameError.
    """
    if len(buffer) - start < PREFIX_BYTES:
        return None
    (length,) = LENGTH.unpack_from(buffer, start)
    if not 0 < length <= limit - PREFIX_BYTES:
        raise FrameError(f"frame of {length} bytes: 1 to {limit - PREFIX_BYTES} are allowed")
    end: int = start + PREFIX_BYTES + length
    return end


def complete_frames(buffer: bytes | bytearray | memoryview, limit: int = FRAME_BYTES_MAX) -> int:
    """The end of the last whole frame; 0 if there is none. Raises FrameError."""
    size = len(buffer)
    done = 0
    while True:
        end = frame_end(buffer, done, limit)
        if end is None or end > size:
            return done
        done = end


def bodies(
    buffer: bytes | bytearray | memoryview, limit: int = FRAME_BYTES_MAX
) -> Iterator[memoryview]:
    """The bodies of the whole frames in the buffer, in place; a partial frame is left out.

    Raises FrameError at an invalid frame.
    """
    view = memoryview(buffer)
    start = 0
    while True:
        end = frame_end(view, start, limit)
        if end is None or end > len(view):
            return
        yield view[start + PREFIX_BYTES : end]
        start = end


def frame(body: bytes | bytearray | memoryview) -> bytes:
    """The whole frame with this body."""
    return LENGTH.pack(len(body)) + body
