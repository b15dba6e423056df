"""The link between the front-end and one disk worker: who owns which slot of shared memory.

One SOCK_SEQPACKET pair a link, so every message arrives whole or not at all, and the death of either side is an
end-of-file for the other. Two slot areas belong to a link: requests (written by the front-end) and answers
(written by the worker).

=========  ==================  ========================================================================
message    from                meaning
=========  ==================  ========================================================================
HELLO      front-end           carries the descriptors of both areas; the first message
LEDGERS    worker              slot of answers holds ledger ids (u64 each) that the disk has; flag: the list ends
BATCH      front-end           slot of requests is full of frames and now the worker's
ANSWER     worker              slot of answers is full of frames and now the front-end's
DONE       worker              used: mask of the slots of a batch; every frame in them was answered, but for long
                               polls, and they are free again; flag: read-only. One message a batch: all of it is
                               done, or nothing
POLLED     worker              as ANSWER; the frames answer long polls, whatever batch they came in
RELEASE    front-end           the slot of answers was read; it is free again
=========  ==================  ========================================================================

A long poll outlives its batch. When its connection is closed the worker learns it from a segment of that connection
without any frame, in a batch like any other: behind the poll, and under the same back-pressure.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

_MESSAGE = struct.Struct("=BBHI")


class LinkKind(IntEnum):
    HELLO = 1
    LEDGERS = 2
    BATCH = 3
    ANSWER = 4
    DONE = 5
    RELEASE = 6
    POLLED = 7


@dataclass(frozen=True, slots=True)
class LinkMessage:
    kind: LinkKind
    slot: int = 0
    used: int = 0
    flag: bool = False


def pack(message: LinkMessage) -> bytes:
    return _MESSAGE.pack(message.kind, message.flag, message.slot, message.used)


def unpack(data: bytes) -> LinkMessage:
    kind, flag, slot, used = _MESSAGE.unpack(data)
    return LinkMessage(LinkKind(kind), slot, used, bool(flag))


def slot_mask(slots: Iterable[int]) -> int:
    """A bit for each slot."""
    return sum(1 << index for index in slots)


def slots_in(mask: int) -> list[int]:
    """The slots of a mask, ascending."""
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


def send_hello(sock: socket.socket, request_fd: int, answer_fd: int) -> None:
    """Hand both areas over to the worker."""
    socket.send_fds(sock, [pack(LinkMessage(LinkKind.HELLO))], [request_fd, answer_fd])


def receive_hello(sock: socket.socket) -> tuple[int, int]:
    """The descriptors of (requests, answers); blocks. Raises EOFError if the front-end is gone already."""
    try:
        data, fds, _flags, _address = socket.recv_fds(sock, _MESSAGE.size, 2)
    except ConnectionError:
        data, fds = b"", []
    if not data or len(fds) != 2:
        raise EOFError("the front-end closed the link before its hello")
    return fds[0], fds[1]


def receive(sock: socket.socket, flags: int = 0) -> bytes:
    """One message; empty where the other side is gone. Raises BlockingIOError.

    A process that dies with messages unread resets the connection: that is an end, too.
    """
    try:
        return sock.recv(_MESSAGE.size, flags)
    except ConnectionError:
        return b""
