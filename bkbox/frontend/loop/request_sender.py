"""The front-end's end of the link to a disk worker, for every batch of requests and responses."""

from __future__ import annotations

import socket
import time
from array import array

from bkbox.frontend.loop.connection import Connection, deliver
from bkbox.frontend.loop.routing import DiskQueue
from bkbox.ipc.frame_spans import Segment, segments
from bkbox.ipc.link_socket import (
    BATCH,
    MESSAGE_BYTES,
    NO_SLOT,
    RELEASE,
    RESPONSES,
    LinkSocket,
    lowest_bit,
)
from bkbox.native import memory

_BATCH = BATCH
_RESPONSES = RESPONSES
_RELEASE = RELEASE
_NO_SLOT = NO_SLOT
_BYTES = MESSAGE_BYTES

_stopwatch = time.monotonic_ns


class RequestSender:
    """Sends batches of requests, and hands the responses to the connections.

    Rare operations are left to the methods without a body. ``watches_done``: True if ``done`` has to be called;
    ``lane``: the queue for requests, which are sent when the turn ends or a slot is full.
    """

    __slots__ = (
        "_free",
        "_opened_us",
        "_read",
        "_released",
        "_requests",
        "_responses",
        "_sent",
        "_slot",
        "_socket",
        "_streams",
        "_used",
        "closed",
        "lane",
        "watches_done",
        "writable",
    )

    def __init__(
        self,
        sock: socket.socket,
        requests: list[memoryview],
        responses: list[memoryview],
        streams: dict[int, Connection],
    ) -> None:
        """``requests``, ``responses``: the slots; ``streams``: the connections by number, kept up to date."""
        self.lane = DiskQueue(self._next_slot)
        self.closed = False
        self.writable = True
        self.watches_done = False
        self._socket = LinkSocket(sock)
        self._streams = streams
        self._requests = requests
        self._responses = responses
        self._free = (1 << len(requests)) - 1
        self._sent = 0
        self._used = memoryview(array("q", bytes(8 * len(requests))))
        self._slot = -1
        self._opened_us = 0
        self._read = 0
        self._released = 0

    def other(self, kind: int, flag: int, slot: int, used: int) -> None:
        """Handle a message without responses to batches; its slot was read when this returns."""
        raise NotImplementedError

    def remember(self, group: int, slot: int, used: int) -> None:
        """Note a slot of responses to a group that is not complete."""
        raise NotImplementedError

    def done(self, mask: int, group: int) -> None:
        """A group has all its responses, and these slots of requests are free."""
        raise NotImplementedError

    def lose(self) -> None:
        """The worker is gone."""
        raise NotImplementedError

    @property
    def open_slot(self) -> int:
        """The slot of requests that is being filled, -1 if there is none."""
        return self._slot

    def pending_requests(self) -> list[Segment]:
        """Requests in slots that are not done, the open one included."""
        found: list[Segment] = []
        for slot, view in enumerate(self._requests):
            if self._sent >> slot & 1:
                found += segments(view, self._used[slot])
        if self._slot >= 0:
            found += segments(self._requests[self._slot], self.lane.used)
        return found

    def _next_slot(self) -> memoryview | None:
        """A free slot for the queue, after the present one is sent."""
        self._send_batch()
        if self._free == 0:
            return None
        self._slot = lowest_bit(self._free)
        self._free ^= 1 << self._slot
        self._opened_us = _stopwatch() // 1000
        return self._requests[self._slot]

    def _send_batch(self) -> None:
        slot = self._slot
        if slot < 0:
            return
        self._slot = -1
        used = self.lane.finish()
        if used == 0:
            self._free |= 1 << slot
            return
        self._sent |= 1 << slot
        self._used[slot] = used
        released = self._released
        self._released = 0
        self._send(_BATCH, slot, used, released)

    def _send(self, kind: int, slot: int, used: int, mask: int) -> None:
        try:
            self._socket.send(kind, 0, slot, used, mask, 0, self._opened_us)
        except OSError:
            return  # the worker is gone: its last messages are still to be read, followed by the end of the stream

    def hand_over(self) -> None:
        """Hand the open slot to the worker."""
        if not self.closed:
            self._send_batch()

    def end_turn(self) -> None:
        """Release the slots of responses that were read in this turn: the next batch carries the release, or a
        message of its own when there are many of them.
        """
        if self.closed:
            return
        self._released |= self._read
        self._read = 0
        if self._slot >= 0:
            self._send_batch()
        elif self._released and 2 * _count(self._released) >= len(self._responses):
            released = self._released
            self._released = 0
            self._send(_RELEASE, _NO_SLOT, 0, released)

    def receive(self) -> None:
        """Receive every message that has arrived."""
        try:
            size = self._socket.receive(0)
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self.lose()
            return
        inbox = self._socket.inbox
        at = 0
        while at < size and not self.closed:
            kind = inbox[at]
            flag = inbox[at + 1]
            slot = memory.u16(inbox, at + 2)
            used = memory.u32(inbox, at + 4)
            mask = memory.u32(inbox, at + 8)
            group = memory.u32(inbox, at + 12)
            at += _BYTES
            if slot != _NO_SLOT:
                if kind != _RESPONSES:
                    self.other(kind, flag, slot, used)
                else:
                    if mask == 0:
                        self.remember(group, slot, used)
                    deliver(self._responses[slot], used, self._streams)
                self._read |= 1 << slot
            if mask:
                self._done(mask, group, flag)

    def _done(self, mask: int, group: int, flag: int) -> None:
        self.writable = flag == 0
        self._sent &= ~mask
        self._free |= mask
        if self.watches_done:
            self.done(mask, group)
        if self.lane.waiting:
            self.go_on()

    def go_on(self) -> None:
        """Let the waiting connections try again for a slot."""
        waiting = self.lane.waiting[:]
        self.lane.waiting.clear()
        for stream in waiting:
            stream.on_slot_free()


def _count(mask: int) -> int:
    found = 0
    while mask:
        mask &= mask - 1
        found += 1
    return found
