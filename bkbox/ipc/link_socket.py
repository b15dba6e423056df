"""The socket of the link between the front-end and a disk worker: messages of 24 bytes, in both directions.

link.py defines the messages. A message is

    kind u8 | flag u8 | slot u16 | used u32 | mask u32 | group u32 | opened_us i64

Free slots are the bits of a mask, and the lowest is taken first: the same few slots are used again and again as long
as they suffice, which costs no memory and stays in the processor's cache.
"""

from __future__ import annotations

import socket

from bkbox.errors import BugError
from bkbox.native import memory

HELLO = 1
LEDGERS = 2
BATCH = 3
RESPONSES = 4
POLLED = 5
RELEASE = 6

NO_SLOT = 0xFFFF
MESSAGE_BYTES = 24

_BYTES = MESSAGE_BYTES
_INBOX_BYTES = 64 * MESSAGE_BYTES


class LinkSocket:
    """Sends and receives messages."""

    __slots__ = ("_outgoing", "_view", "inbox", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        inbox = bytearray(_INBOX_BYTES)
        self.inbox = memoryview(inbox)
        self._view = memoryview(inbox)
        self._outgoing = bytearray(_BYTES)

    def receive(self, flags: int) -> int:
        """Receive every waiting message; returns their bytes in ``inbox``. Raises EOFError if the other side is gone,
        and BlockingIOError.

        A process that dies with messages unread resets the connection: that is an end of file, too.
        """
        try:
            size = self.sock.recv_into(self._view, 0, flags)
        except ConnectionError:
            size = 0
        if size == 0:
            raise EOFError("the other end of the link is gone")
        if size % _BYTES:
            raise BugError(f"{size} bytes from the link are no whole messages")
        return size

    def send(
        self, kind: int, flag: int, slot: int, used: int, mask: int, group: int, opened_us: int
    ) -> None:
        """Send a message. Raises OSError. It never waits: few messages are in flight, and the socket's buffer holds
        hundreds.
        """
        outgoing = self._outgoing
        memory.put_u32(outgoing, 0, kind << 24 | flag << 16 | slot)
        memory.put_u32(outgoing, 4, used)
        memory.put_u32(outgoing, 8, mask)
        memory.put_u32(outgoing, 12, group)
        memory.put_i64(outgoing, 16, opened_us)
        self.sock.send(outgoing)


def lowest_bit(mask: int) -> int:
    """The lowest bit of a mask that has one."""
    slot = 0
    while not mask >> slot & 1:
        slot += 1
    return slot
