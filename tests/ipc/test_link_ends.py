"""Both ends of a link, with real sockets and without anything behind them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bkbox.bookie.response_writer import ResponseWriter
from bkbox.frontend.loop.event_loop import EventLoop
from bkbox.frontend.loop.request_sender import RequestSender
from bkbox.ipc import link
from bkbox.ipc.frame_spans import heads, segments
from bkbox.worker.response_sender import RequestGroup, ResponseSender

SLOTS = 4
SLOT_BYTES = 1 << 16

Found = tuple[int, int, bytes]


class Front(RequestSender):
    """Writes down what it is told."""

    def __init__(
        self, sock: socket.socket, requests: list[memoryview], answers: list[memoryview]
    ) -> None:
        self.told: list[tuple[object, ...]] = []
        self.answers = answers
        super().__init__(sock, requests, answers, {})

    def other(self, kind: int, flag: int, slot: int, used: int) -> None:
        self.told.append((kind, flag, *found(self.answers[slot], used)))

    def remember(self, group: int, slot: int, used: int) -> None:
        self.told.append(("part", group, *found(self.answers[slot], used)))

    def done(self, mask: int, group: int) -> None:
        self.told.append(("done", group, mask))

    def lose(self) -> None:
        self.closed = True


def found(slot: memoryview, used: int) -> list[Found]:
    return [
        (connection, count, bytes(frames)) for connection, count, frames in segments(slot, used)
    ]


class Pair:
    """A front-end whose turns are made by the test, and a worker."""

    def __init__(self) -> None:
        front, self.back = link.pair()
        front.setblocking(False)
        requests, answers = (memoryview(bytearray(SLOTS * SLOT_BYTES)) for _ in range(2))
        self.front = Front(front, _slots(requests), _slots(answers))
        self.front.watches_done = True
        self.worker = ResponseSender(self.back, requests, _slots(answers))
        self.turns = EventLoop(1 << 20, lambda _stream, _error: None)
        self.turns.watch(front, self.front.receive)
        self.turns.links.append(self.front)

    def send(self, *frames: bytes, connection: int = 1) -> None:
        for frame in frames:
            assert self.front.lane.put(connection, frame, 0, len(frame))

    def turn(self) -> None:
        self.turns.turn(0)

    def take(self) -> RequestGroup:
        group = self.worker.pop_group()
        assert group is not None
        return group


def _slots(area: memoryview) -> list[memoryview]:
    return [area[at : at + SLOT_BYTES] for at in range(0, len(area), SLOT_BYTES)]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ended(Pair()) as made:
        yield made


@contextmanager
def ended(pair: Pair) -> Iterator[Pair]:
    try:
        yield pair
    finally:
        pair.turns.close()
        pair.back.close()
        pair.front._socket.sock.close()


def frames_of(group: RequestGroup) -> list[Found]:
    return [(c, n, bytes(group.area[start:end])) for c, n, start, end in group.segments]


def answer(writer: ResponseWriter, data: bytes, connection: int = 1) -> None:
    writer.put(connection, data, 1)


def test_all_that_waits_is_one_group_and_one_message_answers_it(pair: Pair) -> None:
    for turn in (b"a", b"b", b"c"):
        pair.send(turn)
        pair.turn()
    group = pair.take()
    assert frames_of(group) == [(1, 1, b"a"), (1, 1, b"b"), (1, 1, b"c")]
    assert group.slots == 0b111
    assert group.opened_us > 0
    assert pair.worker.pop_group() is None
    answer(pair.worker.responses(group), b"frame")
    pair.worker.done(group, read_only=True)
    assert pair.front.writable
    pair.turn()
    assert not pair.front.writable
    assert pair.front.told == [("done", 1, 0b111)]


def test_groups_overlap_and_every_part_is_of_one_of_them(pair: Pair) -> None:
    pair.send(b"a")
    pair.turn()
    first = pair.take()
    pair.send(b"b")
    pair.turn()
    second = pair.take()
    answer(pair.worker.responses(second), b"2 first")
    answer(pair.worker.responses(first), b"1 first")
    answer(pair.worker.poll_responses(), b"poll")
    answer(pair.worker.responses(second), b"2 last")
    pair.worker.done(second, read_only=False)
    pair.worker.done(first, read_only=False)
    pair.turn()
    assert pair.front.told == [
        ("part", 2, (1, 1, b"2 first")),
        ("part", 1, (1, 1, b"1 first")),
        (link.POLLED, 0, (1, 1, b"poll")),
        ("done", 2, 0b10),
        ("done", 1, 0b01),
    ]


def test_answers_to_long_polls_are_sent_when_they_are_flushed(pair: Pair) -> None:
    pair.worker.flush()
    answer(pair.worker.poll_responses(), b"poll")
    pair.turn()
    assert pair.front.told == []
    pair.worker.flush()
    pair.worker.flush()
    pair.turn()
    assert pair.front.told == [(link.POLLED, 0, (1, 1, b"poll"))]


def test_a_group_without_answers_takes_no_slot(pair: Pair) -> None:
    for _ in range(3 * SLOTS):
        pair.send(b"poll")
        pair.turn()
        group = pair.take()
        pair.worker.responses(group).mark()
        pair.worker.responses(group).reserve(1, 10, 1)
        pair.worker.responses(group).rewind()
        pair.worker.done(group, read_only=False)
        pair.turn()
    assert pair.front.told[-1] == ("done", 3 * SLOTS, 1)


def test_slots_of_answers_come_back_with_batches_or_when_there_are_many(pair: Pair) -> None:
    for _ in range(3 * SLOTS):  # each of them in a turn of its own, with no batch that could say it
        answer(pair.worker.poll_responses(), b"poll")
        pair.worker.flush()
        pair.turn()
    for _ in range(3 * SLOTS):
        pair.send(b"a")
        pair.turn()
        group = pair.take()
        answer(pair.worker.responses(group), b"frame")
        pair.worker.done(group, read_only=False)
        pair.turn()
    assert len(pair.front.told) == 6 * SLOTS


def test_a_batch_that_came_while_a_slot_was_waited_for_is_not_forgotten(pair: Pair) -> None:
    for _ in range(SLOTS):
        answer(pair.worker.poll_responses(), b"poll")
        pair.worker.flush()
    assert not pair.worker.has_batches
    pair.turn()
    pair.send(b"a")
    pair.turn()
    answer(pair.worker.poll_responses(), b"poll")
    assert pair.worker.has_batches
    assert frames_of(pair.take()) == [(1, 1, b"a")]
    assert not pair.worker.has_batches


def test_a_slot_of_requests_is_free_only_when_its_group_is_done(pair: Pair) -> None:
    for _ in range(SLOTS):
        pair.send(b"a")
        pair.turn()
    assert not pair.front.lane.put(1, b"b", 0, 1)
    group = pair.take()
    pair.turn()
    assert not pair.front.lane.put(1, b"b", 0, 1)
    assert pair.front.pending_requests() == [(1, 1, b"a")] * SLOTS
    pair.worker.done(group, read_only=False)
    pair.turn()
    pair.send(b"b")
    assert pair.front.pending_requests() == [(1, 1, b"b")]
    pair.turn()
    assert pair.front.pending_requests() == [(1, 1, b"b")]


def test_the_end_of_either_side(pair: Pair) -> None:
    pair.send(b"a")
    pair.turn()
    pair.back.shutdown(socket.SHUT_WR)
    pair.turn()
    assert pair.front.closed
    assert pair.front.pending_requests() == [(1, 1, b"a")]
    pair.front._socket.sock.close()
    assert pair.take().slots == 1
    with pytest.raises(EOFError):
        pair.worker.pop_group()


def test_heads_are_enough_to_tell_answers_apart() -> None:
    slot = memoryview(bytearray(SLOT_BYTES))
    writer = ResponseWriter(lambda _used: slot)
    for connection, body in ((1, b"x" * 100), (1, b"y" * 24), (2, b"z" * 33)):
        writer.put(connection, len(body).to_bytes(4, "big") + body, 1)
    kept = heads(slot, writer.used)
    assert found(memoryview(kept), len(kept)) == [
        (1, 2, b"\0\0\0\x20" + b"x" * 32 + b"\0\0\0\x18" + b"y" * 24),
        (2, 1, b"\0\0\0\x20" + b"z" * 32),
    ]
