"""Many idle connections beside a client that works: what it notices, and what the front-end needs for them.

``python -m tests.security.idle --connections 20000`` (as root, or with as many descriptors allowed).
"""

from __future__ import annotations

import argparse
import resource
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.harness import raw
from tests.harness.processes import BookieProcess
from tests.harness.raw import RawClient

_ADDRESSES = 8
"""An address has fewer ports than some would open connections."""


class Noticed(NamedTuple):
    """Of the client that works: adds a second, and the time that 99 % of them took at most."""

    rate: float
    p99_s: float


class Outcome(NamedTuple):
    """``opened``: connections; ``bytes_each``: memory of the front-end per connection; ``descriptors``: of it then."""

    before: Noticed
    during: Noticed
    opened: int
    bytes_each: float
    descriptors: int


def work(client: RawClient, seconds: float, first: int) -> tuple[Noticed, int]:
    """Adds, one after the other; the entry to go on with."""
    took: list[float] = []
    until = time.monotonic() + seconds
    began = last = time.monotonic()
    while last < until:
        code = client.add(1, first, b"x" * 100)
        assert code == raw.EOK, f"entry {first} is refused: code {code}"
        first += 1
        now = time.monotonic()
        took.append(now - last)
        last = now
    took.sort()
    return Noticed(len(took) / (last - began), took[int(len(took) * 0.99)]), first


def lost(client: RawClient, entries: range) -> list[int]:
    """Those of ledger 1 that cannot be read; some hundred are asked for at a time."""
    missing = []
    for first in range(entries.start, entries.stop, 256):
        asked = range(first, min(first + 256, entries.stop))
        client.send(b"".join(raw.read_frame(1, entry) for entry in asked))
        missing += [entry for entry in asked if client.answer().code != raw.EOK]
    return missing


def run(bookie: BookieProcess, connections: int, seconds: float) -> Outcome:
    [frontend] = bookie.children("frontend")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert connections + 100 < hard, f"only {hard} descriptors are allowed here: ulimit -Hn"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        good = stack.enter_context(RawClient(bookie.port))
        before, entry = work(good, seconds, 0)
        memory = frontend.memory_info().rss
        for number in range(connections):
            source = (f"127.0.0.{2 + number % _ADDRESSES}", 0)
            dialled = socket.create_connection(("127.0.0.1", bookie.port), 10, source)
            stack.enter_context(dialled)
        during, entry = work(good, seconds, entry)
        bytes_each = (frontend.memory_info().rss - memory) / connections
        still_open = frontend.num_fds()
        assert lost(good, range(entry)) == []
        return Outcome(before, during, connections, bytes_each, still_open)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bookie = BookieProcess(Path(folder), f"sqlite:{folder}/metadata.db").init(disks=1).start()
        try:
            found = run(bookie, asked.connections, asked.seconds)
            before, during = found.before, found.during
            print(
                f"{found.opened} idle connections, {found.bytes_each:.0f} bytes each in the front-end"
            )
            print(f"before: {before.rate:.0f} adds/s, p99 {before.p99_s * 1000:.2f} ms")
            print(f"during: {during.rate:.0f} adds/s, p99 {during.p99_s * 1000:.2f} ms")
        finally:
            bookie.stop()


if __name__ == "__main__":
    main()
