"""A client's connection, the part that handles every byte and every frame: bytes in, whole frames to the disks,
responses out.

Bytes are read into a buffer that all connections share. Whole frames are found in place. A fast-path add or read of a
known ledger is copied to its disk's request slot at once; every other frame goes to ``handle_slow_path``. A partial
frame, or one that has to wait, is buffered until more bytes come or the wait is over. Responses are collected during
one turn of the event loop and go to the socket at its end, with one call, straight from the memory in which they
arrived.

Bounds, per connection:

- buffered input is a part of one frame of the largest size, or the rest of one read of the shared buffer;
- requests in flight have a cost (their own bytes; for a read the size of recent responses). While their sum is over
  the limit the connection is not read;
- a connection with unsent responses over its bound is not read. Requests that came before get responses without
  entries (too many requests) once too much is unsent;
- a long poll costs as much as a read until it is known whether it has to wait; from then on it costs nothing, and
  delays nothing.

And for all connections together: ``SharedState.buffered`` is the sum of buffered input and unsent responses. Above
three quarters of its limit (the soft limit) connections that hold a part of it get no more: responses lose their
entries at once if others are unsent already, connections with unsent responses are not read, and a connection that
begins a large frame is closed. Above seven eighths (the hard limit) new reads of every connection are refused (too many
requests); adds, whose responses are small, are not. Requests in flight cannot exceed the limit either: responses
without space lose their entries, and a connection that sends a part of a frame for which there is no space is closed.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bkbox.base.limits import CONNECTION_UNSENT_BYTES_MAX
from bkbox.errors import BugError, FrameError
from bkbox.frontend.loop.routing import Routes
from bkbox.native import memory
from bkbox.wire.v3_fast_path import FastRequestV3

_PREFIX = 4
_SEGMENT_HEADER = 12
_READ_BUFFER_BYTES = 256 * 1024
_LARGE_BYTES = _READ_BUFFER_BYTES // 2
"""Size from which a frame gets a buffer of its own, so that the received part is not copied again and again."""

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
"""Reasons for not reading a connection; several may apply."""

_SLOTS = SLOTS
_INFLIGHT = INFLIGHT
_WRITING = WRITING
_YIELDING = 8

SLOW_FRAMES_MAX = 16
"""Slow-path frames taken from one connection in one turn; from all connections together SLOW_FRAMES_ALL_MAX. Each
takes tens of microseconds, and a connection that sends many of them must not delay the others. While fast-path
requests arrive only SLOW_FRAMES_SHARED_MAX are taken a turn, and a connection with more is throttled (event_loop.py).
"""
SLOW_FRAMES_ALL_MAX = 128
SLOW_FRAMES_SHARED_MAX = 8
_SLOW_FRAMES_MAX = SLOW_FRAMES_MAX
_SLOW_FRAMES_ALL_MAX = SLOW_FRAMES_ALL_MAX

SERVER = 0
UNSENT = 1
PARTIAL_FRAME = 2
IDLE = 3
"""The party that a connection waits for: the server; or its client, which has to take responses, to send the rest of
a frame, or to send a request.
"""

_V2_ADD = 0x0201  # version and opcode
_V2_READ = 0x0202
_RECOVERY_ADD = 2
_DO_FENCING = 1
_V2_ADD_BYTES = 40  # header, master key, ledger and entry
_V2_READ_BYTES = 20
_V3_FIRST = 0x0A

_ADD = 1
_READ = 2
_RECOVERY = 4

FAST_ADDS = _ADD
FAST_READS = _READ
FAST_RECOVERIES = _RECOVERY
"""Flags of ``Connection.allows``."""


class Tls(Protocol):
    """TLS over the socket of a connection. ``pending``: bytes that may be a request were read from the socket, and
    epoll does not know of them; ``unsent``: bytes that the socket has not taken yet.
    """

    pending: bool
    unsent: int

    def recv_into(self, view: memoryview) -> int:
        """Bytes read, 0 at the end of the connection. Raises BlockingIOError if there are none yet, and OSError."""

    def send(self, parts: list[memoryview]) -> int:
        """Bytes taken, of the parts in their order. Raises BlockingIOError if none can be now, and OSError."""

    def flush(self) -> None:
        """Send what is unsent, as far as the socket takes it. Raises OSError."""


class SharedState:
    """The state that all connections of a front-end share.

    ``buffered`` and ``buffered_max``: bytes; ``collected``: bytes of responses that go to sockets, or have to be
    buffered, at the end of the turn; ``due``: connections that have something to send, or an epoll interest to change,
    at the end of the turn; ``resumed``: connections that no longer wait for a slot or for responses; ``deferred``:
    connections that go on in the next turn or after a throttle; ``slow_left``: see SLOW_FRAMES_MAX, ``slow_s``: CPU
    time of the slow-path frames of this turn, by ``cpu_s``, including the input buffered behind them, ``slow_since_s``:
    start of the first of those being handled, 0 for none; ``has_fast``: a fast-path request has come in this turn.
    """

    __slots__ = (
        "buffered",
        "buffered_max",
        "collected",
        "cpu_s",
        "deferred",
        "due",
        "fast_v3",
        "has_fast",
        "read_buffer",
        "read_view",
        "resumed",
        "routes",
        "slow_left",
        "slow_s",
        "slow_since_s",
        "spare_buffer",
    )

    def __init__(self, buffered_max: int, cpu_s: Callable[[], float]) -> None:
        self.cpu_s = cpu_s
        self.routes = Routes()
        self.buffered = 0
        self.buffered_max = buffered_max
        self.collected = 0
        self.due: list[Connection] = []
        self.resumed: list[Connection] = []
        self.deferred: list[Connection] = []
        self.slow_left = _SLOW_FRAMES_ALL_MAX
        self.slow_s = 0.0
        self.slow_since_s = 0.0
        self.has_fast = False
        self.fast_v3 = FastRequestV3()
        self.spare_buffer = bytearray()
        self.read_buffer = bytearray(_READ_BUFFER_BYTES)
        self.read_view = memoryview(self.read_buffer)

    def above_hard_limit(self) -> bool:
        """True above the hard limit: no connection may request more of what might have to be buffered."""
        return self.buffered > self.buffered_max - self.buffered_max // 8

    def above_soft_limit(self) -> bool:
        """True above the soft limit: connections that hold buffered bytes get no more; the rest is for the others."""
        return self.buffered > self.buffered_max - self.buffered_max // 4

    def has_space(self, size: int) -> bool:
        """True if ``size`` more bytes can be buffered, even if no socket takes anything in this turn."""
        return self.buffered + self.collected + size <= self.buffered_max

    def buffer(self, size: int) -> bytearray:
        """A buffer of this size or larger, with arbitrary content."""
        spare_buffer = self.spare_buffer
        if len(spare_buffer) >= size > _LARGE_BYTES:
            self.spare_buffer = bytearray()
            return spare_buffer
        return bytearray(size)

    def recycle(self, buffer: bytearray) -> None:
        """Give back an unused buffer. The largest one is kept for the next large frame: to allocate so much memory,
        and to touch it for the first time, takes longer than to copy a frame. A buffer that may hold more than one
        frame is not kept, as the rest of it is still to be copied.
        """
        if len(buffer) > max(len(self.spare_buffer), _READ_BUFFER_BYTES):
            self.spare_buffer = buffer

    def turn_budget_spent(self) -> bool:
        """True if so many responses have come in this turn that it should end."""
        return self.collected > self.buffered_max // 4


class Connection:
    """One connection. The caller of its methods closes it after EOFError, OSError or FrameError.

    ``is_v3``: the client is taken for one of version 3. ``allows``: FAST_ADDS, FAST_READS, FAST_RECOVERIES (adds),
    the requests that need no permission check. ``tls``: the TLS of the connection, None for none. ``received`` and
    ``sent`` grow whenever whole frames were received, and whenever unsent responses were sent.
    """

    __slots__ = (
        "_blocked",
        "_common",
        "_cost",
        "_frame_bytes_max",
        "_inflight_bytes_max",
        "_interest",
        "_is_due",
        "_ledger",
        "_partial_capacity",
        "_partial_frame",
        "_partial_size",
        "_partial_view",
        "_parts",
        "_pending",
        "_poll",
        "_read_cost",
        "_resumes",
        "_sealed",
        "_unsent",
        "_unsent_size",
        "allows",
        "closed",
        "is_v3",
        "number",
        "peer",
        "received",
        "sent",
        "sock",
        "tls",
    )

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        peer: str,
        poll: select.epoll,
        common: SharedState,
        frame_bytes_max: int,
        inflight_bytes_max: int,
    ) -> None:
        """Register a non-blocking socket. ``peer``: its address, for messages."""
        self.number = number
        self.sock = sock
        self.peer = peer
        self.closed = False
        self.is_v3 = True
        self.allows = _ADD | _READ | _RECOVERY
        self.tls: Tls | None = None
        self.received = 0
        self.sent = 0
        self._sealed = 0
        self._poll = poll
        self._common = common
        self._frame_bytes_max = frame_bytes_max
        self._inflight_bytes_max = inflight_bytes_max
        self._partial_frame: bytearray | None = None
        self._partial_capacity = 0  # which may be less than its length
        self._partial_view = memoryview(b"")
        self._partial_size = 0
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

    def handle_slow_path(self, frame: memoryview) -> bool:
        """Handle a frame that is not on the fast path. Raises FrameError.

        False if it has to wait for a slot; ``on_slot_free`` is called when there may be one.
        """
        raise NotImplementedError

    def strip_payloads(self, frames: memoryview) -> bytes:
        """The same responses without entries."""
        raise NotImplementedError

    def close(self) -> None:
        """Close at once; unsent responses are lost, as with BookKeeper's SO_LINGER 0."""
        if not self.closed:
            self.closed = True
            self._common.buffered -= self._unsent_size + self._sealed
            self._unsent_size = 0
            self._sealed = 0
            self._unsent.clear()
            for part in self._parts:
                self._common.collected -= len(part)
            self._parts.clear()
            self._drop_partial_frame()
            self.sock.close()

    def begin_with(self, data: bytes, tls: Tls | None) -> None:
        """Process the bytes that the handshake has read, at the end of the turn; ``tls`` has been negotiated. OSError
        if there is no space for them.
        """
        self.tls = tls
        if data:
            self._keep(bytearray(data), 0, len(data))
        self._go_on()

    def blocked_on(self) -> int:
        """SERVER, UNSENT, PARTIAL_FRAME or IDLE."""
        if self._unsent_size or self._sealed:
            return UNSENT
        if self._blocked or self._resumes or self._pending:
            return SERVER
        return IDLE if self._partial_frame is None else PARTIAL_FRAME

    def buffered_bytes(self) -> int:
        """This connection's share of ``SharedState.buffered``, in bytes."""
        return self._partial_capacity + self._unsent_size + self._sealed

    # ---- the event loop's side ----------------------------------------------------------------------

    def ready(self, events: int) -> None:
        """Handle epoll's events."""
        if events & _OUT:
            self._send_unsent()
        if events & ~_OUT and not self.closed:
            if events & _IN and not self._blocked and not self._resumes:
                self._receive()
                if self.tls is not None:
                    self._drain()
            elif events & ~(_IN | _OUT):
                raise EOFError("the connection is broken")

    def resume(self) -> None:
        """Go on with buffered input; at the end of the turn."""
        self._resumes = False
        if not self.closed and not self._blocked and self._partial_frame is not None:
            self._work(self._partial_frame, self._partial_size, True)
        if self.tls is not None:
            self._drain()

    def _drain(self) -> None:
        """Receive the bytes that TLS has read already."""
        tls = self.tls
        assert tls is not None
        while tls.pending and not self._blocked and not self._resumes and not self.closed:
            self._receive()
        if tls.unsent:
            self._be_due()

    def go_on_yielded(self) -> None:
        """Go on after yielding in an earlier turn."""
        self._unblock(_YIELDING)

    def end_turn(self) -> None:
        """Send the collected responses, and set the epoll interest."""
        self._is_due = False
        if self.closed:
            return
        if self._parts:
            self._send_parts()
        if self._unsent_size > (0 if self._common.above_soft_limit() else _UNSENT_HIGH):
            self._blocked |= _WRITING
        unsent = self._unsent_size
        if self.tls is not None:
            unsent += self._note_sealed(self.tls.unsent)
        interest = (0 if self._blocked else _IN) | (_OUT if unsent else 0)
        if interest != self._interest:
            self._interest = interest
            self._poll.modify(self.sock, interest)

    def _note_sealed(self, sealed: int) -> int:
        """Count the response bytes buffered in TLS."""
        self._common.buffered += sealed - self._sealed
        self._sealed = sealed
        return sealed

    def _be_due(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._common.due.append(self)

    def _unblock(self, reason: int) -> None:
        if self._blocked & reason:
            self._blocked &= ~reason
            if not self._blocked:
                self._go_on()

    def _go_on(self) -> None:
        if not self._resumes:
            self._resumes = True
            self._common.resumed.append(self)
            self._be_due()

    def on_slot_free(self) -> None:
        """Called when the awaited slot may be free."""
        self._unblock(_SLOTS)

    # ---- requests -----------------------------------------------------------------------------------

    def _receive(self) -> None:
        partial_frame = self._partial_frame
        if partial_frame is not None and self._partial_capacity > self._partial_size:
            size = self._receive_into(
                self._partial_view[self._partial_size : self._partial_capacity]
            )
            self._partial_size += size
            if size:
                self._work(partial_frame, self._partial_size, True)
            return
        before = 0
        if partial_frame is not None:
            before = self._partial_size
            memory.copy(self._common.read_buffer, 0, partial_frame, 0, before)
        size = self._receive_into(
            self._common.read_view[before:] if before else self._common.read_view
        )
        if size:
            self._drop_partial_frame()
            self._work(self._common.read_buffer, before + size, False)

    def _receive_into(self, view: memoryview) -> int:
        """Returns the number of bytes read; 0 if there are none yet."""
        try:
            size = self.sock.recv_into(view) if self.tls is None else self.tls.recv_into(view)
        except BlockingIOError:
            return 0
        if not size:
            raise EOFError("the client has closed the connection")
        return size

    def _work(self, data: bytearray, filled: int, is_partial: bool) -> None:
        """Handle the received frames, and count their CPU time if not all of them are fast-path."""
        common = self._common
        common.slow_since_s = 0.0
        self._process(data, filled, is_partial)
        if common.slow_since_s:
            common.slow_s += common.cpu_s() - common.slow_since_s

    def _process(self, data: bytearray, filled: int, is_partial: bool) -> None:
        """Hand on the whole frames, as far as nothing blocks, and buffer the rest."""
        at = self._hand_on(data, filled)
        if self.closed:
            return
        if at:
            self.received += 1
        if self._blocked:
            self._be_due()
        if is_partial:
            if at == 0 or self._move_up(data, at, filled):
                return
            self._drop_partial_frame()
        if at < filled:
            self._keep(data, at, filled)

    def _move_up(self, data: bytearray, at: int, filled: int) -> bool:
        """Leave the rest of the buffered input where it is, as long as it fills half of the buffer and its first
        frame fits: a connection that yields again and again must not allocate as much memory anew each time.
        """
        remaining = filled - at
        if 2 * remaining < self._partial_capacity or remaining < _PREFIX:
            return False
        if memory.u32(data, at) + _PREFIX > self._partial_capacity:
            return False
        memory.move(data, 0, at, filled)
        self._partial_size = remaining
        return True

    def _keep(self, data: bytearray, at: int, filled: int) -> None:
        """Buffer data[at:filled]; the space for a large frame that has begun is allocated at once."""
        common = self._common
        size = filled - at
        capacity = size
        if size >= _PREFIX:
            frame_bytes = memory.u32(data, at) + _PREFIX
            # While the connection is blocked, this length has not been checked yet.
            if _LARGE_BYTES < frame_bytes <= self._frame_bytes_max and frame_bytes > size:
                capacity = frame_bytes
                if common.buffered + capacity > common.buffered_max - common.buffered_max // 4:
                    raise ConnectionAbortedError(f"no space for a frame of {frame_bytes} bytes now")
        if common.buffered + capacity > common.buffered_max:
            raise ConnectionAbortedError(f"no space for {size} bytes now")
        partial_frame = common.buffer(capacity)
        memory.copy(partial_frame, 0, data, at, filled)
        self._partial_frame = partial_frame
        self._partial_view = memoryview(partial_frame)
        self._partial_size = size
        self._partial_capacity = capacity
        common.buffered += capacity

    def _drop_partial_frame(self) -> None:
        if self._partial_frame is not None:
            self._common.buffered -= self._partial_capacity
            self._common.recycle(self._partial_frame)
            self._partial_frame = None
            self._partial_view = memoryview(b"")
            self._partial_size = self._partial_capacity = 0

    def _hand_on(self, data: bytearray, filled: int) -> int:
        """Returns the number of bytes taken from the start of the data. Raises FrameError."""
        common = self._common
        octets_of = data
        view = None
        at = 0
        slow = 0
        while not self._blocked and not self.closed and filled - at >= _PREFIX:
            length = memory.i32(octets_of, at)
            if length <= 0 or length > self._frame_bytes_max - _PREFIX:
                raise FrameError(
                    f"frame of {length} bytes: 1 to {self._frame_bytes_max - _PREFIX} are allowed"
                )
            end = at + _PREFIX + length
            if end > filled:
                break
            kind = self._fast_path_kind(octets_of, at + _PREFIX, end)
            lane = None
            if (
                kind & self.allows
                and (kind != _READ or not common.above_hard_limit())
                and (kind != _ADD or not common.routes.is_over(self._ledger))
            ):
                lane = common.routes.lane(self._ledger)
            if lane is None:
                if view is None:
                    view = memoryview(data)
                if slow == _SLOW_FRAMES_MAX or (slow and common.slow_left <= 0):
                    self._blocked |= _YIELDING
                    common.deferred.append(self)
                    break
                if not slow:
                    common.slow_since_s = common.cpu_s()
                slow += 1
                common.slow_left -= 1
                if not self.handle_slow_path(view[at:end]):
                    self._blocked |= _SLOTS
                    break
            elif lane.put(self.number, octets_of, at, end):
                self._charge(self._read_cost if kind == _READ else length)
                common.has_fast = True
            else:
                self._blocked |= _SLOTS
                lane.waiting.append(self)
                break
            at = end
        return at

    def _fast_path_kind(self, data: bytearray, start: int, end: int) -> int:
        """The kind of a body if it is a fast-path add or read, whose ledger is then set; 0 if it is anything else."""
        size = end - start
        if self.is_v3:
            if data[start] != _V3_FIRST:
                return 0
            fast_v3 = self._common.fast_v3
            kind = fast_v3.parse(data, start, end)
            self._ledger = fast_v3.ledger
            return kind
        if size < _V2_READ_BYTES:
            return 0
        operation = memory.u16(data, start)
        flags = memory.u16(data, start + 2)
        if operation == _V2_ADD:
            if size < _V2_ADD_BYTES:
                return 0
            self._ledger = memory.i64(data, start + 24)
            return _RECOVERY if flags & _RECOVERY_ADD else _ADD
        if operation == _V2_READ and not flags & _DO_FENCING:
            self._ledger = memory.i64(data, start + 4)
            return _READ
        return 0

    # ---- requests in flight -------------------------------------------------------------------------

    def charge(self, own_bytes: int) -> None:
        """Count one more request in flight with this cost, or (0) with that of a read."""
        self._charge(own_bytes if own_bytes else self._read_cost)

    def _charge(self, cost: int) -> None:
        self._pending += 1
        self._cost += cost
        if self._cost > self._inflight_bytes_max:
            self._blocked |= _INFLIGHT

    def release(self, count: int) -> None:
        """Count ``count`` requests as costing nothing any more."""
        self._release(count)

    def _release(self, count: int) -> None:
        if count >= self._pending:
            self._cost = 0
            self._pending = 0
        else:
            self._cost -= self._cost // self._pending * count
            self._pending -= count
        if self._blocked & _INFLIGHT and self._cost <= self._inflight_bytes_max // 2:
            self._unblock(_INFLIGHT)

    # ---- responses ----------------------------------------------------------------------------------

    def on_responses(self, frames: memoryview, count: int) -> None:
        """Collect responses to ``count`` requests; they have to stay unchanged until the end of the turn."""
        self._on_responses(frames, count)

    def _on_responses(self, frames: memoryview, count: int) -> None:
        size = len(frames) // max(count, 1)
        self._read_cost = max(_READ_COST_LEAST, size, (self._read_cost * 3 + size) // 4)
        self._send(frames)
        self._release(count)

    def send(self, frames: memoryview) -> None:
        """Collect responses to requests that cost nothing; they have to stay unchanged until the end of the turn."""
        self._send(frames)

    def _send(self, frames: memoryview) -> None:
        if self.closed:
            return
        common = self._common
        size = len(frames)
        if not common.has_space(size) or (
            self._unsent_size and (self._unsent_size > _UNSENT_MAX or common.above_soft_limit())
        ):
            frames = memoryview(self.strip_payloads(frames))
            size = len(frames)
        self._parts.append(frames)
        common.collected += size
        self._be_due()

    def _send_parts(self) -> None:
        common = self._common
        parts = self._parts
        sent = 0 if self._unsent_size else self._send_at_once(parts)
        for part in parts:
            size = len(part)
            common.collected -= size
            if sent >= size:
                sent -= size
                continue
            remaining = memoryview(bytes(part[sent:]))
            sent = 0
            self._unsent.append(remaining)
            self._unsent_size += len(remaining)
            common.buffered += len(remaining)
        parts.clear()

    def _send_at_once(self, parts: list[memoryview]) -> int:
        """Returns the number of bytes that the socket has taken."""
        try:
            if self.tls is not None:
                return self.tls.send(parts)
            if len(parts) == 1:
                return self.sock.send(parts[0])
            return self.sock.sendmsg(parts[:_PARTS_MAX])
        except BlockingIOError:
            return 0

    def _send_unsent(self) -> None:
        unsent = self._unsent
        self.sent += 1  # the socket has space again: the client takes its responses
        if self.tls is not None:
            self.tls.flush()
        while unsent:
            sent = self._send_at_once([unsent[0]])
            self._unsent_size -= sent
            self._common.buffered -= sent
            if sent < len(unsent[0]):
                unsent[0] = unsent[0][sent:]
                break
            unsent.popleft()
        if self._unsent_size <= (0 if self._common.above_soft_limit() else _UNSENT_LOW):
            self._unblock(_WRITING)
        self._be_due()


def deliver(slot: memoryview, used: int, streams: dict[int, Connection]) -> None:
    """Hand the responses in the first ``used`` bytes of a slot to their connections, as far as these still exist."""
    data = slot
    at = 0
    while at < used:
        size = memory.u32(data, at + 4)
        start = at + _SEGMENT_HEADER
        stream = streams.get(memory.u32(data, at))
        if stream is not None:
            stream._on_responses(slot[start : start + size], memory.u32(data, at + 8))
        at = start + size
    if at != used:
        raise BugError("a response slot ends within a segment")
