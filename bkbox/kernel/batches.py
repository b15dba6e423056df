"""Both ends of the link between the front-end and a disk worker, as far as every batch passes.

Messages and what they mean are in ipc/link.py, the format of slots is in ipc/slots.py. A message is

    kind u8 | flag u8 | slot u16 | used u32 | mask u32 | group u32 | opened_us i64

Free slots are the bits of a mask, and the lowest is taken first: the same few slots are used again and again as long as
they suffice, which costs no memory and stays in the processor's cache.
"""

from __future__ import annotations

import socket
import time
from array import array

from bkbox.errors import BugError
from bkbox.kernel import octets
from bkbox.kernel.answers import AnswerWriter
from bkbox.kernel.routes import Lane
from bkbox.kernel.stream import Stream, deliver

HELLO = 1
LEDGERS = 2
BATCH = 3
ANSWER = 4
POLLED = 5
RELEASE = 6

NO_SLOT = 0xFFFF
MESSAGE_BYTES = 24

_BATCH = BATCH
_ANSWER = ANSWER
_POLLED = POLLED
_RELEASE = RELEASE
_NO_SLOT = NO_SLOT
_BYTES = MESSAGE_BYTES
_INBOX_BYTES = 64 * MESSAGE_BYTES
_HEADER_BYTES = 12
_HEAD_BYTES = 32
"""Both versions have what tells answers apart in so many bytes: ids, or a header with a transaction id."""

Segment = tuple[int, int, memoryview]
"""Connection, number of frames, the frames."""

Located = tuple[int, int, int, int]
"""Connection, number of frames, where in an area of slots the frames begin and end."""

_stopwatch = time.monotonic_ns
_DONT_WAIT = int(socket.MSG_DONTWAIT)


class Post:
    """Messages in and out."""

    __slots__ = ("_inbox", "_inbox_view", "_outgoing", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        inbox = bytearray(_INBOX_BYTES)
        self._inbox = memoryview(inbox)
        self._inbox_view = memoryview(inbox)
        self._outgoing = bytearray(_BYTES)

    def receive(self, flags: int) -> int:
        """Take every message that waits: how many bytes of ``inbox`` they have. Raises EOFError where the other side
        is gone, and BlockingIOError.

        A process that dies with messages unread resets the connection: that is an end, too.
        """
        try:
            size = self.sock.recv_into(self._inbox_view, 0, flags)
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
        """Raises OSError. It never waits: few messages are under way, and the socket's buffer holds hundreds."""
        outgoing = self._outgoing
        octets.put_u32(outgoing, 0, kind << 24 | flag << 16 | slot)
        octets.put_u32(outgoing, 4, used)
        octets.put_u32(outgoing, 8, mask)
        octets.put_u32(outgoing, 12, group)
        octets.put_i64(outgoing, 16, opened_us)
        self.sock.send(outgoing)


# ---- the front-end's end ----------------------------------------------------------------------------


class RequestEnd:
    """Sends batches of requests, and hands the answers to the connections.

    What is not frequent is left to the methods without a body. ``watches_done``: whether ``done`` has to be called;
    ``lane``: where requests are put, which go when the turn ends or a slot is full.
    """

    __slots__ = (
        "_answers",
        "_free",
        "_opened_us",
        "_post",
        "_read",
        "_released",
        "_requests",
        "_sent",
        "_slot",
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
        answers: list[memoryview],
        streams: dict[int, Stream],
    ) -> None:
        """``requests``, ``answers``: the slots; ``streams``: the connections by number, as they come and go."""
        self.lane = Lane(self._next_slot)
        self.closed = False
        self.writable = True
        self.watches_done = False
        self._post = Post(sock)
        self._streams = streams
        self._requests = requests
        self._answers = answers
        self._free = (1 << len(requests)) - 1
        self._sent = 0
        self._used = memoryview(array("q", bytes(8 * len(requests))))
        self._slot = -1
        self._opened_us = 0
        self._read = 0
        self._released = 0

    def other(self, kind: int, flag: int, slot: int, used: int) -> None:
        """A message that carries no answers to batches; its slot was read when this returns."""
        raise NotImplementedError

    def remember(self, group: int, slot: int, used: int) -> None:
        """A slot of answers to a group that is not done with them."""
        raise NotImplementedError

    def done(self, mask: int, group: int) -> None:
        """Of a group everything is answered, and these slots of requests are free."""
        raise NotImplementedError

    def lose(self) -> None:
        """The worker is gone."""
        raise NotImplementedError

    @property
    def open_slot(self) -> int:
        """The slot of requests that is being filled, -1 where there is none."""
        return self._slot

    def unanswered(self) -> list[Segment]:
        """Requests in slots that are not done, the open one included."""
        found: list[Segment] = []
        for slot, view in enumerate(self._requests):
            if self._sent >> slot & 1:
                found += segments(view, self._used[slot])
        if self._slot >= 0:
            found += segments(self._requests[self._slot], self.lane.used)
        return found

    def _next_slot(self) -> memoryview | None:
        """For the lane: a free slot, after the present one is sent."""
        self._send_batch()
        if self._free == 0:
            return None
        self._slot = _lowest(self._free)
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
            self._post.send(kind, 0, slot, used, mask, 0, self._opened_us)
        except OSError:
            return  # the worker is gone: what it has sent is still to be read, and then comes the end

    def hand_over(self) -> None:
        """Hand the open slot to the worker."""
        if not self.closed:
            self._send_batch()

    def end_turn(self) -> None:
        """Give back the slots of answers that were read in this turn: the next batch says so, or else a message
        when there are many of them."""
        if self.closed:
            return
        self._released |= self._read
        self._read = 0
        if self._slot >= 0:
            self._send_batch()
        elif self._released and 2 * _count(self._released) >= len(self._answers):
            released = self._released
            self._released = 0
            self._send(_RELEASE, _NO_SLOT, 0, released)

    def receive(self) -> None:
        """Take every message that is there."""
        try:
            size = self._post.receive(0)
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self.lose()
            return
        inbox = self._post._inbox
        at = 0
        while at < size and not self.closed:
            kind = inbox[at]
            flag = inbox[at + 1]
            slot = octets.u16(inbox, at + 2)
            used = octets.u32(inbox, at + 4)
            mask = octets.u32(inbox, at + 8)
            group = octets.u32(inbox, at + 12)
            at += _BYTES
            if slot != _NO_SLOT:
                if kind != _ANSWER:
                    self.other(kind, flag, slot, used)
                else:
                    if mask == 0:
                        self.remember(group, slot, used)
                    deliver(self._answers[slot], used, self._streams)
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
        """Those who had to wait for a slot may try again."""
        waiting = self.lane.waiting[:]
        self.lane.waiting.clear()
        for stream in waiting:
            stream.has_slot()


# ---- the worker's end -------------------------------------------------------------------------------


class Group:
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
        self.segments: list[Located] = []


class AnswerEnd:
    """Takes groups of batches, and packs answers into slots.

    All methods raise EOFError once the front-end is gone. What ``answers`` and ``polled`` give is good until the next
    call of any of ``answers``, ``polled``, ``done`` and ``flush``.
    """

    __slots__ = (
        "_answers",
        "_free",
        "_kind",
        "_last",
        "_next",
        "_octets",
        "_post",
        "_requests",
        "_slot",
        "_slot_bytes",
        "_writer",
        "_writing",
    )

    def __init__(
        self, sock: socket.socket, requests: memoryview, answers: list[memoryview]
    ) -> None:
        """``requests``: the area of slots of requests; ``answers``: the slots of answers, as many."""
        self._post = Post(sock)
        self._requests = requests
        self._octets = requests
        self._slot_bytes = len(requests) // len(answers)
        self._answers = answers
        self._free = (1 << len(answers)) - 1
        self._next: Group | None = None
        self._last = 0
        self._writer = AnswerWriter(self._more)
        self._kind = 0
        self._writing = 0
        self._slot = -1

    @property
    def has_batches(self) -> bool:
        """Whether batches came while a slot of answers was waited for: the socket does not show them any more."""
        return self._next is not None

    def take(self) -> Group | None:
        """Everything that waits, without waiting for more; None where nothing does."""
        self._receive(_DONT_WAIT)
        group = self._next
        self._next = None
        return group

    def _receive(self, flags: int) -> None:
        try:
            size = self._post.receive(flags)
        except BlockingIOError:
            return
        inbox = self._post._inbox
        at = 0
        while at < size:
            self._free |= octets.u32(inbox, at + 8)
            if inbox[at] == _BATCH:
                slot = octets.u16(inbox, at + 2)
                group = self._next
                if group is None:
                    self._last = (self._last + 1) & 0xFFFFFFFF
                    group = Group(self._last, octets.i64(inbox, at + 16), self._requests)
                    self._next = group
                group.slots |= 1 << slot
                start = slot * self._slot_bytes
                _locate(self._octets, start, start + octets.u32(inbox, at + 4), group.segments)
            at += _BYTES

    # ---- answers ------------------------------------------------------------------------------------

    def answers(self, group: Group) -> AnswerWriter:
        """For answers to frames of a group."""
        self._write_for(_ANSWER, group.number)
        return self._writer

    def done(self, group: Group, *, read_only: bool) -> None:
        """Every frame of the group was answered or is a long poll: sends what is left of the answers, and says so."""
        self._write_for(_ANSWER, group.number)
        self._send_open(group.slots, read_only)

    def polled(self) -> AnswerWriter:
        """For answers to long polls, which are in no group."""
        self._write_for(_POLLED, 0)
        return self._writer

    def flush(self) -> None:
        """Send the answers that are not sent yet."""
        self._send_open(0, False)

    def _write_for(self, kind: int, group: int) -> None:
        if kind != self._kind or group != self._writing:
            self._send_open(0, False)
            self._kind = kind
            self._writing = group

    def _more(self, used: int) -> memoryview:
        """The next slot for the writer, after the present one is sent."""
        self._send_slot(used, 0, False)
        self._slot = self.take_slot()
        return self._answers[self._slot]

    def _send_open(self, mask: int, flag: bool) -> None:
        """Send what is being filled, or nothing, with the mask of a group that is done; nobody writes then."""
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

    def take_slot(self) -> int:
        """A free slot of answers; waits for the front-end to give one back."""
        while self._free == 0:
            self._receive(0)
        slot = _lowest(self._free)
        self._free ^= 1 << slot
        return slot

    def send(self, kind: int, flag: bool, slot: int, used: int, mask: int, group: int) -> None:
        """A message."""
        try:
            self._post.send(kind, flag, slot, used, mask, group, 0)
        except OSError as error:
            raise EOFError(f"the front-end is gone: {error}") from error


# ---- slots ------------------------------------------------------------------------------------------


def segments(slot: memoryview, used: int) -> list[Segment]:
    """The segments in the first ``used`` bytes of a slot."""
    found = []
    located: list[Located] = []
    _locate(slot, 0, used, located)
    for connection, count, start, end in located:
        found.append((connection, count, slot[start:end]))
    return found


def heads(slot: memoryview, used: int) -> bytes:
    """Segments like those in the first ``used`` bytes of a slot, but of each answer only the first bytes: as many as
    say to which request it is the answer."""
    kept = bytearray(used)
    room = kept
    data = slot
    at = 0
    to = 0
    while at < used:
        end = at + _HEADER_BYTES + octets.u32(data, at + 4)
        octets.copy(room, to, data, at, at + _HEADER_BYTES)
        segment = to
        to += _HEADER_BYTES
        at += _HEADER_BYTES
        while at < end:
            length = octets.u32(data, at)
            size = min(length, _HEAD_BYTES)
            octets.put_u32(room, to, size)
            octets.copy(room, to + 4, data, at + 4, at + 4 + size)
            to += 4 + size
            at += 4 + length
        octets.put_u32(room, segment + 4, to - segment - _HEADER_BYTES)
    return bytes(kept[:to])


def _locate(data: memoryview, at: int, used: int, found: list[Located]) -> None:
    while at < used:
        start = at + _HEADER_BYTES
        end = start + octets.u32(data, at + 4)
        found.append((octets.u32(data, at), octets.u32(data, at + 8), start, end))
        at = end


def _lowest(mask: int) -> int:
    """The lowest bit of a mask that has one."""
    slot = 0
    while not mask >> slot & 1:
        slot += 1
    return slot


def _count(mask: int) -> int:
    found = 0
    while mask:
        mask &= mask - 1
        found += 1
    return found
