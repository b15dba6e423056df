"""The benchmarks on real bookies, for moments; and the commands."""

from __future__ import annotations

import json
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from bkbox.bench.bookie import Kind, Plan, Target, run
from bkbox.bench.client_plan import Through
from bkbox.bench.load import Shape
from bkbox.bench.server import Bookie, running
from bkbox.errors import BenchError
from tests.harness.java import CHECKOUT
from tests.harness.processes import bkbox, end_once

RNG = random.Random(5)


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A folder on a disk: temporary folders are in memory on some hosts."""
    build = CHECKOUT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=build) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def target(disk: Path) -> Iterator[Target]:
    root = disk / "bookie"
    bookie = Bookie(root, f"sqlite:{root / 'metadata.db'}", {"ack_after": "journal"}, RNG)
    with running(bookie):
        yield Target(bookie.address, bookie.pid, bookie.disk)


def plan(
    load: Kind, entries: int | None, *, ledgers: int = 8, window: int = 16, settle_s: float = 0.0
) -> Plan:
    return Plan(load, Shape(ledgers, 2, window, 100), 0.2, 0.1, entries, settle_s, 10.0)


def test_adds(target: Target) -> None:
    found = run(target, plan("adds", None, settle_s=0.1), RNG)
    assert found.adds is not None
    assert found.cost is not None
    assert found.adds.requests > 0
    assert found.reads is None
    assert found.errors == {}
    assert found.cost.pss_bytes > 1 << 20
    assert found.cost.switches_per_request > 0
    assert found.cost.written_per_byte is not None
    assert found.cost.written_per_byte > 1.5  # entry log and journal


def test_a_number_of_entries(target: Target) -> None:
    found = run(target, plan("adds", 1000), RNG)
    assert found.adds is not None
    assert found.adds.requests >= 1000


@pytest.mark.parametrize("load", ["reads", "catchup", "mixed"])
def test_reads(load: Kind, target: Target) -> None:
    found = run(target, plan(load, 1000), RNG)
    assert found.reads is not None
    assert found.reads.requests > 0
    assert found.errors == {}
    assert (found.adds is not None) == (load == "mixed")
    if load == "catchup":
        assert found.reads.requests <= 1000


def test_what_cannot_be_measured_says_why(target: Target) -> None:
    with pytest.raises(BenchError, match="entries to read: 8 at least"):
        run(target, plan("reads", 7), RNG)
    with pytest.raises(BenchError, match="--data"):
        run(Target(target.address), plan("catchup", 80), RNG)


def test_the_commands(disk: Path) -> None:
    short = ("--seconds", "0.2", "--warmup", "0.1", "--dir", str(disk))
    before = set(disk.iterdir())
    done = bkbox("bench", "bookie", "--window", "16", *short)
    head, row, *_ = done.stdout.splitlines()
    assert "p99.9 ms" in head
    assert row.startswith("adds")
    assert "PSS" in done.stdout
    assert set(disk.iterdir()) == before


@pytest.mark.parametrize("through", get_args(Through))
def test_the_client_through_whatever_it_appends_to(disk: Path, through: Through) -> None:
    alone = ("--bookies", "1", "-e", "1", "-w", "1", "-a", "1")
    short = ("--seconds", "0.2", "--warmup", "0.1", "--dir", str(disk))
    done = bkbox("bench", "client", "--through", through, *alone, *short, "-o", "json")
    found = json.loads(done.stdout)
    assert found["plan"]["through"] == through
    assert found["appends"]["requests"] > 0
    assert found["reads"]["requests"] > 0
    assert found["reads"]["p99_us"] is None, "none is measured"


def test_wrong_arguments_are_refused() -> None:
    done = bkbox("bench", "bookie", "127.0.0.1:1", check=False)
    assert done.returncode == 1
    assert "refused" in done.stderr
    for address in ((), ("127.0.0.1:1", "--fill-memory")):
        done = bkbox("bench", "bookie", *address, "--dir", "/dev/shm", check=False)
        assert (done.returncode, "in memory" in done.stderr) == (1, True)


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["bookie", "client"])
def test_one_that_is_ended_leaves_nothing_behind(
    command: str, ended_by: signal.Signals, disk: Path
) -> None:
    folder = disk / "ended"
    folder.mkdir()
    words = ("bench", command, "--dir", str(folder), "--seconds", "60")
    said = end_once(lambda: any(folder.glob("*/**/*.log")), ended_by, *words)
    assert "Traceback" not in said
    assert list(folder.iterdir()) == []
    folder.rmdir()
