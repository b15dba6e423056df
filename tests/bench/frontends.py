"""How adds and reads of a bookie grow with its front-ends and its disks: ``make bench-frontends``, for a large host.

Each bookie is a new one, and one is up at a time. The load comes from several processes at once (``bkbox bench
bookie``), whose rates are added; with fewer of them than the bookie can serve, the table shows what they can send.
Java's bookie has as many threads for sockets as it likes; its rows are there where JDK 17 and Maven are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bkbox.bench.memory import PageCache
from bkbox.bench.server import temporary_folder
from bkbox.errors import BenchError
from bkbox.launcher.bookie import LocalBookie
from bkbox.launcher.ports import free_port
from bkbox.launcher.processes import Processes
from bkbox.launcher.waiting import wait_until
from tests.bench.peers.java import JavaBookie, ZooKeeper
from tests.bench.peers.systems import answers
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.harness.java import missing_reason
from tests.harness.processes import BKBOX

_PORTS = range(12_000, 15_000)
_READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """What each of ``generators`` processes sends."""

    generators: int
    connections: int
    window: int
    seconds: float
    entries: int

    def arguments(self, kind: str, port: int) -> list[str]:
        common = ["bench", "bookie", f"127.0.0.1:{port}", "--load", kind, "-o", "json"]
        amount = ["--entries", str(self.entries)] if kind == "reads" else []
        return [
            *(*BKBOX, *common, *amount),
            *("--connections", str(self.connections), "--ledgers", str(4 * self.connections)),
            *("--window", str(self.window), "--seconds", str(self.seconds), "--silence", "60"),
        ]

    def rate(self, kind: str, port: int) -> float:
        """Requests per second of all processes together. Raises BenchError."""
        running = [
            subprocess.Popen(
                self.arguments(kind, port),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(self.generators)
        ]
        total = 0.0
        for process in running:
            out, said = process.communicate()
            if process.returncode:
                raise BenchError(f"a load generator ended with {process.returncode}: {said}")
            total += json.loads(out)[kind]["per_s"]
        return total


@dataclass(frozen=True, slots=True)
class Setup:
    """A bookie to measure. ``frontends``: None for Java's."""

    frontends: int | None
    disks: int

    @property
    def name(self) -> str:
        return "Java" if self.frontends is None else f"{self.frontends}"


def disks_of(roots: Sequence[Path], count: int) -> list[Path]:
    """Folders for so many disks, spread over the devices that were named."""
    return [roots[number % len(roots)] / f"disk{number}" for number in range(count)]


@contextmanager
def bkbox_bookie(setup: Setup, roots: Sequence[Path], rng: random.Random) -> Iterator[int]:
    """Its port."""
    processes = Processes(roots[0], dict(os.environ), BenchError)
    disks = disks_of(roots, setup.disks)
    bookie = LocalBookie(processes, "bookie", free_port(rng, _PORTS), disks)
    settings: dict[str, object] = {"frontends": setup.frontends, "gc_interval_s": 0}
    processes.run_blocking(*bookie.init_arguments(f"sqlite:{roots[0] / 'metadata.db'}", settings))
    bookie.launch()
    try:
        wait_until(lambda: bookie.is_ready_or_ended, _READY_S, 0.01)
        if not bookie.is_ready:
            raise BenchError(f"the bookie did not start:\n{bookie.log_from(0)[-3000:]}")
        yield bookie.port
    finally:
        bookie.process.terminate()
        bookie.process.wait()


@contextmanager
def java_bookie(setup: Setup, roots: Sequence[Path], zookeeper: ZooKeeper) -> Iterator[int]:
    """Its port. Its journal is on the first disk."""
    bookie = JavaBookie(
        roots[0] / "java",
        zookeeper.new_cluster(),
        journal=True,
        heap_mb=1024,
        direct_mb=2048,
        ledgers=disks_of(roots, setup.disks),
    )
    bookie.launch_bookie()
    try:
        if not wait_until(lambda: answers(bookie.port), _READY_S, 0.1):
            raise BenchError(f"Java's bookie did not start:\n{bookie.log_tail(3000)}")
        yield bookie.port
    finally:
        bookie.stop(60)


def measured(
    setup: Setup,
    load: Load,
    folders: Sequence[Path],
    rng: random.Random,
    zookeeper: ZooKeeper | None,
    page_cache: PageCache,
) -> tuple[float, float]:
    """Adds and reads per second of a new bookie."""
    roots = [folder / "bookie" for folder in folders]
    for root in roots:
        root.mkdir()
    try:
        page_cache.fill()
        if setup.frontends is not None:
            running = bkbox_bookie(setup, roots, rng)
        else:
            assert zookeeper is not None
            running = java_bookie(setup, roots, zookeeper)
        with running as port:
            return load.rate("adds", port), load.rate("reads", port)
    finally:
        for root in roots:
            shutil.rmtree(root)
        os.sync()


def table(found: dict[Setup, list[tuple[float, float]]]) -> str:
    """In Markdown: the median of the rounds, with the least and the most."""
    rows = ["| disks | front-ends | adds/s | reads/s |", "|--:|--:|--:|--:|"]
    for setup, rounds in found.items():
        figures = " | ".join(_spread([each[part] for each in rounds]) for part in (0, 1))
        rows.append(f"| {setup.disks} | {setup.name} | {figures} |")
    return "\n".join(rows)


def _spread(values: list[float]) -> str:
    middle = f"{statistics.median(values):,.0f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.0f}, {max(values):,.0f})"


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description="How a bookie grows with front-ends and disks.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frontends", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--disks", type=numbers, default=[1, 2, 4])
    parser.add_argument("--generators", type=int, default=max(2, (os.cpu_count() or 1) // 4))
    parser.add_argument("--connections", type=int, default=8, help="of each generator (8)")
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--entries", type=int, default=400_000, help="to read, of each generator")
    parser.add_argument(
        "--dir",
        type=Path,
        action="append",
        help="a folder on a device for disks; give one for each device",
    )
    parser.add_argument("--no-java", action="store_true", help="bkbox's bookie alone")
    parser.add_argument("--anyway", action="store_true", help="measure beside other processes, too")
    given = parser.parse_args()
    load = Load(given.generators, given.connections, given.window, given.seconds, given.entries)
    java = not (given.no_java or missing_reason())
    setups = [
        Setup(frontends, disks)
        for disks in given.disks
        for frontends in (*given.frontends, *([None] if java else []))
    ]
    found: dict[Setup, list[tuple[float, float]]] = {setup: [] for setup in setups}
    quiet, rng = QuietMachine(strict=not given.anyway), random.Random()
    with _folders(given.dir or [Path.cwd()]) as folders, PageCache(folders[0]) as page_cache:
        zookeeper = ZooKeeper(folders[0] / "zookeeper").start() if java else None
        try:
            for number in range(given.rounds):
                for setup in setups if number % 2 == 0 else reversed(setups):
                    what = f"{setup.name} over {setup.disks}, round {number + 1}"
                    run = partial(measured, setup, load, folders, rng, zookeeper, page_cache)
                    found[setup].append(quiet.measure(what, run))
                    print(f"{what}: {found[setup][-1]}", file=sys.stderr, flush=True)
        except DisturbedError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        finally:
            if zookeeper is not None:
                zookeeper.kill()
    print(f"{os.cpu_count()} cores, {load.generators} load generators")
    print(table(found))
    return 0


@contextmanager
def _folders(parents: Sequence[Path]) -> Iterator[list[Path]]:
    """A temporary folder in each of these."""
    if not parents:
        yield []
        return
    with temporary_folder(parents[0]) as first, _folders(parents[1:]) as others:
        yield [first, *others]


if __name__ == "__main__":
    sys.exit(main())
