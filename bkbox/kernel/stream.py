"""A client's connection, as far as every byte and every frame passes: bytes in, whole frames to the disks, answers out.

Bytes are read into a buffer that all connections share. Whole frames are found in place; an ordinary add or read of a
known ledger is copied to its disk's slot of requests at once, every other frame is given to ``take_slowly``. What is
no whole frame yet, or has to wait, is kept until more comes or the wait is over. Answers are collected while the event
loop makes one turn and go to the socket at its end, with one call, straight from the memory that they came in.

Bounds, per connection:

- what is kept is a part of one frame of the largest size, or what one read of the shared buffer left over;
- requests that wait for an answer have a cost (their own bytes; for a read the size that answers lately had), and
  while their sum is over the limit nothing more is read;
- while the client does not take its answers nothing more is read; what was asked before is answered without entries
  (too many requests) once too much waits for the client;
- a long poll costs as much as a read until it is known whether it has to wait; from then on it costs nothing, and
  holds up nothing.

And for all connections together: ``Common.held`` is what they keep and what waits for their clients. Over its limit
new requests are refused (too many requests), answers lose their entries at once, nobody who has an answer waiting
is read from, and a connection in the middle of a large frame is closed.
"""

from __future__ import annotations

import select
import socket
from collections import deque

from bkbox.errors import BugError, FrameError
from bkbox.kernel import octets
from bkbox.kernel.routes import Routes
from bkbox.kernel.v3plain import PlainV3
from bkbox.limits import CONNECTION_UNSENT_BYTES_MAX

_PREFIX = 4
_SEGMENT_HEADER = 12
_ROOM_BYTES = 256 * 1024
_LARGE_BYTES = _ROOM_BYTES // 2
"""A frame of this size gets a buffer of its own, so that the part that is there is not copied again and again."""

_UNSENT_HIGH = 1 << 20
_UNSENT_LOW = 256 * 1024
_UNSENT_MAX = CONNECTION_UNSENT_BYTES_MAX
_READ_COST_LEAST = 16 * 1024
_READ_COST_FIRST = 64 * 1024
_PARTS_MAX = 512  # buffers in one call; the kernel's limit is 1024

_IN = select.EPOLLIN
_OUT = select.EPOLLOUT

SLOTS = 1
INFLIGHT = 2
WRITING = 4
"""Why nothing more is read from a connection; several may hold."""

_SLOTS = SLOTS
_INFLIGHT = INFLIGHT
_WRITING = WRITING

_V2_ADD = 0x0201  # version and opcode
_V2_READ = 0x0202
_RECOVERY_ADD = 2
_DO_FENCING = 1
_V2_ADD_BYTES = 40  # header, master key, ledger and entry
_V2_READ_BYTES = 20
_V3_FIRST = 0x0A

_ADD = 1
_READ = 2


class Common:
    """What all connections of a front-end share.

    ``held`` and ``held_max``: bytes; ``due``: connections that have something to send, or to ask of the event loop,
    at the end of the turn; ``resumed``: those that no longer wait for a slot or for answers.
    """

    __slots__ = ("due", "held", "held_max", "plain3", "resumed", "room", "room_view", "routes")

    def __init__(self, held_max: int) -> None:
        self.routes = Routes()
        self.held = 0
        self.held_max = held_max
        self.due: list[Stream] = []
        self.resumed: list[Stream] = []
        self.plain3 = PlainV3()
        self.room = bytearray(_ROOM_BYTES)
        self.room_view = memoryview(self.room)

    def is_full(self) -> bool:
        """Whether more is held than there may be."""
        return self.held > self.held_max


class Stream:
    """One connection. Whoever calls it closes it after EOFError, OSError or FrameError.

    ``speaks3``: it is taken for a client of version 3.
    """

    __slots__ = (
        "_blocked",
        "_common",
        "_cost",
        "_frame_bytes_max",
        "_inflight_bytes_max",
        "_interest",
        "_is_due",
        "_kept",
        "_kept_size",
        "_kept_view",
        "_ledger",
        "_parts",
        "_pending",
        "_poll",
        "_read_cost",
        "_resumes",
        "_unsent",
        "_unsent_size",
        "closed",
        "number",
        "peer",
        "sock",
        "speaks3",
    )

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        peer: str,
        poll: select.epoll,
        common: Common,
        frame_bytes_max: int,
        inflight_bytes_max: int,
    ) -> None:
        """Register a socket that does not block. ``peer``: its address, for people."""
        self.number = number
        self.sock = sock
        self.peer = peer
        self.closed = False
        self.speaks3 = True
        self._poll = poll
        self._common = common
        self._frame_bytes_max = frame_bytes_max
        self._inflight_bytes_max = inflight_bytes_max
        self._kept: bytearray | None = None
        self._kept_view = memoryview(b"")
        self._kept_size = 0
        self._blocked = 0
        self._pending = 0
        self._cost = 0
        self._read_cost = _READ_COST_FIRST
        self._ledger = 0
        self._parts: list[memoryview] = []
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._is_due = False
        self._resumes = False
        self._interest = _IN
        poll.register(sock, _IN)

    def take_slowly(self, frame: memoryview) -> bool:
        """Do what a frame needs that is not ordinary. Raises FrameError.

        False if it has to wait for a slot; ``has_slot`` is called then when there may be one.
        """
        raise NotImplementedError

    def lighten(self, frames: memoryview) -> bytes:
        """The same answers without entries."""
        raise NotImplementedError

    def close(self) -> None:
        """Close at once; answers that were not sent are lost, as with BookKeeper's SO_LINGER 0."""
        if not self.closed:
            self.closed = True
            self._common.held -= self._unsent_size
            self._unsent_size = 0
            self._unsent.clear()
            self._parts.clear()
            self._drop_kept()
            self.sock.close()

    # ---- the event loop's side ----------------------------------------------------------------------

    def ready(self, events: int) -> None:
        """What epoll has seen."""
        if events & _OUT:
            self._send_unsent()
        if events & ~_OUT and not self.closed:
            if events & _IN and not self._blocked and not self._resumes:
                self._receive()
            elif events & ~(_IN | _OUT):
                raise EOFError("the connection is broken")

    def resume(self) -> None:
        """Go on with what was kept; at the end of the turn."""
        self._resumes = False
        if not self.closed and not self._blocked and self._kept is not None:
            self._work(self._kept, self._kept_size, True)

    def end_turn(self) -> None:
        """Send what was collected, and tell epoll what to look for."""
        self._is_due = False
        if self.closed:
            return
        if self._parts:
            self._send_parts()
        if self._unsent_size > (0 if self._common.is_full() else _UNSENT_HIGH):
            self._blocked |= _WRITING
        interest = (0 if self._blocked else _IN) | (_OUT if self._unsent_size else 0)
        if interest != self._interest:
            self._interest = interest
            self._poll.modify(self.sock, interest)

    def _be_due(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._common.due.append(self)

    def _unblock(self, reason: int) -> None:
        if self._blocked & reason:
            self._blocked &= ~reason
            if not self._blocked and not self._resumes:
                self._resumes = True
                self._common.resumed.append(self)
                self._be_due()

    def has_slot(self) -> None:
        """A slot that was waited for may be free."""
        self._unblock(_SLOTS)

    # ---- requests -----------------------------------------------------------------------------------

    def _receive(self) -> None:
        kept = self._kept
        if kept is not None and len(kept) > self._kept_size:
            size = self._receive_into(self._kept_view[self._kept_size :])
            self._kept_size += size
            if size:
                self._work(kept, self._kept_size, True)
            return
        before = 0
        if kept is not None:
            before = self._kept_size
            octets.copy(self._common.room, 0, kept, 0, before)
        size = self._receive_into(
            self._common.room_view[before:] if before else self._common.room_view
        )
        if size:
            self._drop_kept()
            self._work(self._common.room, before + size, False)

    def _receive_into(self, view: memoryview) -> int:
        """Bytes read; 0 if there are none yet."""
        try:
            size = self.sock.recv_into(view)
        except BlockingIOError:
            return 0
        if not size:
            raise EOFError("the client has closed the connection")
        return size

    def _work(self, data: bytearray, filled: int, is_kept: bool) -> None:
        """Hand on the whole frames, as far as nothing blocks, and keep the rest."""
        at = self._hand_on(data, filled)
        if self.closed:
            return
        if self._blocked:
            self._be_due()
        if is_kept:
            if at == 0:
                return
            self._drop_kept()
        if at < filled:
            self._keep(data, at, filled)

    def _keep(self, data: bytearray, at: int, filled: int) -> None:
        """Keep data[at:filled]; room for a large frame that has begun is made at once."""
        common = self._common
        size = filled - at
        capacity = size
        if size >= _PREFIX:
            begun = octets.u32(data, at) + _PREFIX
            # While something blocks, nobody has looked at this length yet.
            if _LARGE_BYTES < begun <= self._frame_bytes_max and begun > size:
                capacity = begun
                if common.is_full():
                    raise ConnectionAbortedError(f"no room for a frame of {begun} bytes now")
        kept = bytearray(capacity)
        octets.copy(kept, 0, data, at, filled)
        self._kept = kept
        self._kept_view = memoryview(kept)
        self._kept_size = size
        common.held += capacity

    def _drop_kept(self) -> None:
        if self._kept is not None:
            self._common.held -= len(self._kept)
            self._kept = None
            self._kept_view = memoryview(b"")
            self._kept_size = 0

    def _hand_on(self, data: bytearray, filled: int) -> int:
        """Bytes taken from the start of the data. Raises FrameError."""
        common = self._common
        octets_of = data
        view = None
        at = 0
        while not self._blocked and not self.closed and filled - at >= _PREFIX:
            length = octets.i32(octets_of, at)
            if length <= 0 or length > self._frame_bytes_max - _PREFIX:
                raise FrameError(
                    f"frame of {length} bytes: 1 to {self._frame_bytes_max - _PREFIX} are allowed"
                )
            end = at + _PREFIX + length
            if end > filled:
                break
            kind = self._plain(octets_of, at + _PREFIX, end)
            lane = None
            if kind != 0 and not common.is_full():
                lane = common.routes.lane(self._ledger)
            if lane is None:
                if view is None:
                    view = memoryview(data)
                if not self.take_slowly(view[at:end]):
                    self._blocked |= _SLOTS
                    break
            elif lane.put(self.number, octets_of, at, end):
                self._charge(length if kind == _ADD else self._read_cost)
            else:
                self._blocked |= _SLOTS
                lane.waiting.append(self)
                break
            at = end
        return at

    def _plain(self, data: bytearray, start: int, end: int) -> int:
        """Whether a body is an ordinary add or read, and of which ledger; 0 if it is anything else."""
        size = end - start
        if self.speaks3:
            if data[start] != _V3_FIRST:
                return 0
            plain3 = self._common.plain3
            kind = plain3.parse(data, start, end)
            self._ledger = plain3.ledger
            return kind
        if size < _V2_READ_BYTES:
            return 0
        operation = octets.u16(data, start)
        flags = octets.u16(data, start + 2)
        if operation == _V2_ADD:
            if size < _V2_ADD_BYTES or flags & _RECOVERY_ADD:
                return 0
            self._ledger = octets.i64(data, start + 24)
            return _ADD
        if operation == _V2_READ and not flags & _DO_FENCING:
            self._ledger = octets.i64(data, start + 4)
            return _READ
        return 0

    # ---- what waits for an answer -------------------------------------------------------------------

    def charge(self, own_bytes: int) -> None:
        """One more request is on its way; it costs so much, or (0) as much as a read."""
        self._charge(own_bytes if own_bytes else self._read_cost)

    def _charge(self, cost: int) -> None:
        self._pending += 1
        self._cost += cost
        if self._cost > self._inflight_bytes_max:
            self._blocked |= _INFLIGHT

    def settle(self, count: int) -> None:
        """``count`` requests cost nothing any more."""
        self._settle(count)

    def _settle(self, count: int) -> None:
        if count >= self._pending:
            self._cost = 0
            self._pending = 0
        else:
            self._cost -= self._cost // self._pending * count
            self._pending -= count
        if self._blocked & _INFLIGHT and self._cost <= self._inflight_bytes_max // 2:
            self._unblock(_INFLIGHT)

    # ---- answers ------------------------------------------------------------------------------------

    def answered(self, frames: memoryview, count: int) -> None:
        """Answers to ``count`` requests; they have to stay as they are until the end of the turn."""
        self._answered(frames, count)

    def _answered(self, frames: memoryview, count: int) -> None:
        size = len(frames) // max(count, 1)
        self._read_cost = max(_READ_COST_LEAST, size, (self._read_cost * 3 + size) // 4)
        self._send(frames)
        self._settle(count)

    def send(self, frames: memoryview) -> None:
        """Answers to requests that cost nothing; they have to stay as they are until the end of the turn."""
        self._send(frames)

    def _send(self, frames: memoryview) -> None:
        if self.closed:
            return
        if self._unsent_size and (self._unsent_size > _UNSENT_MAX or self._common.is_full()):
            frames = memoryview(self.lighten(frames))
        self._parts.append(frames)
        self._be_due()

    def _send_parts(self) -> None:
        parts = self._parts
        sent = 0 if self._unsent_size else self._send_at_once(parts)
        for part in parts:
            size = len(part)
            if sent >= size:
                sent -= size
                continue
            rest = memoryview(bytes(part[sent:]))
            sent = 0
            self._unsent.append(rest)
            self._unsent_size += len(rest)
            self._common.held += len(rest)
        parts.clear()

    def _send_at_once(self, parts: list[memoryview]) -> int:
        """Bytes that the socket has taken."""
        try:
            if len(parts) == 1:
                return self.sock.send(parts[0])
            return self.sock.sendmsg(parts[:_PARTS_MAX])
        except BlockingIOError:
            return 0

    def _send_unsent(self) -> None:
        unsent = self._unsent
        while unsent:
            sent = self._send_at_once([unsent[0]])
            self._unsent_size -= sent
            self._common.held -= sent
            if sent < len(unsent[0]):
                unsent[0] = unsent[0][sent:]
                break
            unsent.popleft()
        if self._unsent_size <= (0 if self._common.is_full() else _UNSENT_LOW):
            self._unblock(_WRITING)
        self._be_due()


def deliver(slot: memoryview, used: int, streams: dict[int, Stream]) -> None:
    """Hand the answers in the first ``used`` bytes of a slot to their connections, as far as these are there."""
    data = slot
    at = 0
    while at < used:
        size = octets.u32(data, at + 4)
        start = at + _SEGMENT_HEADER
        stream = streams.get(octets.u32(data, at))
        if stream is not None:
            stream._answered(slot[start : start + size], octets.u32(data, at + 8))
        at = start + size
    if at != used:
        raise BugError("a slot of answers ends within a segment")
