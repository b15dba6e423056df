"""A disk worker's end of the link to the front-end: groups of batches in, responses out."""

from __future__ import annotations

import socket

from bkbox.base.text import error_text
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.ipc.frame_spans import FrameSpan, locate
from bkbox.ipc.link_socket import (
    BATCH,
    MESSAGE_BYTES,
    NO_SLOT,
    POLLED,
    RESPONSES,
    LinkSocket,
    lowest_bit,
)
from bkbox.native import memory

_BATCH = BATCH
_RESPONSES = RESPONSES
_POLLED = POLLED
_NO_SLOT = NO_SLOT
_BYTES = MESSAGE_BYTES
_DONT_WAIT = int(socket.MSG_DONTWAIT)


class RequestGroup:
    """Batches that are carried out together.

    ``slots``: mask of the request slots that they lie in; ``opened_us``: when the first of them was begun, on
    CLOCK_MONOTONIC; ``segments``: in the order of arrival, located in ``area``, which is shared memory, valid until the
    group is done. A segment without frames: the connection is closed.
    """

    __slots__ = ("area", "number", "opened_us", "segments", "slots")

    def __init__(self, number: int, opened_us: int, area: memoryview) -> None:
        self.number = number
        self.area = area
        self.slots = 0
        self.opened_us = opened_us
        self.segments: list[FrameSpan] = []


class ResponseSender:
    """Receives groups of batches, and packs responses into slots.

    All methods raise EOFError once the front-end is gone, or ``is_stuck``: it has released no slot within the time-out
    of the socket. What ``responses`` and ``poll_responses`` give is good until the next call of any of ``responses``,
    ``poll_responses``, ``done`` and ``flush``.
    """

    __slots__ = (
        "_free",
        "_kind",
        "_last",
        "_next",
        "_octets",
        "_requests",
        "_responses",
        "_slot",
        "_slot_bytes",
        "_socket",
        "_writer",
        "_writing",
        "is_stuck",
    )

    def __init__(
        self, sock: socket.socket, requests: memoryview, responses: list[memoryview]
    ) -> None:
        """``requests``: the area of slots of requests; ``responses``: the response slots, as many."""
        self._socket = LinkSocket(sock)
        self._requests = requests
        self._octets = requests
        self._slot_bytes = len(requests) // len(responses)
        self._responses = responses
        self._free = (1 << len(responses)) - 1
        self._next: RequestGroup | None = None
        self._last = 0
        self._writer = ResponseWriter(self._more)
        self._kind = 0
        self._writing = 0
        self._slot = -1
        self.is_stuck = False

    @property
    def has_batches(self) -> bool:
        """True if batches came during the wait for a response slot: the socket does not show them any more."""
        return self._next is not None

    @property
    def has_free_slot(self) -> bool:
        """True if ``acquire_slot`` does not wait."""
        return self._free != 0

    def pop_group(self) -> RequestGroup | None:
        """All batches that have arrived, without waiting for more; None if there are none."""
        self._receive(_DONT_WAIT)
        group = self._next
        self._next = None
        return group

    def _receive(self, flags: int) -> None:
        try:
            size = self._socket.receive(flags)
        except BlockingIOError:
            if flags:
                return
            self.is_stuck = True
            raise EOFError("the front-end takes no responses") from None
        inbox = self._socket.inbox
        at = 0
        while at < size:
            self._free |= memory.u32(inbox, at + 8)
            if inbox[at] == _BATCH:
                slot = memory.u16(inbox, at + 2)
                group = self._next
                if group is None:
                    self._last = (self._last + 1) & 0xFFFFFFFF
                    group = RequestGroup(self._last, memory.i64(inbox, at + 16), self._requests)
                    self._next = group
                group.slots |= 1 << slot
                start = slot * self._slot_bytes
                locate(self._octets, start, start + memory.u32(inbox, at + 4), group.segments)
            at += _BYTES

    # ---- responses ----------------------------------------------------------------------------------

    def responses(self, group: RequestGroup) -> ResponseWriter:
        """The writer for responses to frames of a group."""
        self._write_for(_RESPONSES, group.number)
        return self._writer

    def done(self, group: RequestGroup, *, read_only: bool) -> None:
        """Every frame of the group has its response or is a long poll: sends the remaining responses, and reports the
        group as done."""
        self._write_for(_RESPONSES, group.number)
        self._send_open(group.slots, read_only)

    def poll_responses(self) -> ResponseWriter:
        """The writer for responses to long polls, which are in no group."""
        self._write_for(_POLLED, 0)
        return self._writer

    def flush(self) -> None:
        """Send the responses that are not sent yet."""
        self._send_open(0, False)

    def _write_for(self, kind: int, group: int) -> None:
        if kind != self._kind or group != self._writing:
            self._send_open(0, False)
            self._kind = kind
            self._writing = group

    def _more(self, used: int) -> memoryview:
        """The next slot for the writer, after the present one is sent."""
        self._send_slot(used, 0, False)
        self._slot = self.acquire_slot()
        return self._responses[self._slot]

    def _send_open(self, mask: int, flag: bool) -> None:
        """Send what is being filled, or nothing, with the mask of a group that is done; nothing writes then."""
        if self._kind:
            self._send_slot(self._writer.finish(), mask, flag)
            self._kind = 0

    def _send_slot(self, used: int, mask: int, flag: bool) -> None:
        slot = self._slot
        self._slot = -1
        if slot >= 0 and used == 0:
            self._free |= 1 << slot
            slot = -1
        if slot >= 0 or mask:
            self.send(self._kind, flag, slot if slot >= 0 else _NO_SLOT, used, mask, self._writing)

    def acquire_slot(self) -> int:
        """Acquire a free response slot; waits for the front-end to release one."""
        while self._free == 0:
            self._receive(0)
        slot = lowest_bit(self._free)
        self._free ^= 1 << slot
        return slot

    def send(self, kind: int, flag: bool, slot: int, used: int, mask: int, group: int) -> None:
        """A message."""
        try:
            self._socket.send(kind, flag, slot, used, mask, group, 0)
        except OSError as error:
            raise EOFError(f"the front-end is gone: {error_text(error)}") from error
