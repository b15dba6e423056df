"""The open loop: what is due when, what counts, and what a server that stalls is charged with."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from bkbox.bench.load import Load, Shape, measured
from bkbox.bench.load_loop import ADD, ENDLESS, READ, Stream
from bkbox.bench.open_loop import OpenLoop, Rate
from bkbox.cli.check.bench import bench
from bkbox.wire import v2
from bkbox.wire.codes import Code
from bkbox.wire.digest import master_key
from tests.bench.servers import HOST, server, sink

LEDGER = 1 << 40
MS = 1_000_000


def stream(window: int) -> Stream:
    """An open loop of one request a millisecond from 1 s on; numbers 5 to 19 count."""
    made = Stream(ADD, LEDGER, 3, ENDLESS, window, 10, master_key(b""))
    made.pace(1000 * MS, MS, 5, 20)
    return made


def test_requests_are_sent_when_they_are_due() -> None:
    loop = stream(100)
    assert loop.next_due() == 1000 * MS
    loop.fill(1000 * MS - 1)
    assert loop.next == 0
    loop.fill(1000 * MS)
    assert (loop.next, loop.next_due()) == (1, 1001 * MS)
    loop.fill(1003 * MS + 1)
    assert (loop.next, loop.outstanding) == (4, 4)
    loop.fill(5000 * MS)
    assert (loop.next, loop.next_due(), loop.due_by(5000 * MS)) == (20, ENDLESS, 20)


def test_only_what_could_have_been_sent_earlier_is_the_generators_lateness() -> None:
    free, full = stream(100), stream(10)
    for loop in (free, full):
        loop.fill(1009 * MS)
        assert loop.lateness.count == 5
        assert loop.lateness.max == 4 * MS  # number 5 was due at 1,005 ms
    full.fill(1012 * MS)  # three more are due, and the window is full
    assert (full.next, full.next_due()) == (10, ENDLESS)
    free.fill(1012 * MS)
    assert (free.next, free.next_due()) == (13, 1013 * MS)


def test_what_has_no_response_counts_with_its_age() -> None:
    loop = stream(10)
    loop.fill(1019 * MS)
    assert (loop.next, loop.responded) == (10, 0)
    assert loop.give_up(1100 * MS) == 15
    assert (loop.latency.count, loop.latency.max) == (15, 95 * MS)
    assert loop.latency.total == sum((100 - number) * MS for number in range(5, 20))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with sink("--size", "10") as found:
        yield found


def test_all_that_is_due_in_the_measured_time_counts(port: int) -> None:
    with Load((HOST, port), 10.0) as load:
        adds = load.add(ADD, Shape(5, 2, 8, 10), LEDGER)
        reads = load.add(READ, Shape(5, 2, 8, 10), LEDGER, 20)
        loop = OpenLoop(load, Rate(2000, 0.25), adds, reads, 0.1, 0.3)
        loop.warm_up()
        seconds, report = loop.measure()
    assert sum(each.latency.count for each in adds) == 450
    assert sum(each.latency.count for each in reads) == 150
    answered = measured([*adds, *reads], seconds).requests
    assert answered + report.unanswered == 600
    assert report.asked_per_s == 2000
    assert math.isclose(report.achieved_per_s, answered / seconds)
    assert report.deepest_backlog >= 1
    assert (
        0 <= report.late_p50_us <= report.late_p99_us <= report.late_p999_us <= report.late_max_us
    )


def test_a_server_that_stalls_is_charged_for_what_was_due_meanwhile() -> None:
    """A closed loop would have sent one request, and found one long latency."""
    held: list[v2.AddRequest] = []

    def answer(request: v2.Request) -> list[v2.Response]:
        assert isinstance(request, v2.AddRequest)
        held.append(request)
        ready = held if len(held) == 100 else []
        return [v2.AddResponse(2, Code.EOK, each.ledger_id, each.entry_id) for each in ready]

    with server(answer) as stalling, Load((HOST, stalling), 10.0) as load:
        adds = load.add(ADD, Shape(1, 1, 1000, 10), LEDGER)
        loop = OpenLoop(load, Rate(1000, 0.0), adds, (), 0.0, 0.1)
        loop.warm_up()
        seconds, report = loop.measure()
    found = measured(adds, seconds)
    assert (found.requests, report.unanswered) == (100, 0)
    assert report.deepest_backlog == 100
    assert found.max_us is not None
    assert found.max_us >= 99_000
    assert found.p50_us is not None
    assert found.p50_us >= 49_000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rate", "0"), "range 1<=x"),
        (("--rate", "fast"), "not a valid integer"),
        (("--rate", "10", "--reads", "10"), "'10' is not a percentage"),
        (("--rate", "10", "--reads", "0%"), "not a percentage"),
        (("--rate", "10", "--reads", "101%"), "not a percentage"),
        (("--rate", "10", "--reads", "nan%"), "not a percentage"),
        (("--reads", "10%"), "--reads needs --rate"),
        (("--rate", "10", "--load", "catchup"), "goes with --load adds"),
        (("--rate", "10", "--entries", "5"), "needs --reads"),
        (("--rate", "1", "--seconds", "0.5"), "nothing is due within 0.5 s"),
    ],
)
def test_nonsense_is_refused(arguments: tuple[str, ...], reason: str) -> None:
    done = CliRunner().invoke(bench, ["bookie", "127.0.0.1:1", *arguments])
    assert done.exit_code == 2
    assert reason in done.output


def test_the_command_says_how_the_open_loop_went(port: int) -> None:
    short = ("--rate", "500", "--seconds", "0.2", "--warmup", "0", "--size", "10")
    done = CliRunner().invoke(
        bench, ["bookie", f"{HOST}:{port}", *short, "--reads", "20%", "--entries", "16"]
    )
    assert done.exit_code == 0, done.output
    assert "p99.99 ms" in done.output
    assert "of 500 requests per second" in done.output
    assert "requests at most were due and not answered" in done.output
    assert "sent late" in done.output


def test_a_rate_that_is_not_reached_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkbox.bench.open_loop._DRAIN_S_MIN", 0.0)
    with server(lambda _request: None) as silent:
        done = CliRunner().invoke(
            bench,
            [
                *("bookie", f"{HOST}:{silent}", "--ledgers", "1", "--rate", "100"),
                *("--seconds", "0.1", "--warmup", "0"),
            ],
        )
    assert done.exit_code == 0, done.output
    assert "the bookie cannot take this rate: 0 of 100 requests per second" in done.output
    assert "10 were not answered, 0 were refused" in done.output


def test_a_bookie_that_refuses_does_not_reach_the_rate() -> None:
    def answer(request: v2.Request) -> v2.Response:
        assert isinstance(request, v2.AddRequest)
        code = Code.EOK if request.entry_id % 2 else Code.ETOOMANYREQUESTS
        return v2.AddResponse(2, code, request.ledger_id, request.entry_id)

    with server(answer) as refusing, Load((HOST, refusing), 10.0) as load:
        adds = load.add(ADD, Shape(1, 1, 100, 10), LEDGER)
        loop = OpenLoop(load, Rate(200, 0.0), adds, (), 0.0, 0.1)
        loop.warm_up()
        seconds, report = loop.measure()
    assert (report.refused, report.is_reached) == (10, False)
    assert measured(adds, seconds).requests == 10
