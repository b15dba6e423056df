"""A client's connection: any bytes, however they were cut, are the same requests, and those a worker can carry out."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from bkbox.errors import DiskError, EncodingError, FrameError
from bkbox.frontend.ledger_directory import Purpose
from bkbox.frontend.overload.overload_responses import without_entries
from bkbox.frontend.request_router import RequestRouter
from bkbox.storage.files import Space
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies
from tests.fuzz.kernels import IN_USE, INTERPRETED, alike
from tests.fuzz.target import Target
from tests.fuzz.targets.frames import frames_of, plain_frames

FRAME_MAX = 4096
DISKLESS = 3
"""A ledger that has no disk."""

_ENDLESS = 1 << 40
_CONNECTION = 9


class _Poll:
    """An epoll by hand: one descriptor, and what it says next."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []

    def register(self, *_watched: object) -> None:
        return

    modify = register

    def poll(self, _wait: float | None = None) -> list[tuple[int, int]]:
        events, self.events = self.events, []
        return events


@contextmanager
def _in_place_of_epoll(poll: _Poll) -> Iterator[None]:
    """As mock.patch.object, in a tenth of its time."""
    real, select.epoll = select.epoll, lambda: poll  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        select.epoll = real  # type: ignore[misc]


class _Socket:
    """What the client sends lies in ``waiting``; what it is sent, in ``sent``."""

    def __init__(self) -> None:
        self.waiting = b""
        self.sent = bytearray()

    def fileno(self) -> int:
        return 5

    def recv_into(self, room: memoryview) -> int:
        data, self.waiting = self.waiting[: len(room)], self.waiting[len(room) :]
        room[: len(data)] = data
        return len(data)

    def send(self, data: memoryview) -> int:
        self.sent += data
        return len(data)

    def sendmsg(self, parts: list[memoryview]) -> int:
        return sum(map(self.send, parts))

    def close(self) -> None:
        return


class _Link:
    """The way to the one disk: what a session asks of a DiskLink."""

    def __init__(self, lane: object) -> None:
        self.lane = lane

    def submit(self, connection: int, frame: memoryview, poll: tuple[int, bytes] | None) -> bool:
        assert poll is None or v3.decode_response(poll[1][4:])
        return bool(self.lane.put(connection, frame, 0, len(frame)))  # type: ignore[attr-defined]


class _Router:
    """Sends everything to the one disk, but for a ledger that has none."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def route(self, ledger: int, purpose: Purpose, _connection: int) -> _Link | Code:
        return Code.ENOLEDGER if ledger == DISKLESS else self._link

    def space(self) -> Space:
        raise DiskError("no size")


def _session_of(kernel: SimpleNamespace) -> type:
    """A connection over this kernel, as bkbox.frontend.client_session has it."""

    class Session(kernel.connection.Connection):  # type: ignore[name-defined,misc]
        __slots__ = ("intake",)

        def handle_slow_path(self, frame: memoryview) -> bool:
            target = self.intake.dispatch(frame[4:])
            self.is_v3 = self.intake.tries_v3
            if isinstance(target, bytes):
                if target:
                    self.send(memoryview(target))
                return True
            assert target.link.submit(self.number, frame, target.poll)
            self.charge(len(frame) - 4 if target.costs_request_bytes else 0)
            return True

    return Session


_SESSIONS = {id(kernel): _session_of(kernel) for kernel in (INTERPRETED, IN_USE)}
_SLOTS = [memoryview(bytearray(1 << 18)) for _ in range(2)]
"""Used again and again: to clear them takes longer than all else."""


class Connection:
    """One client, over one of the kernels. ``error``: what ended it."""

    def __init__(self, kernel: SimpleNamespace, slot: memoryview = _SLOTS[0]) -> None:
        """``slot``: for what is handed to the disk."""
        self._slot = slot
        self.poll = _Poll()
        with _in_place_of_epoll(self.poll):
            self.turns = kernel.event_loop.EventLoop(_ENDLESS, self._end)
        self.lane = kernel.routing.DiskQueue(lambda: slot)
        routes = self.turns.common.routes
        routes.lanes.append(self.lane)
        for ledger in (0, 1, 2, 1 << 62):
            routes.table.put(ledger, 0)
        self.sock = _Socket()
        self.error: str | None = None
        self.stream = _SESSIONS[id(kernel)](
            _CONNECTION, self.sock, "peer", self.poll, self.turns.common, FRAME_MAX, _ENDLESS
        )
        self.stream.intake = RequestRouter(_Router(_Link(self.lane)))  # type: ignore[arg-type]
        self.turns.streams[self.sock.fileno()] = self.stream

    def _end(self, stream: object, error: Exception) -> None:
        assert isinstance(error, FrameError), error
        self.error = str(error)
        self.turns.streams.clear()
        stream.close()  # type: ignore[attr-defined]

    def take(self, data: bytes) -> None:
        """The client sends this, and nothing else for now."""
        if self.error is None:
            self.sock.waiting = data
            self.poll.events = [(self.sock.fileno(), select.EPOLLIN)]
            self.turns.turn(0)

    def requests(self) -> memoryview:
        """What the disk has to do, as it lies in the slot."""
        return self._slot[: self.lane.finish()]


def whole(kernel: SimpleNamespace, data: bytes) -> Connection:
    """A client that has sent all of it at once."""
    connection = Connection(kernel)
    connection.take(data)
    return connection


def check_stream(data: bytes) -> object:
    """Whole, byte by byte, or in pieces: the same requests in the same order, the same answers, the same end."""
    size, data = (data[0] % 24 + 1, data[1:]) if data else (1, data)
    if not data:
        return None
    if len(data) > 160:
        size = max(size, 12)

    def compare(kernel: SimpleNamespace) -> object:
        one = whole(kernel, data)
        other = Connection(kernel, _SLOTS[1])
        for at in range(0, len(data), size):
            other.take(data[at : at + size])
        requests = bytes(one.requests())
        assert requests == bytes(other.requests())
        assert one.error == other.error
        # An error ends a connection with what was not sent yet.
        assert other.sock.sent.startswith(one.sock.sent)
        assert one.error or one.sock.sent == other.sock.sent
        if one.error is None:
            assert (
                one.turns.common.buffered == other.turns.common.buffered < len(data) + FRAME_MAX + 1
            )
        return requests, bytes(one.sock.sent), one.error

    requests, sent, error = alike(compare)  # type: ignore[misc]
    for body in bodies(sent, max(5, len(sent))):
        _answer_in(body)
    assert len(without_entries(sent)) <= len(sent)
    for body in bodies(requests[12:], max(5, len(requests))):
        (v2 if body[0] < v3.FIRST_BYTE_MIN else v3).decode_request(body)
    return len(requests) > 0, len(sent) > 0, (error or "")[:20].rstrip("0123456789- ")


def streams() -> list[bytes]:
    """What clients send."""
    frames = plain_frames() + frames_of("wire-v2.json") + frames_of("wire-v3.json")
    made = [*frames, b"".join(frames[:6]), b"".join(plain_frames()[6:9])]
    return made + [frames[0] + length.to_bytes(4, signed=True) for length in (0, -1, 4093, 4092, 9)]


def _answer_in(body: memoryview) -> v2.Response | v3.Response:
    try:
        return v3.decode_response(body)
    except (
        EncodingError
    ):  # a refusal of any version of version 2 repeats that version in its first byte
        answer = v2.decode_response(body)
    assert body[0] < v3.FIRST_BYTE_MIN or getattr(answer, "code", None) is Code.EBADVERSION
    return answer


def _cut() -> list[bytes]:
    return [bytes((number % 24,)) + data for number, data in enumerate(streams())]


TARGETS = (Target("streams", "connections to the front-end", _cut, check_stream, 0.1),)
