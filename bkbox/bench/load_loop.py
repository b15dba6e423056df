"""The load generator: one connection's v2 requests, in a closed or an open loop, and the loop over connections.

A stream has at most ``window`` requests in flight. In a closed loop it sends the next request when one is
answered. In an open loop (``pace``) requests are due at a constant rate, whatever the responses do, and a
latency counts from the time at which its request was due: a server that stalls is charged for every
request that was due meanwhile (no coordinated omission). A request that is due while the window or the
socket is full waits in the stream; how late the stream sends requests that it could have sent is the
generator's own lateness, and measured apart.

A stream interleaves its ledgers request by request,
as brokers do: the n-th request is for ledger ``n % ledgers`` and entry ``n // ledgers`` of the
stream, so that a response's ids identify its request, whatever the order of the responses.
Requests are kept ready in a chunk, in which only the ids are patched; so an add costs its headers,
and the copy into the socket.

Entries are those of a ledger with the DUMMY digest: a header of 32 bytes and the payload, no sum.
Layouts: wire/v2.py, wire/digest.py. Times are nanoseconds of ``perf_counter_ns``.
"""

from __future__ import annotations

import select
import socket
from array import array
from time import perf_counter_ns

from bkbox.errors import FrameError
from bkbox.native import memory
from bkbox.native.histogram import Histogram

ADD = 1
READ = 2

ENDLESS = 1 << 62
"""``entries`` of a stream without an end: adds end when the stream is told to."""

ADD_BYTES = 60
"""Size of an add without its payload: length 4, packet header 4, master key 20, entry header 32."""

READ_BYTES = 24
"""Size of a read: length 4, packet header 4, ledger 8, entry 8."""

RESPONSE_BYTES = 28
"""Size of the common part of all responses: length 4, packet header 4, code 4, ledger 8, entry 8."""

ENTRY_HEADER_BYTES = 32

_ADD = ADD
_READ = READ
_ENDLESS = ENDLESS
_ADD_HEADERS = ADD_BYTES
_RESPONSE_HEADERS = RESPONSE_BYTES
_ENTRY_HEADER = ENTRY_HEADER_BYTES
_CODES = 256

_VERSION = 2 << 24
_CHUNK_BYTES = 192 << 10
_RESPONSES_BYTES = 512 << 10
_LONGEST_WAIT = 50_000_000
_SHORTEST_WAIT = 50_000
"""Nanoseconds of a wait of open loops. Without the shorter bound a high rate takes a call per request, and most of a
processor. Under a CPU limit that stops the whole machine, bookie and all, for the rest of each tenth of a second, and
the latency measured is that pause."""


class Stream:
    """The requests of one connection: ``ledgers`` ledgers from ``first_ledger`` on.

    ``entries`` is the number in each ledger: reads begin again from 0 after it. ``size`` is the
    payload of an entry in bytes.
    """

    def __init__(
        self,
        kind: int,
        first_ledger: int,
        ledgers: int,
        entries: int,
        window: int,
        size: int,
        master_key: bytes,
    ) -> None:
        self.kind = kind
        self.first_ledger = first_ledger
        self.ledgers = ledgers
        self.total = entries * ledgers if entries < ENDLESS // ledgers else ENDLESS
        self.window = window
        self.size = size
        self.frame_bytes = _ADD_HEADERS + size if kind == ADD else READ_BYTES
        self.count()
        self.counted_from = 0
        self.outstanding = 0
        self.end = ENDLESS
        self.interval = 0.0
        self.due_base = 0
        self.is_blocked = False
        self.free_since = 0
        self.lateness = Histogram()
        self.next = 0
        self.next_ledger = 0
        self.next_entry = 0
        self.oldest = 0
        slots = 1
        while slots < 4 * window:
            slots *= 2
        self.mask = slots - 1
        self.sent_at = array("q", bytes(8 * slots))
        self.chunk_frames = max(min(window, _CHUNK_BYTES // self.frame_bytes), 1)
        chunk = bytearray(self.chunk_frames * self.frame_bytes)
        self.chunk = chunk
        self.chunk_view = memoryview(chunk)
        self.chunk_start = 0
        self.chunk_end = 0
        self._prepare_chunk(master_key)
        response = _RESPONSE_HEADERS + _ENTRY_HEADER + size
        responses = bytearray(max(_RESPONSES_BYTES, 2 * response))
        self.responses = responses
        self.responses_view = memoryview(responses)
        self.filled = 0

    def _prepare_chunk(self, master_key: bytes) -> None:
        payload = bytes(number * 31 + 7 & 0xFF for number in range(self.size))
        for number in range(self.chunk_frames):
            at = number * self.frame_bytes
            memory.put_i32(self.chunk, at, self.frame_bytes - 4)
            memory.put_i32(self.chunk, at + 4, _VERSION | self.kind << 16)
            if self.kind == _ADD:
                self.chunk_view[at + 8 : at + 28] = master_key
                self.chunk_view[at + _ADD_HEADERS : at + self.frame_bytes] = payload

    def count(self) -> None:
        """Starts counting; requests in flight count too, with their whole latency."""
        self.latency = Histogram()
        self.codes = array("q", bytes(8 * _CODES))
        self._codes = self.codes
        self.responded = 0

    def pace(self, first_due: int, interval: float, counted_from: int, end: int) -> None:
        """Turns the stream, before its first request, into an open loop: request n is due ``n * interval``
        after ``first_due``. Requests from number ``counted_from`` on are counted, and ``end`` is the first
        that is not sent."""
        self.due_base = first_due
        self.interval = interval
        self.counted_from = counted_from
        self.end = end

    def due_by(self, now: int) -> int:
        """The number of requests of an open loop that have been due by then."""
        if now < self.due_base:
            return 0
        due = int((now - self.due_base) / self.interval)
        return due + 1 if due < self.end else self.end

    def due_at(self, number: int) -> int:
        """When a request of an open loop is due."""
        offset = int(number * self.interval)
        return self.due_base + offset

    def next_due(self) -> int:
        """When an open loop has to send its next request; ENDLESS if it waits for the server, or has sent all."""
        if self.is_blocked or self.next >= self.end:
            return _ENDLESS
        return self.due_at(self.next)

    def block(self) -> None:
        """The socket takes no more."""
        self.is_blocked = True

    def give_up(self, now: int) -> int:
        """Counts what an open loop has not had a response to with the time for which it has been due: a latency is at
        least that. Returns the number of these requests."""
        given_up = 0
        number = self.oldest if self.oldest > self.counted_from else self.counted_from
        while number < self.end:
            if number >= self.next or self.sent_at[number & self.mask] != 0:
                self.latency.record(now - self.due_at(number))
                given_up += 1
            number += 1
        return given_up

    def fill(self, now: int) -> None:
        """Fills the chunk with as many requests as the window permits and, in an open loop, as are due; the last chunk
        has been sent."""
        count = self.window - self.outstanding
        if count > self.oldest + self.mask + 1 - self.next:
            count = self.oldest + self.mask + 1 - self.next
        if self.interval > 0:
            if self.is_blocked:
                self.free_since = now
            waiting = self.due_by(now) - self.next
            self.is_blocked = count < waiting
            if count > waiting:
                count = waiting
        if count > self.chunk_frames:
            count = self.chunk_frames
        if count > self.end - self.next:
            count = self.end - self.next
        at = 0
        for _ in range(count):
            ledger = self.first_ledger + self.next_ledger
            if self.kind == _ADD:
                memory.put_i64(self.chunk, at + 28, ledger)
                memory.put_i64(self.chunk, at + 36, self.next_entry)
                memory.put_i64(self.chunk, at + 44, self._confirmed())
                memory.put_i64(self.chunk, at + 52, (self.next_entry + 1) * self.size)
            else:
                memory.put_i64(self.chunk, at + 8, ledger)
                memory.put_i64(self.chunk, at + 16, self.next_entry)
            if self.interval > 0:
                due = self.due_at(self.next)
                if self.next >= self.counted_from:
                    self.lateness.record(now - (due if due > self.free_since else self.free_since))
                self.sent_at[self.next & self.mask] = due
            else:
                self.sent_at[self.next & self.mask] = now
            at += self.frame_bytes
            self.next += 1
            self.next_ledger += 1
            if self.next_ledger == self.ledgers:
                self.next_ledger = 0
                self.next_entry += 1
                if self.next_entry * self.ledgers >= self.total:
                    self.next_entry = 0
        self.outstanding += max(count, 0)
        self.chunk_start = 0
        self.chunk_end = at

    def _confirmed(self) -> int:
        """The last entry of the next ledger up to which every request has its response; -1 if none."""
        done = self.oldest - 1 - self.next_ledger
        return done // self.ledgers if done >= 0 else -1

    def process(self, size: int, now: int) -> None:
        """Processes ``size`` more bytes in ``responses``. Raises FrameError for bytes that cannot be a response."""
        end = self.filled + size
        limit = len(self.responses_view)
        at = 0
        while end - at >= _RESPONSE_HEADERS:
            length = memory.u32(self.responses, at) + 4
            if length > limit or length < _RESPONSE_HEADERS:
                raise FrameError(f"a response of {length} bytes")
            if length > end - at:
                break
            self._process_one(at, length, now)
            at += length
        if at:
            self.responses_view[: end - at] = self.responses_view[at:end]
        self.filled = end - at

    def _process_one(self, at: int, length: int, now: int) -> None:
        code = memory.i32(self.responses, at + 8)
        index = memory.i64(self.responses, at + 12) - self.first_ledger
        entry = memory.i64(self.responses, at + 20)
        number = entry * self.ledgers + index
        if self.total < _ENDLESS:
            number += self.oldest - self.oldest % self.total  # reads go round
            if number < self.oldest:
                number += self.total
        if (
            not 0 <= index < self.ledgers
            or not self.oldest <= number < self.next
            or self.sent_at[number & self.mask] == 0
        ):
            raise FrameError(
                f"a response for ledger {index + self.first_ledger}, entry {entry}, which was not requested"
            )
        if code == 0 and self.kind == _READ:
            body = at + _RESPONSE_HEADERS
            body_size = length - _RESPONSE_HEADERS
            if body_size != _ENTRY_HEADER + self.size:
                raise FrameError(
                    f"ledger {index + self.first_ledger}, entry {entry} has {body_size} bytes instead of "
                    f"{_ENTRY_HEADER + self.size} (a sink responds with entries of its --size)"
                )
            if (
                memory.i64(self.responses, body) != index + self.first_ledger
                or memory.i64(self.responses, body + 8) != entry
            ):
                raise FrameError(
                    f"ledger {index + self.first_ledger}, entry {entry} got the response of another entry"
                )
        if number >= self.counted_from:
            self.latency.record(now - self.sent_at[number & self.mask])
            self._codes[code if 0 <= code < _CODES else _CODES - 1] += 1
            self.responded += 1
        self.outstanding -= 1
        self.sent_at[number & self.mask] = 0
        while self.oldest < self.next and self.sent_at[self.oldest & self.mask] == 0:
            self.oldest += 1


class Link:
    """A stream and its non-blocking socket."""

    def __init__(self, stream: Stream, link: socket.socket, poll: select.epoll) -> None:
        self.stream = stream
        self.link = link
        self.poll = poll
        self.number = link.fileno()
        self.waits = False
        poll.register(self.number, select.EPOLLIN)

    def receive(self) -> None:
        """Receives responses. Raises ConnectionError if the peer has closed the connection."""
        stream = self.stream
        count = stream.responses_view[stream.filled :] if stream.filled else stream.responses_view
        size = self.link.recv_into(count)
        if size == 0:
            raise ConnectionResetError("the bookie closed the connection")
        stream.process(size, perf_counter_ns())

    def send(self) -> None:
        """Sends requests until the window is full or the socket takes no more."""
        stream = self.stream
        while True:
            if stream.chunk_start == stream.chunk_end:
                stream.fill(perf_counter_ns())
                if stream.chunk_end == 0:
                    break
            try:
                sent = self.link.send(stream.chunk_view[stream.chunk_start : stream.chunk_end])
            except BlockingIOError:
                sent = 0
            stream.chunk_start += sent
            if stream.chunk_start < stream.chunk_end:
                if not self.waits:
                    self.waits = True
                    self.poll.modify(self.number, select.EPOLLIN | select.EPOLLOUT)
                stream.block()
                return
        if self.waits:
            self.waits = False
            self.poll.modify(self.number, select.EPOLLIN)


def turn(poll: select.epoll, links: dict[int, Link], until: int, silence: int) -> bool:
    """Sends and receives until ``until``, or until nothing is in flight.

    False if nothing was received for ``silence`` nanoseconds. Raises ConnectionError, FrameError.
    """
    heard = perf_counter_ns()
    for link in links.values():
        link.send()
    while True:
        events = poll.poll(0.05)
        now = perf_counter_ns()
        if events:
            heard = now
        elif now - heard > silence:
            return False
        for number, event in events:
            link = links[number]
            if event & ~select.EPOLLOUT:
                link.receive()
            link.send()
        if now >= until or not _outstanding(links):
            return True


def paced_turn(poll: select.epoll, links: dict[int, Link], until: int, silence: int) -> int:
    """Sends the requests of open loops when they are due, and receives, until ``until``, or until all have
    been answered.

    Returns the deepest backlog: how many requests were due and not answered at one time; -1 if nothing was
    received for ``silence`` nanoseconds while some were. Raises ConnectionError, FrameError.
    """
    heard = perf_counter_ns()
    deepest = 0
    while True:
        now = perf_counter_ns()
        wake = until
        backlog = 0
        left = 0
        for link in links.values():
            if not link.waits:
                link.send()
            stream = link.stream
            due = stream.next_due()
            if due < wake:
                wake = due
            unsent = stream.due_by(now) - stream.next  # less than none: sent after ``now``
            backlog += stream.outstanding + (unsent if unsent > 0 else 0)
            left += stream.end - stream.next + stream.outstanding
        if backlog > deepest:
            deepest = backlog
        if left == 0 or now >= until:
            return deepest
        if backlog == 0:
            heard = now
        elif now - heard > silence:
            return -1
        now = perf_counter_ns()
        if wake > now + _LONGEST_WAIT:
            wake = now + _LONGEST_WAIT
        if wake < now + _SHORTEST_WAIT:
            wake = now + _SHORTEST_WAIT
        # epoll itself waits in whole milliseconds; select in microseconds, and an epoll is a file like others.
        select.select((poll,), (), (), (wake - now) / 1e9)
        events = poll.poll(0)
        if events:
            heard = perf_counter_ns()
        for number, event in events:
            link = links[number]
            if event & ~select.EPOLLOUT:
                link.receive()
            if event & select.EPOLLOUT or not link.waits:
                link.send()


def _outstanding(links: dict[int, Link]) -> bool:
    # Not any(): compiled, a generator would cost more than all the rest of a turn.
    for link in links.values():  # noqa: SIM110
        if link.stream.outstanding:
            return True
    return False
