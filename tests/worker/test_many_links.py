"""One disk with links to several front-ends: what has to hold over all of them."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.ipc import link
from bkbox.ipc.slots import SLOT_COUNT
from tests.harness import raw, raw3
from tests.worker.bench import Bench, FrontEndOfLink

OTHER = link.connections_of(1)[7]
POLL = raw3.request(
    raw3.READ, 9, raw3.read_part(1, -1, flag=raw3.PIGGYBACK, previous=-1, timeout_ms=60_000)
)
"""Waits for a LAC beyond -1."""


def with_lac(ledger: int, entry: int, lac: int) -> bytes:
    return raw3.request(raw3.ADD, 8, raw3.add_part(ledger, entry, lac=lac))


class TwoLinks:
    """A disk, and the links of two front-ends to it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.one, self.two = bench.end, FrontEndOfLink()
        bench.groups.attach(self.two.worker)


@pytest.fixture
def links(tmp_path: Path) -> Iterator[TwoLinks]:
    bench = Bench(tmp_path)
    made = TwoLinks(bench)
    yield made
    bench.close(clean=False)
    made.two.close()


def test_connections_of_front_ends_are_disjoint() -> None:
    of_all = [link.connections_of(number) for number in range(3)]
    assert all(one.stop == other.start for one, other in itertools.pairwise(of_all))
    for number, connections in enumerate(of_all):
        assert {link.frontend_of(connections[0]), link.frontend_of(connections[-1])} == {number}


def test_one_group_of_each_link_a_turn_and_one_sync_for_both(links: TwoLinks) -> None:
    bench = links.bench
    links.one.put(raw.add_frame(1, 0, b"first"))
    bench.groups.receive()
    bench.until(lambda: links.one.codes() == [raw.EOK])
    bench.files.gate.clear()
    links.one.put(raw.add_frame(1, 1, b"x" * 100_000))
    links.two.put(raw.add_frame(2, 0, b"x"), connection=OTHER)
    bench.groups.receive()
    assert len(vars(bench.groups)["_covered"]) == 2, "the sync in flight is for both"
    bench.files.gate.set()
    codes_one: list[int] = []
    codes_two: list[int] = []
    bench.until(
        lambda: (
            (codes_one.extend(links.one.codes()), codes_two.extend(links.two.codes()))
            and len(codes_one) == len(codes_two) == 1
        )
    )
    assert codes_one == codes_two == [raw.EOK]


def test_a_fence_over_one_link_sees_the_adds_over_the_other(links: TwoLinks) -> None:
    """It waits for the sync of an add that came before it, and denies none that is acknowledged."""
    bench = links.bench
    links.one.put(raw.add_frame(1, 0, b"first"))
    bench.groups.receive()
    bench.until(lambda: links.one.codes() == [raw.EOK])
    bench.files.gate.clear()
    links.one.put(raw.add_frame(1, 1, b"x" * 100_000))
    bench.groups.receive()
    links.two.put(raw.read_frame(1, 1, flags=raw.FENCE), connection=OTHER)
    bench.groups.receive()
    bench.groups.on_background_done()
    assert links.one.answers() == links.two.answers() == [], "neither is answered before the sync"
    links.one.put(raw.add_frame(1, 2, b"late"))
    bench.groups.receive()
    bench.files.gate.set()
    adds: list[int] = []
    reads: list[bytes] = []
    bench.until(
        lambda: (
            (adds.extend(links.one.codes()), reads.extend(links.two.answers()))
            and len(adds) == 2
            and len(reads) == 1
        )
    )
    assert adds == [raw.EOK, raw.EFENCED]
    assert reads[0].endswith(b"x" * 100)


def test_a_long_poll_over_one_link_is_answered_after_an_add_over_the_other(
    links: TwoLinks,
) -> None:
    bench = links.bench
    links.one.put(raw.add_frame(1, 0, b"x"))
    bench.groups.receive()
    bench.until(lambda: links.one.codes() == [raw.EOK])
    links.two.put(POLL, connection=OTHER)
    bench.groups.receive()
    assert list(bench.bookie.pop_ready_polls()) == []
    links.one.put(with_lac(1, 1, 0))
    bench.groups.receive()
    bench.until(lambda: bool(links.one.answers()))
    ((connection, _frames),) = bench.bookie.pop_ready_polls()
    assert connection == OTHER


def test_a_front_end_that_is_gone_takes_its_own_polls_and_answers_only(links: TwoLinks) -> None:
    bench = links.bench
    links.one.put(raw.add_frame(1, 0, b"x"))
    bench.groups.receive()
    bench.until(lambda: links.one.codes() == [raw.EOK])
    links.one.put(POLL)
    links.two.put(POLL, connection=OTHER)
    bench.groups.receive()
    bench.files.gate.clear()
    links.one.put(with_lac(1, 1, 0) + raw.add_frame(3, 0, b"x" * 100_000))
    links.two.put(raw.add_frame(2, 0, b"x" * 100_000), connection=OTHER)
    bench.groups.receive()
    bench.groups.detach(links.one.worker)
    bench.bookie.forget_connections(link.connections_of(0))
    bench.files.gate.set()
    codes: list[int] = []
    bench.until(lambda: codes.extend(links.two.codes()) or bool(codes))  # type: ignore[func-returns-value]
    assert codes == [raw.EOK]
    assert links.one.answers() == []
    assert bench.store.read_entry(1, 1) is not None, "its waiting writes take effect all the same"
    assert [connection for connection, _ in bench.bookie.pop_ready_polls()] == [OTHER]


def test_a_link_whose_slots_are_not_released_ends_and_the_other_goes_on(links: TwoLinks) -> None:
    bench = links.bench
    wait = struct.pack("@ll", 0, 50_000)
    links.one.back.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
    for number in range(SLOT_COUNT):
        links.one.put(raw.add_frame(1, number, b"x"))
        bench.groups.receive()
        bench.until(lambda number=number: links.one.worker.is_stuck or taken(links.one, number))  # type: ignore[misc]
    assert not links.one.worker.is_stuck
    links.one.put(raw.read_frame(1, 0))  # no slot is left for its response
    links.two.put(raw.add_frame(2, 0, b"x"), connection=OTHER)
    bench.groups.receive()
    assert links.one.worker.is_stuck
    assert bench.lost
    codes: list[int] = []
    bench.until(lambda: codes.extend(links.two.codes()) or bool(codes))  # type: ignore[func-returns-value]
    assert codes == [raw.EOK]


def taken(end: FrontEndOfLink, number: int) -> bool:
    """True if the worker has sent the response to this batch, whose slot is not released."""
    waiting = end.front.recv(1 << 16, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    return len(waiting) // 24 > number
