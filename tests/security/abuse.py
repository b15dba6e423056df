"""Abuse of each kind beside a client that works: what it notices, and what the front-end needs meanwhile.

``python -m tests.security.abuse [KIND…] --seconds 60 [--report]`` runs the kinds, by default all, one after the other,
each in a process of its own against one bookie, in turns of ten seconds with the client alone before each, and prints
a line for each: medians over the turns. With ``--report`` the table of docs/security.md is that of this run. It fails
where the client keeps less than 0.8 of its rate, waits more than three times as long (p99) or loses an entry, and where
the front-end keeps descriptors or memory.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.peers.report import machine, replace_between
from tests.harness import raw
from tests.harness.cluster import create_ledgers, ledger_of
from tests.harness.processes import BookieProcess, wait_for
from tests.harness.raw import RawClient
from tests.harness.raw3 import AUTH, READ, read_part, request
from tests.security.idle import lost, work

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
LARGE = 4 << 20
RATE_LEAST = 0.8
P99_MOST = 3.0
ALONE_S, BEGIN_S, TURN_S = 5.0, 1.5, 10.0
"""The machine's own rate may change by half within minutes, so the client is by itself before each turn of the abuse,
which has some time to begin."""
SLACK_BYTES = 300 << 20
"""Beside what it is at rest: what is held for clients, at most, and slots on their way."""


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def many(port: int, until: float, begin: bytes, count: int = 500) -> None:
    """Connections that say so much and no more; those that are closed are opened anew."""
    socks = [dial(port) for _ in range(count)]
    for sock in socks:
        sock.setblocking(False)
        sock.send(begin)
    while time.monotonic() < until:
        for number, sock in enumerate(socks):
            with suppress(BlockingIOError):
                try:
                    gone = not sock.recv(1)
                except ConnectionError:
                    gone = True
                if gone:
                    sock.close()
                    socks[number] = again = dial(port)
                    again.setblocking(False)
                    again.send(begin)
        time.sleep(0.2)


def slow_body(port: int, until: float) -> None:
    """Large frames, byte by byte."""
    frame = raw.add_frame(9, 0, bytes(LARGE))
    socks = [dial(port) for _ in range(50)]
    for sock in socks:
        sock.sendall(frame[: LARGE // 4])
    at = LARGE // 4
    while time.monotonic() < until:
        for sock in socks:
            with suppress(OSError):
                sock.send(frame[at : at + 1])
        at += 1
        time.sleep(0.1)


def never_reads(port: int, until: float) -> None:
    """Ask for much, and take nothing."""
    with RawClient(port) as client:
        client.add(9, 0, bytes(1_000_000))
    while time.monotonic() < until:
        socks = [dial(port) for _ in range(8)]
        for sock in socks:
            sock.sendall(b"".join(raw.read_frame(9, 0) for _ in range(16)))
        time.sleep(2)
        for sock in socks:
            sock.close()


def sends(port: int, until: float, data: bytes, pause_s: float = 0.0) -> None:
    """Send something again and again, on a new connection whenever the old one is closed."""
    while time.monotonic() < until:
        with dial(port) as sock, suppress(OSError):
            sock.settimeout(0.2)
            while time.monotonic() < until:
                sock.sendall(data)
                with suppress(TimeoutError):
                    if not sock.recv(1 << 20):
                        break
                time.sleep(pause_s)


def comes_and_goes(port: int, until: float) -> None:
    while time.monotonic() < until:
        dial(port).close()
        time.sleep(0.001)


_HEADER = bytes.fromhex("0a06080310021809")  # version 3, ADD, transaction 9
BOMB = (len(_HEADER) + 3_000_000).to_bytes(4, "big") + _HEADER + b"\xa0\x1f\x01" * 1_000_000

KINDS: dict[str, Callable[[int, float], None]] = {
    "silence": lambda port, until: many(port, until, b""),
    "slow header": lambda port, until: many(port, until, b"\0\0"),
    "slow body": slow_body,
    "never reads": never_reads,
    "garbage": lambda port, until: sends(port, until, os.urandom(4096)),
    "huge lengths": lambda port, until: sends(port, until, b"\x7f\xff\xff\xff" + bytes(1000)),
    "protobuf bombs": lambda port, until: sends(port, until, BOMB, 0.05),
    "authentication flood": lambda port, until: sends(
        port, until, request(AUTH, 1, [(1, b"x"), (2, b"")]) * 500
    ),
    "unknown ledgers": lambda port, until: sends(
        port, until, b"".join(request(READ, n, read_part(10**6 + n)) for n in range(500))
    ),
    "connections": comes_and_goes,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the client kept of its rate, by how much its p99 grew, what the front-end took meanwhile, and acknowledged
    entries that could not be read after it."""

    kind: str
    rate: float
    p99: float
    grown_bytes: int
    lost: int

    @property
    def is_well(self) -> bool:
        return (
            self.rate >= RATE_LEAST
            and self.p99 <= P99_MOST
            and not self.lost
            and self.grown_bytes < SLACK_BYTES
        )

    @property
    def row(self) -> str:
        verdict = "" if self.is_well else "**too much**"
        grown = self.grown_bytes >> 20
        return f"| {self.kind} | {self.rate:.2f} | {self.p99:.2f} | {grown} MiB | {self.lost} | {verdict} |"


HEAD = """\
| what is done | rate kept (≥ 0.8) | p99 times (≤ 3) | memory more (≤ 300 MiB) | entries lost | |
|---|--:|--:|--:|--:|---|"""


def run(bookie: BookieProcess, kind: str, seconds: float, first: int) -> tuple[Outcome, int]:
    """What it came to, and the entry to go on with."""
    [frontend] = bookie.children("frontend")
    rates, tails, grown, entry = [], [], 0, first
    with RawClient(bookie.port) as good:
        _, entry = work(good, 0.5, entry)  # it has been let in
        descriptors, memory = frontend.num_fds(), frontend.memory_info().rss
        for _ in range(max(1, round(seconds / TURN_S))):
            alone, entry = work(good, ALONE_S, entry)
            command = [sys.executable, "-m", "tests.security.abuse", "--as", kind]
            command += ["--port", str(bookie.port), "--seconds", str(BEGIN_S + TURN_S)]
            abuser = subprocess.Popen(command)
            _, entry = work(good, BEGIN_S, entry)
            during, entry = work(good, TURN_S, entry)
            grown = max(grown, frontend.memory_info().rss - memory)
            abuser.terminate()
            abuser.wait()
            wait_for(lambda: frontend.num_fds() <= descriptors, f"descriptors after {kind}", 30)
            rates.append(during.rate / alone.rate)
            tails.append(during.p99_s / alone.p99_s)
        missing = lost(good, range(first, entry))
    return Outcome(kind, median(rates), median(tails), grown, len(missing)), entry


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--dir", type=Path, help="where the bookie writes: /dev/shm where a disk is busy"
    )
    parser.add_argument("--report", action="store_true", help="write the table of docs/security.md")
    parser.add_argument("--as", dest="as_kind", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_kind:
        KINDS[asked.as_kind](asked.port, time.monotonic() + asked.seconds)
        return 0
    with tempfile.TemporaryDirectory(dir=asked.dir) as folder:
        bookie = BookieProcess(Path(folder), f"sqlite:{folder}/metadata.db").init(disks=1).start()
        # Or else it were collected, as a ledger that nobody knows.
        create_ledgers(bookie.metadata, [ledger_of(1, [bookie.bookie_id])])
        outcomes, entry = [], 0
        print(HEAD)
        try:
            for kind in asked.kinds or KINDS:
                found, entry = run(bookie, kind, asked.seconds, entry)
                print(found.row, flush=True)
                outcomes.append(found)
        finally:
            bookie.stop()
    if asked.report:
        rows = "\n".join(each.row for each in outcomes)
        busy = f"load average {os.getloadavg()[2]:.1f}"
        text = f"{asked.seconds:.0f} s each. {machine()}, {busy}.\n\n{HEAD}\n{rows}"
        PAGE.write_text(replace_between(PAGE.read_text(), "abuse", text))
    return 0 if all(each.is_well for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
