"""Reads of closed ledgers, beside the same bytes as Parquet files and beside Apache's client.

Ledgers and Parquet are read by one Spark session with ``local[2]``, by the same query, which takes every value into its
hands: ``sum(length(value))``. Apache's client reads in a process of its own, all of it twice, of which the second time
counts. The three take turns, in an order that is reversed every other round, each after a rest,
and of all rounds but the first the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bkbox.bench.memory import PageCache
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.metadata import connect
from tests.bench.peers.java import command
from tests.bench.quiet import QuietMachine

LEDGERS = 16
TARGETS = {"parquet": 0.5, "java": 2.0}
_REST_S = 2.0


def measure(
    spark: Any,
    uri: str,
    root: Path,
    given: argparse.Namespace,
    quiet: QuietMachine,
    page_cache: PageCache,
) -> str:
    """The table."""
    size = given.mib << 20
    ledgers = asyncio.run(_written(uri, size // given.entry // LEDGERS, given.entry))
    frame = (
        spark.read.format("bookkeeper")
        .option("metadata.uri", uri)
        .option("ledgers", ",".join(map(str, ledgers)))
        .load()
    )
    parquet = str(root / "parquet")
    frame.write.option("compression", "none").parquet(parquet)
    columnar = spark.read.parquet(parquet)
    timed: dict[str, list[float]] = {"ledgers": [], "parquet": [], "java": []}
    ways: dict[str, Callable[[], float]] = {
        "ledgers": lambda: _timed(lambda: _summed(frame, size, given.entry)),
        "parquet": lambda: _timed(lambda: _summed(columnar, size, given.entry)),
        "java": lambda: _java(root, uri, ledgers),
    }

    def one_round(names: list[str]) -> dict[str, float]:
        found = {}
        for name in names:
            os.sync()
            time.sleep(_REST_S)
            page_cache.fill()
            found[name] = ways[name]()
        return found

    for number in range(given.rounds + 1):
        names = list(ways) if number % 2 == 0 else list(reversed(ways))
        found = quiet.measure(f"reads, round {number}", partial(one_round, names))
        print({name: round(size / each / 1e6) for name, each in found.items()}, file=sys.stderr)
        if number:  # the first round warms up
            for name, seconds in found.items():
                timed[name].append(seconds)
    rates = {name: size / statistics.median(each) / 1e6 for name, each in timed.items()}

    def beside(name: str) -> str:
        ratios = [other / ours for ours, other in zip(timed["ledgers"], timed[name], strict=True)]
        middle = statistics.median(ratios)
        verdict = "reached" if middle >= TARGETS[name] else "**missed**"
        return (
            f"{middle:.2f} ({min(ratios):.2f}, {max(ratios):.2f}) | ≥ {TARGETS[name]} | {verdict}"
        )

    lines = [
        f"{given.mib} MiB in entries of {given.entry} bytes, {LEDGERS} closed ledgers on three bookies, all on one "
        f"host with {os.cpu_count()} cores; medians of {given.rounds} rounds.",
        "",
        "| | MB/s | the data source against it (least, most) | target | |",
        "|---|--:|--:|---|---|",
        f'| `spark.read.format("bookkeeper")`, `local[2]` | {rates["ledgers"]:.0f} | | | |',
        f"| the same session on Parquet, not compressed | {rates['parquet']:.0f} | {beside('parquet')} |",
        f"| Apache's Java client, 1,000 entries a call | {rates['java']:.0f} | {beside('java')} |",
    ]
    return "\n".join(lines)


def _summed(frame: Any, size: int, entry: int) -> None:
    row = frame.selectExpr("count(*) as n", "sum(length(value)) as bytes").first()
    count = size // entry // LEDGERS * LEDGERS
    assert (row.n, row.bytes) == (count, count * entry)


def _timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _java(root: Path, uri: str, ledgers: list[int]) -> float:
    arguments = ("bkbox.interop.ReadAll", uri, "1000", "2", *map(str, ledgers))
    done = subprocess.run(
        command(*arguments, heap_mb=512, direct_mb=512),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        cwd=root,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


async def _written(uri: str, entries: int, size: int) -> list[int]:
    rng = random.Random(1)
    found = []
    async with await connect(uri) as store, Client(store, ClientOptions(), rng) as client:
        for _ in range(LEDGERS):
            async with await client.create_ledger(3, 3, 2) as writer:
                for start in range(0, entries, 1_000):
                    some = range(start, min(start + 1_000, entries))
                    await writer.append_many([rng.randbytes(size) for _ in some])
            found.append(int(writer.ledger_id))
    return found
