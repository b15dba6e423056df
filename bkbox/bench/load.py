"""Load on a bookie over its port: connections in a closed loop, or in an open one (open_loop.py), and their results.

A load is some streams of requests (bench/load_loop.py) that run side by side. It runs a warm-up, so
that the bookie's ledgers and caches are in a steady state, then the measured time, and then until
every request has its response.
"""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bkbox.base.text import error_text
from bkbox.bench.load_loop import ADD, ENDLESS, Link, Stream, paced_turn, turn
from bkbox.errors import BenchError
from bkbox.native.histogram import Histogram
from bkbox.wire.codes import code_from_v2
from bkbox.wire.digest import HEADER_BYTES, master_key

_S = 1_000_000_000
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a load: ``window`` requests in flight per connection, ``size`` bytes of
    payload, and the ledgers, shared out over the connections."""

    ledgers: int
    connections: int
    window: int
    size: int


def first_ledger(rng: random.Random) -> int:
    """The first of some consecutive ids that nobody has."""
    return rng.randrange(1 << 40, 1 << 50)


@dataclass(frozen=True, slots=True)
class Measured:
    """Answers of one kind within ``seconds``. Latencies are microseconds, None where none was measured;
    ``errors`` counts responses by the name of their code, EOK left out; ``bytes`` are those of entries, with their
    headers."""

    requests: int
    seconds: float
    per_s: float
    bytes: int
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    p9999_us: float | None
    max_us: float | None
    errors: dict[str, int]


class Load:
    """Connections to one bookie and the streams on them. A context manager.

    Raises BenchError if the bookie cannot be reached, closes a connection or sends nothing for
    ``silence_s`` seconds; FrameError for a response that matches no request.
    """

    def __init__(self, address: tuple[str, int], silence_s: float) -> None:
        self._address = address
        self._silence_ns = int(silence_s * _S)
        self._exit = ExitStack()
        self._poll = self._exit.enter_context(select.epoll())
        self._links: dict[int, Link] = {}
        self.streams: list[Stream] = []

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def add(
        self, kind: int, shape: Shape, first_ledger: int, entries: int = ENDLESS
    ) -> list[Stream]:
        """Opens connections that add to, or read, the ledgers from ``first_ledger`` on. ``entries``: the
        number in each ledger."""
        added = []
        for first, ledgers in _shares(first_ledger, shape):
            link = self._connect()
            stream = Stream(
                kind, first, ledgers, entries, shape.window, shape.size, master_key(b"")
            )
            self._links[link.fileno()] = Link(stream, link, self._poll)
            added.append(stream)
        self.streams += added
        return added

    def run(self, seconds: float | None = None) -> float:
        """Runs for this time, or (None) until every stream has come to its end; returns the duration in seconds."""
        start = time.perf_counter_ns()
        self._turn(ENDLESS if seconds is None else start + int(seconds * _S))
        return (time.perf_counter_ns() - start) / _S

    def run_paced(self, until_ns: int) -> int:
        """Runs streams that are open loops until this time of ``perf_counter_ns``, or until everything due has its
        response. Returns the deepest backlog: requests that were due and not answered at one time."""
        with self._explained():
            deepest = paced_turn(self._poll, self._links, until_ns, self._silence_ns)
        if deepest < 0:
            raise self._silent()
        return deepest

    def finish(self) -> None:
        """Sends no more requests, and waits for all responses."""
        for stream in self.streams:
            stream.end = min(stream.end, stream.next)
        self.run()

    def count(self) -> None:
        """Starts the measured time."""
        for stream in self.streams:
            stream.count()

    def _turn(self, until_ns: int) -> None:
        with self._explained():
            if not turn(self._poll, self._links, until_ns, self._silence_ns):
                raise self._silent()

    def _silent(self) -> BenchError:
        return BenchError(f"{self._name} has not responded for {self._silence_ns / _S:g} s")

    def _connect(self) -> socket.socket:
        with self._explained():
            link = self._exit.enter_context(socket.create_connection(self._address, _CONNECT_S))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
        return link

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BenchError(f"{self._name}: {error_text(error)}") from error

    @property
    def _name(self) -> str:
        return f"the bookie at {self._address[0]}:{self._address[1]}"


def measured(streams: Sequence[Stream], seconds: float) -> Measured:
    """The sums of some streams."""
    latency = Histogram()
    errors: dict[str, int] = {}
    answered = 0
    for stream in streams:
        latency.merge(stream.latency)
        answered += stream.responded
        for number, count in enumerate(stream.codes):
            if number and count:
                code = code_from_v2(number)
                name = code.name if code is not None else "another code"
                errors[name] = errors.get(name, 0) + count
    good = answered - sum(errors.values())
    return of_histogram(latency, seconds, streams[0].size, good, errors)


def of_histogram(
    latency: Histogram,
    seconds: float,
    size: int,
    good: int,
    errors: dict[str, int] | None = None,
) -> Measured:
    """The measurement from a histogram of nanoseconds. ``size``: payload in bytes; ``good``: the number of responses
    with EOK, of which not all need to have a latency."""

    def us(ns: int) -> float | None:
        return ns / 1000 if latency.count else None

    return Measured(
        requests=good,
        seconds=seconds,
        per_s=good / seconds,
        bytes=good * (HEADER_BYTES + size),
        p50_us=us(latency.percentile(50)),
        p99_us=us(latency.percentile(99)),
        p999_us=us(latency.percentile(99.9)),
        p9999_us=us(latency.percentile(99.99)),
        max_us=us(latency.max),
        errors=errors or {},
    )


def write_ledgers(
    address: tuple[str, int], shape: Shape, first_ledger: int, entries: int, silence_s: float
) -> None:
    """Adds ``entries`` entries to each of the ledgers. Raises BenchError also for a refused add."""
    with Load(address, silence_s) as load:
        for stream in load.add(ADD, shape, first_ledger):
            stream.end = entries * stream.ledgers
        load.run()
        refused = measured(load.streams, 1.0).errors
    if refused:
        raise BenchError(f"the bookie refused entries that were to be read later: {refused}")


def _shares(first_ledger: int, shape: Shape) -> Iterable[tuple[int, int]]:
    """First ledger and number of ledgers of each connection; as even as possible, one at least."""
    connections = min(shape.connections, shape.ledgers)
    for number in range(connections):
        start = shape.ledgers * number // connections
        end = shape.ledgers * (number + 1) // connections
        yield first_ledger + start, end - start
