"""The load generator on the sink, on a server that answers wrongly, and frame by frame."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.bench.load import Load, Shape, measured, write_ledgers
from bkbox.bench.load_loop import ADD, READ
from bkbox.errors import BenchError, FrameError
from bkbox.wire import v2
from bkbox.wire.codes import Code
from bkbox.wire.digest import HEADER, DigestManager, master_key
from bkbox.wire.frames import bodies
from bkbox.wire.metadata.ledger import DigestType
from tests.bench.servers import HOST, Answer, server, sink

LEDGER = 1 << 40


def test_adds_are_those_of_a_writer_and_interleaved() -> None:
    seen: list[v2.AddRequest] = []

    def answer(request: v2.Request) -> v2.Response:
        assert isinstance(request, v2.AddRequest)
        seen.append(request)
        return v2.AddResponse(2, Code.EOK, request.ledger_id, request.entry_id)

    with server(answer) as port:
        write_ledgers((HOST, port), Shape(3, 1, 2, 50), LEDGER, 4, 5.0)
    assert [(each.ledger_id - LEDGER, each.entry_id) for each in seen] == [
        (ledger, entry) for entry in range(4) for ledger in range(3)
    ]
    for each in seen:
        assert each.master_key == master_key(b"")
        assert each.flags == 0
        verified = DigestManager(each.ledger_id, DigestType.DUMMY, b"").verify(
            each.entry, each.entry_id
        )
        assert verified.length == 50 * (each.entry_id + 1)
        assert -1 <= verified.lac < each.entry_id
        assert len(verified.payload) == 50
    assert seen[-1].lac >= 1


@pytest.fixture(scope="module", params=[0, 1000])
def size_and_sink(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """A size of payloads, and the port of a sink that answers reads with such."""
    with sink("--size", str(request.param)) as port:
        yield request.param, port


@pytest.mark.parametrize("window", [1, 7, 3000])
def test_everything_asked_is_answered_once(window: int, size_and_sink: tuple[int, int]) -> None:
    size, port = size_and_sink
    with Load((HOST, port), 5.0) as load:
        adds = load.add(ADD, Shape(5, 2, window, size), LEDGER)
        reads = load.add(READ, Shape(5, 2, window, size), LEDGER, 20)
        for stream in adds + reads:
            stream.end = 5000
        load.run()
        for stream in adds + reads:
            assert (stream.responded, stream.outstanding, stream.next) == (5000, 0, 5000)
        total = measured(adds, 1.0)
    assert (total.requests, total.errors, total.bytes) == (10_000, {}, 10_000 * (32 + size))
    assert 0 < (total.p50_us or 0) <= (total.p99_us or 0) <= (total.p999_us or 0)


def test_the_sink_appends_what_came(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with sink("--append", str(file)) as port:
        write_ledgers((HOST, port), Shape(2, 1, 50, 300), LEDGER, 500, 5.0)
    requests = [v2.decode_request(bytes(body)) for body in bodies(file.read_bytes())]
    assert len(requests) == 1000
    assert {len(each.entry) for each in requests if isinstance(each, v2.AddRequest)} == {332}


def test_answers_may_come_in_any_order() -> None:
    held: list[v2.AddRequest] = []

    def answer(request: v2.Request) -> v2.Response | None:
        """The second of every two first; the first comes with the next request."""
        assert isinstance(request, v2.AddRequest)
        held.append(request)
        if len(held) < 2:
            return None
        late = held.pop() if request.entry_id % 2 else held.pop(0)
        return v2.AddResponse(2, Code.EOK, late.ledger_id, late.entry_id)

    with server(answer) as port, Load((HOST, port), 5.0) as load:
        (stream,) = load.add(ADD, Shape(3, 1, 8, 10), LEDGER)
        load.run(0.1)
        assert stream.responded > 20
        assert stream.outstanding <= 8


def test_wrong_codes_are_counted_by_name() -> None:
    def answer(request: v2.Request) -> v2.Response:
        assert isinstance(request, v2.AddRequest)
        code = Code.EOK if request.entry_id < 3 else Code.EFENCED
        return v2.AddResponse(2, code, request.ledger_id, request.entry_id)

    with server(answer) as port:
        with Load((HOST, port), 5.0) as load:
            (stream,) = load.add(ADD, Shape(1, 1, 2, 10), LEDGER)
            stream.end = 10
            load.run()
            found = measured([stream], 1.0)
        assert (found.requests, found.errors) == (3, {"EFENCED": 7})
    with server(answer) as port, pytest.raises(BenchError, match="EFENCED"):
        write_ledgers((HOST, port), Shape(1, 1, 2, 10), LEDGER, 10, 5.0)


def _of_another_ledger(request: v2.Request) -> v2.Response:
    assert isinstance(request, v2.ReadRequest)
    return v2.ReadResponse(2, Code.ENOENTRY, LEDGER + 9, request.entry_id)


def _twice(request: v2.Request) -> v2.Response:
    assert isinstance(request, v2.ReadRequest)
    return v2.ReadResponse(2, Code.ENOENTRY, LEDGER, 0)


def _another_entry(request: v2.Request) -> v2.Response:
    assert isinstance(request, v2.ReadRequest)
    entry = HEADER.pack(LEDGER, request.entry_id + 1, -1, 10) + bytes(10)
    return v2.ReadResponse(2, Code.EOK, LEDGER, request.entry_id, entry)


def _of_another_size(request: v2.Request) -> v2.Response:
    assert isinstance(request, v2.ReadRequest)
    entry = HEADER.pack(LEDGER, request.entry_id, -1, 11) + bytes(11)
    return v2.ReadResponse(2, Code.EOK, LEDGER, request.entry_id, entry)


def _without_an_entry(request: v2.Request) -> v2.Response:
    assert isinstance(request, v2.ReadRequest)
    return v2.ReadResponse(2, Code.EOK, LEDGER, request.entry_id)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_of_another_ledger, "entry 0, which was not requested"),
        (_twice, "entry 0, which was not requested"),
        (_another_entry, "entry 0 got the response of another entry"),
        (_of_another_size, "entry 0 has 43 bytes instead of 42"),
        (_without_an_entry, "entry 0 has 0 bytes instead of 42"),
    ],
)
def test_an_answer_that_nobody_asked_for_is_an_error(answer: Answer, message: str) -> None:
    with server(answer) as port, Load((HOST, port), 5.0) as load:
        load.add(READ, Shape(1, 1, 1, 10), LEDGER, 5)
        with pytest.raises(FrameError, match=message):
            load.run(5.0)


def test_silence_and_a_closed_connection_are_errors() -> None:
    with server(lambda _request: None) as port, Load((HOST, port), 0.2) as load:
        load.add(ADD, Shape(1, 1, 1, 10), LEDGER)
        with pytest.raises(BenchError, match=r"not responded for 0\.2 s"):
            load.run(5.0)
    with socket.create_server((HOST, 0)) as listener, Load(listener.getsockname(), 5.0) as load:
        load.add(ADD, Shape(1, 1, 1, 10), LEDGER)
        listener.accept()[0].close()
        with pytest.raises(BenchError):
            load.run(5.0)
    with Load((HOST, 1), 5.0) as load, pytest.raises(BenchError, match="refused"):
        load.add(ADD, Shape(1, 1, 1, 10), LEDGER)
