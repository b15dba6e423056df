"""The link between the front-end and one disk worker: who owns which slot of shared memory.

One AF_UNIX stream pair a link, messages of one fixed size: so few bytes are sent whole or not at all, and one ``recv``
takes every message that waits. The death of either side is an end-of-file for the other. Two slot areas belong to a
link: requests (written by the front-end) and answers (written by the worker).

=========  ==========  ================================================================================
message    from        meaning
=========  ==========  ================================================================================
HELLO      front-end   carries the descriptors of both areas; the first message
LEDGERS    worker      slot of answers holds ledger ids (u64 each) that the disk has; flag: the list ends
BATCH      front-end   slot of requests is full of frames and now the worker's; opened_us: when it was
                       begun; mask: slots of answers that were read and are free again
ANSWER     worker      slot of answers (NO_SLOT: none) is full of answers to a group of batches and now the
                       front-end's; mask: 0, or the request slots of the group, of which every frame has
                       been answered now, but for long polls, and which are free again; flag (with a mask):
                       read-only
POLLED     worker      slot of answers is full of answers to long polls, whatever batch they came in
RELEASE    front-end   mask: slots of answers that were read and are free again; sent only when there are many
                       of them and no BATCH that could say so
=========  ==========  ================================================================================

A worker takes all batches that wait as one group, and numbers its groups. Groups overlap: answers to the next may come
before the last of the one before. Most groups have one ANSWER, which is the first and the last.

A long poll outlives its batch. When its connection is closed the worker learns it from a segment of that connection
without any frame, in a batch like any other: behind the poll, and under the same back-pressure.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from bkbox.ipc.slots import SLOT_COUNT
from bkbox.kernel.batches import (
    ANSWER,
    BATCH,
    HELLO,
    LEDGERS,
    MESSAGE_BYTES,
    NO_SLOT,
    POLLED,
    RELEASE,
)

__all__ = [
    "ANSWER",
    "BATCH",
    "HELLO",
    "LEDGERS",
    "NO_SLOT",
    "POLLED",
    "RELEASE",
    "pair",
    "receive_hello",
    "send_hello",
]

assert SLOT_COUNT <= 32  # bits of a mask


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def send_hello(sock: socket.socket, request_fd: int, answer_fd: int) -> None:
    """Hand both areas over to the worker. One that is gone by now is found gone by whoever receives from it."""
    with suppress(ConnectionError):
        socket.send_fds(sock, [bytes([HELLO]).ljust(MESSAGE_BYTES, b"\0")], [request_fd, answer_fd])


def receive_hello(sock: socket.socket) -> tuple[int, int]:
    """The descriptors of (requests, answers); blocks. Raises EOFError if the front-end is gone already."""
    try:
        data, fds, _flags, _address = socket.recv_fds(sock, MESSAGE_BYTES, 2)
    except ConnectionError:
        data, fds = b"", []
    if not data or len(fds) != 2:
        raise EOFError("the front-end closed the link before its hello")
    return fds[0], fds[1]
