"""The link between the front-end and one disk worker: it passes the ownership of shared-memory slots.

Each front-end has one link to each worker, which is one AF_UNIX stream pair with messages of one fixed size. Messages
are so small that each is sent whole or not at all, and one ``recv`` receives all that are queued. The death of either
side is an end-of-file for the other. Two slot areas belong to a link: requests (written by the front-end) and responses
(written by the worker).

=========  ==========  ================================================================================
message    from        meaning
=========  ==========  ================================================================================
HELLO      front-end   carries the descriptors of both areas; the first message
LEDGERS    worker      a response slot holds ids (u64 each) of ledgers on the disk; flag: the list ends
BATCH      front-end   a request slot holds frames and passes to the worker; opened_us: when it was begun;
                       mask: response slots that were read and are free again
RESPONSES   worker      a response slot (NO_SLOT: none) holds responses to a group of batches and passes to
                       the front-end; mask: 0, or the request slots of the group once every frame in them is
                       answered, except long polls; these slots are free again; flag (with a mask): read-only
POLLED     worker      a response slot holds responses to long polls, whatever batch they came in
RELEASE    front-end   mask: response slots that were read and are free again; sent only when there are many
                       of them and no BATCH to carry the mask
=========  ==========  ================================================================================

A worker receives all queued batches as one group, and numbers its groups. Groups overlap: responses to one may come
before the last response to the previous one. Most groups have a single RESPONSES message.

A long poll outlives its batch. The worker learns that its connection is closed from a segment of that connection
without any frame, in a batch like any other: behind the poll, and under the same backpressure.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from bkbox.base.limits import FRONTENDS_MAX
from bkbox.ipc.link_socket import (
    BATCH,
    HELLO,
    LEDGERS,
    MESSAGE_BYTES,
    NO_SLOT,
    POLLED,
    RELEASE,
    RESPONSES,
)
from bkbox.ipc.slots import SLOT_COUNT

__all__ = [
    "RESPONSES",
    "BATCH",
    "HELLO",
    "LEDGERS",
    "NO_SLOT",
    "POLLED",
    "RELEASE",
    "connections_of",
    "frontend_of",
    "pair",
    "receive_hello",
    "send_hello",
]

assert SLOT_COUNT <= 32  # bits of a mask

_CONNECTION_BITS = 28
assert FRONTENDS_MAX <= 1 << 32 - _CONNECTION_BITS


def connections_of(frontend: int) -> range:
    """The numbers of the connections of a front-end: no two front-ends share one."""
    return range(frontend << _CONNECTION_BITS, frontend + 1 << _CONNECTION_BITS)


def frontend_of(connection: int) -> int:
    """The front-end that a connection belongs to."""
    return connection >> _CONNECTION_BITS


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def send_hello(sock: socket.socket, request_fd: int, response_fd: int) -> None:
    """Passes both areas to the worker. If the worker is gone already, the next receive reports it."""
    with suppress(ConnectionError):
        socket.send_fds(
            sock, [bytes([HELLO]).ljust(MESSAGE_BYTES, b"\0")], [request_fd, response_fd]
        )


def receive_hello(sock: socket.socket) -> tuple[int, int]:
    """The descriptors of (requests, responses); blocks. Raises EOFError if the front-end is gone already."""
    try:
        data, fds, _flags, _address = socket.recv_fds(sock, MESSAGE_BYTES, 2)
    except ConnectionError:
        data, fds = b"", []
    if not data or len(fds) != 2:
        raise EOFError("the front-end closed the link before its hello")
    return fds[0], fds[1]
