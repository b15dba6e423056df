"""A connection on a real socket: frames in, however they are cut; answers out, however slowly they are taken."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from bkbox.base.limits import CONNECTION_UNSENT_BYTES_MAX
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.frontend.loop.connection import (
    SLOW_FRAMES_MAX,
    SLOW_FRAMES_SHARED_MAX,
    Connection,
    SharedState,
    deliver,
)
from bkbox.frontend.loop.event_loop import EventLoop
from bkbox.frontend.loop.routing import DiskQueue, LedgerTable
from bkbox.ipc.frame_spans import segments
from tests.harness import raw
from tests.harness.raw3 import ADD, FENCE, READ, add_part, read_part, request

KNOWN = 5
UNKNOWN = 6
FRAME_MAX = 2 << 20
INFLIGHT_MAX = 1 << 20


class Client(Connection):
    """``slow``: the frames that are not ordinary."""

    def __init__(self, number: int, sock: socket.socket, turns: EventLoop) -> None:
        super().__init__(number, sock, "peer", turns.poll, turns.common, FRAME_MAX, INFLIGHT_MAX)
        self.slow: list[bytes] = []
        self.error: Exception | None = None
        self.is_v3 = False

    def handle_slow_path(self, frame: memoryview) -> bool:
        self.slow.append(bytes(frame))
        return True

    def strip_payloads(self, frames: memoryview) -> bytes:
        return b"light"


class Bench:
    """One connection, one disk that has the ledger KNOWN, and the turns of the event loop."""

    def __init__(self, buffered_max: int, clock: Callable[[], float] | None = None) -> None:
        self.now_s = 0.0
        self.tick_s = 1.0  # by which each look at the clock moves it
        self.cpu_us = 0
        self.turns = EventLoop(buffered_max, self._end, clock or self._clock, self._cpu)
        self.lane = DiskQueue(self._more)
        self.slots = 1
        self.present: memoryview | None = None
        self.fast: list[bytes] = []
        routes = self.turns.common.routes
        routes.lanes.append(self.lane)
        routes.table.put(KNOWN, 0)
        self.peer, ours = socket.socketpair()
        ours.setblocking(False)
        self.client = Client(1, ours, self.turns)
        self.turns.streams[ours.fileno()] = self.client

    @property
    def common(self) -> SharedState:
        return self.turns.common

    def _clock(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def _cpu(self) -> float:
        self.cpu_us += 100
        return self.cpu_us / 1e6

    def _end(self, stream: Connection, error: Exception) -> None:
        assert isinstance(stream, Client)
        del self.turns.streams[stream.sock.fileno()]
        stream.error = error
        stream.close()

    def _more(self) -> memoryview | None:
        self.take()
        if not self.slots:
            return None
        self.slots -= 1
        self.present = memoryview(bytearray(FRAME_MAX + 100))
        return self.present

    def take(self) -> None:
        """What was packed for the disk."""
        if self.present is not None:
            for _connection, count, frames in segments(self.present, self.lane.finish()):
                bodies = list(raw_frames(bytes(frames)))
                assert len(bodies) == count
                self.fast += bodies
            self.present = None
            self.slots += 1

    def send(self, data: bytes) -> None:
        """Put it into the socket as there is room, with turns between."""
        self.peer.setblocking(False)
        at = 0
        while at < len(data):
            with suppress(BlockingIOError):
                at += self.peer.send(data[at : at + 50_000])
            self.turns.turn(0)
        self.settle()

    def settle(self) -> None:
        """Turns until nothing is to be read any more, or nobody reads."""
        for _ in range(40):
            self.turns.turn(0)

    def close(self) -> None:
        self.peer.close()
        self.client.close()
        self.turns.close()


def raw_frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        yield data[at:end]
        at = end
    assert at == len(data)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(1 << 30)
    yield made
    made.close()


@pytest.fixture
def small() -> Iterator[Bench]:
    """One that holds no more than 500,000 bytes."""
    made = Bench(500_000)
    yield made
    made.close()


# ---- requests ---------------------------------------------------------------------------------------


def test_frames_come_out_whole_and_in_order_however_they_were_cut(bench: Bench) -> None:
    chance = random.Random(4)
    fast, slow = [], []
    data = b""
    for number in range(300):
        payload = bytes(chance.choice((0, 1, 100, 1000, 40_000)))
        if chance.random() < 0.7:
            fast.append(raw.add_frame(KNOWN, number, payload))
            data += fast[-1]
        else:
            slow.append(raw.add_frame(UNKNOWN, number, payload))
            data += slow[-1]
    at = 0
    while at < len(data):
        size = chance.choice((1, 3, 5, 30, 1000, 100_000))
        bench.peer.sendall(data[at : at + size])
        bench.turns.turn(0)
        bench.take()
        # Each is answered at once, so that nothing waits.
        bench.client.release(1000)
        at += size
    bench.settle()
    bench.take()
    assert bench.fast == fast
    assert bench.client.slow == slow
    assert bench.common.buffered == 0


def test_a_large_frame_is_kept_until_it_is_whole(bench: Bench) -> None:
    large = raw.add_frame(KNOWN, 1, bytes(900_000))
    before, after = raw.add_frame(KNOWN, 0, b"x"), raw.add_frame(KNOWN, 2, b"x")
    bench.send(before + large[:-1])
    assert bench.common.buffered == len(large)
    bench.send(large[-1:] + after)
    bench.take()
    assert bench.fast == [before, large, after]
    assert bench.common.buffered == 0


def test_what_is_ordinary(bench: Bench) -> None:
    """Adds and reads of a known ledger, of both versions, recovery adds of version 2, and nothing else."""
    ordinary = [
        raw.add_frame(KNOWN, 0, b"x"),
        raw.add_frame(KNOWN, 0, b"x", raw.RECOVERY | raw.HIGH_PRIORITY),
        raw.read_frame(KNOWN, 0),
        raw.read_frame(KNOWN, -1),
    ]
    other = [
        raw.add_frame(UNKNOWN, 0, b"x", raw.RECOVERY),
        raw.read_frame(KNOWN, 0, raw.FENCE),
        raw.batch_frame(KNOWN, 0, 1),
        raw.read_frame(UNKNOWN, 0),
        raw.read_frame(-KNOWN, 0),
        b"\0\0\0\x01\x02",
        b"\0\0\0\x13\x02\x02" + bytes(17),
    ]
    bench.send(b"".join(other + ordinary))
    ordinary3 = [request(ADD, 1, add_part(KNOWN, 0)), request(READ, 2, read_part(KNOWN, 0))]
    other3 = [
        request(ADD, 1, add_part(UNKNOWN, 0)),
        request(ADD, 1, add_part(KNOWN, 0, recovery=True)),
        request(READ, 2, read_part(KNOWN, 0, flag=FENCE)),
        raw.read_frame(KNOWN, 0),
    ]
    bench.client.is_v3 = True
    bench.send(b"".join(ordinary3 + other3))
    bench.take()
    assert bench.fast == ordinary + ordinary3
    assert bench.client.slow == other + other3


@pytest.mark.parametrize("length", [0, -1, FRAME_MAX - 3])
def test_a_length_that_cannot_be_ends_the_connection(bench: Bench, length: int) -> None:
    bench.send(raw.add_frame(KNOWN, 0, b"x") + length.to_bytes(4, "big", signed=True))
    assert "frame of" in str(bench.client.error)
    bench.take()
    assert len(bench.fast) == 1


def test_the_end_of_the_connection(bench: Bench) -> None:
    bench.send(raw.add_frame(KNOWN, 0, b"x")[:-1])
    bench.peer.close()
    bench.settle()
    assert isinstance(bench.client.error, EOFError)
    assert bench.common.buffered == 0


# ---- what waits -------------------------------------------------------------------------------------


def test_without_a_slot_nothing_more_is_read(bench: Bench) -> None:
    bench.slots = 0
    frames = [raw.add_frame(KNOWN, number, bytes(1000)) for number in range(100)]
    bench.send(b"".join(frames))
    assert bench.lane.waiting == [bench.client]
    bench.peer.send(raw.add_frame(UNKNOWN, 0, b"x"))
    bench.settle()
    assert bench.client.slow == []
    bench.slots = 1
    bench.lane.waiting.pop().on_slot_free()
    bench.settle()
    bench.take()
    assert bench.fast == frames
    assert len(bench.client.slow) == 1


def test_no_more_is_on_its_way_than_there_may_be(bench: Bench) -> None:
    frames = [raw.add_frame(KNOWN, number, bytes(100_000)) for number in range(25)]
    for frame in frames[:11]:
        bench.send(frame)
    bench.peer.send(frames[11])
    bench.settle()
    bench.take()
    assert bench.fast == frames[:11]
    bench.client.on_responses(memoryview(b"a"), 5)
    bench.settle()
    assert bench.peer.recv(10) == b"a"
    bench.take()
    assert bench.fast == frames[:11], "still more than half"
    bench.client.on_responses(memoryview(b"b"), 1)
    bench.settle()
    bench.take()
    assert bench.fast == frames[:12]


def test_a_read_costs_what_its_answer_had(bench: Bench) -> None:
    bench.client.charge(0)
    bench.client.on_responses(memoryview(bytes(INFLIGHT_MAX // 2)), 1)
    frames = [raw.read_frame(KNOWN, number) for number in range(10)]
    bench.send(b"".join(frames))
    bench.take()
    assert bench.fast == frames[:3]


# ---- answers ----------------------------------------------------------------------------------------


def test_answers_of_a_turn_are_one_write(bench: Bench) -> None:
    slot = memoryview(bytearray(1000))
    writer = ResponseWriter(lambda _used: slot)
    for connection, data in ((1, b"one"), (2, b"gone"), (1, b"two")):
        writer.put(connection, data, 1)
    streams: dict[int, Connection] = {1: bench.client}
    deliver(slot, writer.used, streams)
    deliver(slot, writer.used, streams)
    bench.turns.turn(0)
    slot[:] = bytes(1000)
    assert bench.peer.recv(100) == b"onetwoonetwo"


def test_answers_that_are_taken_slowly_come_all_and_in_order(bench: Bench) -> None:
    expected = b""
    chance = random.Random(5)
    for _ in range(40):
        data = bytearray(chance.randbytes(100_000))
        expected += data
        bench.client.send(memoryview(data))
        bench.turns.turn(0)
        data[:] = bytes(100_000)  # as a slot is used again after the turn
    assert bench.common.buffered > 1 << 20
    bench.peer.send(raw.add_frame(UNKNOWN, 0, b"x"))
    bench.settle()
    assert bench.client.slow == [], "nothing is read from a client that takes no answers"
    got = b""
    while len(got) < len(expected):
        got += bench.peer.recv(70_000)
        bench.turns.turn(0)
    assert got == expected
    bench.settle()
    assert len(bench.client.slow) == 1
    assert bench.common.buffered == 0


def test_ordinary_adds_of_a_ledger_that_is_over_are_looked_at(bench: Bench) -> None:
    adds = [
        raw.add_frame(KNOWN, 0, b"x"),
        request(ADD, 1, add_part(KNOWN, 1)),
    ]
    others = [
        raw.read_frame(KNOWN, 0),
        raw.add_frame(KNOWN, 0, b"x", raw.RECOVERY),
        request(READ, 1, read_part(KNOWN, 1)),
    ]
    routes = bench.common.routes
    over = LedgerTable()
    for ledgers, slow in (((), []), ((UNKNOWN,), []), ((UNKNOWN, KNOWN), adds)):
        for ledger in ledgers:
            over.put(ledger, 0)
        routes.over = over if over.count else None
        assert routes.is_over(KNOWN) == (KNOWN in ledgers)
        bench.fast.clear()
        bench.client.slow.clear()
        for version in (0, 1):
            bench.client.is_v3 = bool(version)
            mine = (adds[version], *((others[2],) if version else others[:2]))
            bench.send(b"".join(mine))
        bench.take()
        bench.client.release(1000)
        assert bench.client.slow == slow
        assert bench.fast == [
            each for each in (adds[0], *others[:2], adds[1], others[2]) if each not in slow
        ]


def test_large_frames_one_after_the_other_do_not_mix(bench: Bench) -> None:
    sizes = [300_000, 1_000_000, 400_000, 1_500_000, 200_000, 300_000]
    frames = [raw.add_frame(UNKNOWN, n, bytes([n]) * size) for n, size in enumerate(sizes)]
    for cut in (0, 1, 100_000):
        bench.client.slow.clear()
        data = b"".join(frames) + raw.add_frame(UNKNOWN, 9, b"small")
        bench.send(data[: len(data) - cut])
        bench.send(data[len(data) - cut :])
        assert bench.client.slow == [*frames, raw.add_frame(UNKNOWN, 9, b"small")]
        assert bench.common.buffered == 0


class ForceClosePlan:
    """TLS whose end was read together with the last request."""

    pending = True
    unsent = 0

    def recv_into(self, _view: memoryview) -> int:
        return 0

    def send(self, parts: list[memoryview]) -> int:
        return sum(map(len, parts))

    def flush(self) -> None: ...


def test_an_end_that_is_seen_only_when_it_goes_on_ends_that_connection_alone(bench: Bench) -> None:
    bench.client.begin_with(raw.add_frame(UNKNOWN, 0, b"x"), ForceClosePlan())
    bench.settle()
    assert len(bench.client.slow) == 1
    assert isinstance(bench.client.error, EOFError)


def test_what_a_client_does_not_take_loses_its_entries(bench: Bench) -> None:
    most = CONNECTION_UNSENT_BYTES_MAX
    data = memoryview(bytes(1 << 20))
    for _ in range((most >> 20) + 10):
        bench.client.send(data)
        bench.turns.turn(0)
    held = bench.common.buffered
    assert most < held < most + (2 << 20)
    bench.client.send(data)
    bench.turns.turn(0)
    assert bench.common.buffered == held + len(b"light")


def test_a_full_front_end_takes_no_reads_fast_and_no_large_frame(small: Bench) -> None:
    bench = small
    bench.common.buffered += 400_000
    bench.send(raw.add_frame(KNOWN, 0, b"x"))
    bench.common.buffered += 50_000
    refused = raw.read_frame(KNOWN, 0)
    bench.send(refused + raw.add_frame(KNOWN, 1, b"x"))
    bench.take()
    assert len(bench.fast) == 2
    assert bench.client.slow == [refused]
    bench.client.send(memoryview(b"first"))
    bench.turns.turn(0)
    assert bench.peer.recv(100) == b"first", "what is taken at once is sent as it is"
    bench.send(raw.add_frame(KNOWN, 2, bytes(900_000))[:40_000])
    assert isinstance(bench.client.error, ConnectionAbortedError)


def test_frames_that_are_not_ordinary_rest_beside_ordinary_ones(bench: Bench) -> None:
    bench.tick_s = 0.0
    odd = [raw.add_frame(UNKNOWN, number, b"x") for number in range(100)]
    bench.peer.send(raw.add_frame(KNOWN, 0, b"x") + b"".join(odd))
    for _ in range(10):
        bench.turns.turn(0)
    assert len(bench.client.slow) == SLOW_FRAMES_MAX, "the turn had begun before ordinary ones came"
    bench.now_s = 14 * 100e-6
    for _ in range(10):
        bench.turns.turn(0)
    assert len(bench.client.slow) == SLOW_FRAMES_MAX, "it rests longer than it took"
    bench.now_s = 16 * 100e-6
    for _ in range(10):
        bench.turns.turn(0)
    assert len(bench.client.slow) == SLOW_FRAMES_MAX + SLOW_FRAMES_SHARED_MAX
    for _ in range(100):
        bench.turns.turn(0)
    assert bench.client.slow == odd, "nobody else has come for a while"


@pytest.mark.parametrize("last", [0, 100, 200_000])
def test_very_many_that_are_not_ordinary_come_in_order(bench: Bench, last: int) -> None:
    """What is kept of them moves up in its memory, until it is so little, or begins so large, that it gets its own."""
    chance = random.Random(7)
    odd = [raw.add_frame(UNKNOWN, number, bytes(chance.randrange(60))) for number in range(9_000)]
    odd += [raw.add_frame(UNKNOWN, 9_000, bytes(last)), raw.add_frame(KNOWN, 0, b"x")]
    data, at = b"".join(odd), 0
    bench.peer.setblocking(False)
    while at < len(data):
        with suppress(BlockingIOError):
            at += bench.peer.send(data[at : at + chance.randrange(1, 400_000)])
        bench.turns.turn(0)
    while not bench.fast:
        bench.turns.turn(0)
        bench.take()
    assert bench.client.slow == odd[:-1]
    assert bench.fast == odd[-1:]
    assert bench.common.buffered == 0


def test_those_that_rest_go_on_by_themselves() -> None:
    bench = Bench(1 << 20, time.monotonic)
    odd = [raw.add_frame(UNKNOWN, number, b"x") for number in range(40)]
    bench.peer.send(raw.add_frame(KNOWN, 0, b"x") + b"".join(odd))
    while len(bench.client.slow) < len(odd):
        bench.turns.turn(None)
    bench.close()


def test_no_answer_and_no_part_of_a_frame_is_held_past_the_limit(small: Bench) -> None:
    bench = small
    bench.common.buffered += 350_000
    for _ in range(2):
        bench.client.send(memoryview(bytes(100_000)))
        bench.client.send(memoryview(bytes(100_000)))
    bench.turns.turn(0)
    assert len(bench.peer.recv(1 << 20)) == 100_000 + 3 * len(b"light"), "nothing was held before"
    bench.client.send(memoryview(bytes(100_000)))
    bench.turns.turn(0)
    assert len(bench.peer.recv(1 << 20)) == 100_000, "what is sent makes room for others"
    bench.common.buffered = bench.common.buffered_max - 10
    bench.send(raw.add_frame(KNOWN, 2, bytes(100))[:40])
    assert isinstance(bench.client.error, ConnectionAbortedError)


def test_a_full_front_end_reads_from_nobody_whose_answers_wait(small: Bench) -> None:
    bench = small
    for _ in range(10):
        bench.client.send(memoryview(bytes(100_000)))
        bench.turns.turn(0)
    assert bench.common.above_soft_limit()
    bench.peer.send(raw.add_frame(UNKNOWN, 0, b"x"))
    bench.settle()
    assert bench.client.slow == []
    while bench.common.buffered:
        bench.peer.recv(1 << 20)
        bench.turns.turn(0)
    bench.settle()
    assert len(bench.client.slow) == 1
