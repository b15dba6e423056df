"""Audits of a tenth, of the whole and of ten times the ledgers of ``--ledgers``, with both engines: what a ledger costs
and what an entry does. From the costs at ten times: what a billion ledgers would take, on paper."""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import random
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bkbox.audit.engine import LocalEngine
from bkbox.audit.run import AuditPlan, Summary, plan_audit, run_audit
from bkbox.base.ids import LedgerId
from bkbox.bench.memory import PageCache
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.metadata import connect
from bkbox.repair.bounded_gather import bounded_gather
from tests.bench.quiet import QuietMachine
from tests.harness.progress import NoProgress

PROCESSES = 2
ENGINES = 2
ENTRY_BYTES = 100
LINEAR = 1.1
"""What may still be called linear, of the growth of the cost by that of the ledgers."""

BILLION = 1_000_000_000
_AT_ONCE = 32
_REST_S = 2.0
_SAMPLE = 20_000
"""Metadata that are read to see what the store allows, at most."""


@dataclass(frozen=True)
class Audited:
    """One size with one engine: by lists alone, and with ``--read``; the audits with the median duration of the rounds,
    and the least and the most seconds."""

    engine: str
    listed: Summary
    read: Summary
    listed_span_s: tuple[float, float]
    read_span_s: tuple[float, float]


@dataclass(frozen=True)
class Found:
    """``audits``: by size; the rest of the largest size. ``walk_us``: of listing the ids, ``metadata_us``: of reading
    the metadata with sixteen under way, for each ledger; ``chunk_bytes``: of the plan, for each ledger; ``row_bytes``:
    of the table ``ledgers``."""

    audits: list[Audited]
    walk_us: float
    metadata_us: float
    chunk_bytes: float
    row_bytes: float


def measure(
    _spark: Any,
    uri: str,
    root: Path,
    given: argparse.Namespace,
    quiet: QuietMachine,
    page_cache: PageCache,
) -> Found:
    from pyspark_bookkeeper.engine import SparkEngine

    audits: list[Audited] = []
    there = 0
    for times in (0.1, 1, 10):
        wanted = int(given.ledgers * times)
        asyncio.run(_written(uri, wanted - there, given.entries))
        there = wanted
        for engine in (LocalEngine(PROCESSES), SparkEngine()):
            plans = [
                asyncio.run(plan_audit(uri, read_all=read, orphans=False)) for read in (False, True)
            ]
            if len(audits) < ENGINES:
                _audited(engine, plans[0], root)  # warms the engine up
            each = quiet.measure(
                f"audits of {wanted} ledgers, {engine.name}",
                partial(_medians, engine, plans, root, given.rounds, page_cache),
            )
            audits.append(each)
            print(_row(each), file=sys.stderr)
    walk_us, metadata_us = asyncio.run(_store_costs(uri))
    chunk_bytes = len(pickle.dumps(plans[0].chunks)) / there
    row_bytes = (root / "audit" / "ledgers.parquet").stat().st_size / there
    return Found(audits, walk_us, metadata_us, chunk_bytes, row_bytes)


def _medians(
    engine: Any, plans: list[AuditPlan], root: Path, rounds: int, page_cache: PageCache
) -> Audited:
    """Of each plan the audit with the median duration; they take turns, each after a rest."""
    found: list[list[Summary]] = [[] for _ in plans]
    for number in range(rounds):
        for which in range(len(plans)) if number % 2 == 0 else reversed(range(len(plans))):
            os.sync()
            time.sleep(_REST_S)
            page_cache.fill()
            found[which].append(_audited(engine, plans[which], root))
    listed, read = (sorted(each, key=lambda one: one.seconds)[len(each) // 2] for each in found)
    spans = [(min(each), max(each)) for each in ([one.seconds for one in of] for of in found)]
    return Audited(engine.name, listed, read, *spans)


def _audited(engine: Any, plan: AuditPlan, root: Path) -> Summary:
    found = run_audit(
        engine,
        plan,
        root / "audit",
        NoProgress(),
        wall_ms=lambda: time.time_ns() // 1_000_000,
    )
    assert found.is_clean, found.rows
    assert found.is_certain, found.rows
    return found


def table(found: Found, given: argparse.Namespace) -> str:
    """In Markdown."""
    head = [
        f"Closed ledgers with {given.entries} entries of {ENTRY_BYTES} bytes on three bookies with ZooKeeper, all on "
        f"one host; {PROCESSES} processes audit. Medians of {given.rounds} rounds (least, most).",
        "",
        "| ledgers | entries | engine | lists | µs a ledger | with `--read` | µs a copy | entries/s |",
        "|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    return "\n".join([*head, *map(_row, found.audits), "", _growth(found.audits)])


def _row(each: Audited) -> str:
    listed, read = each.listed, each.read
    return (
        f"| {listed.ledgers:,} | {listed.entries:,} | {each.engine} | {_seconds(listed, each.listed_span_s)} | "
        f"{_list_us(each):.0f} | {_seconds(read, each.read_span_s)} | {_copy_us(each):.2f} | "
        f"{read.entries / read.seconds:,.0f} |"
    )


def _seconds(of: Summary, span: tuple[float, float]) -> str:
    """Median (least, most)."""
    return f"{of.seconds:.1f} s ({span[0]:.1f}, {span[1]:.1f})"


def _list_us(each: Audited) -> float:
    return each.listed.seconds / each.listed.ledgers * 1e6


def _copy_us(each: Audited) -> float:
    """Of each copy, what reading it costs beyond the lists."""
    return (each.read.seconds - each.listed.seconds) / each.read.copies_read * 1e6


def _growth(audits: list[Audited]) -> str:
    parts, worst = [], 0.0
    for engine in sorted({each.engine for each in audits}):
        first, *_, last = (each for each in audits if each.engine == engine)
        times = last.listed.ledgers / first.listed.ledgers
        lists = last.listed.seconds / first.listed.seconds
        reads = last.read.seconds / first.read.seconds
        worst = max(worst, lists / times, reads / times)
        parts.append(f"{engine}: lists {lists:.0f} x the time, with `--read` {reads:.0f} x")
    verdict = "no worse than linear" if worst <= LINEAR else "**worse than linear**"
    return f"{times:.0f} x the ledgers and entries: {'; '.join(parts)}: {verdict}."


def plan(found: Found) -> str:
    """What a billion ledgers would take, in Markdown."""
    by_engine = {each.engine: each for each in found.audits}
    each = by_engine["spark"]
    core_list_us = _list_us(each) * PROCESSES
    core_copy_us = _copy_us(each) * PROCESSES
    entries = each.listed.entries / each.listed.ledgers
    copies = BILLION * entries * 3
    rows = [
        (
            "ids are listed by the driver",
            f"{found.walk_us:.1f} µs a ledger",
            _span(BILLION * found.walk_us / 1e6),
            "one process, the store",
        ),
        (
            "metadata are read, by one process with 16 under way",
            f"{1e6 / found.metadata_us:,.0f} ledgers/s",
            _span(BILLION * found.metadata_us / 1e6),
            "the store; goes down with processes until it gives no more",
        ),
        (
            "lists, and all around them",
            f"{core_list_us:.0f} µs of a core a ledger",
            f"{_span(BILLION * core_list_us / 1e6)} of a core, {_span(BILLION * core_list_us / 1e6 / 256)} with 256",
            "cores; bookies included, which shared them here",
        ),
        (
            f"with `--read`, {entries:.0f} entries a ledger, three copies",
            f"{core_copy_us:.2f} µs of a core a copy",
            f"{_span(copies * core_copy_us / 1e6)} of a core, {_span(copies * core_copy_us / 1e6 / 256)} with 256",
            "cores, then disks and network of the bookies: --rate",
        ),
        (
            "the plan in the driver's memory",
            f"{found.chunk_bytes:.2f} bytes a ledger",
            _bytes(BILLION * found.chunk_bytes),
            "ids that are given one after the other",
        ),
        (
            "the table `ledgers`",
            f"{found.row_bytes:.1f} bytes a ledger",
            _bytes(BILLION * found.row_bytes),
            "the driver's disk",
        ),
    ]
    head = ["| what | measured | a billion ledgers | bound by |", "|---|--:|--:|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def _bytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


async def _store_costs(uri: str) -> tuple[float, float]:
    async with await connect(uri) as store:
        began = time.perf_counter()
        ids = [ledger async for page in store.ledger_ranges() for ledger in page]
        walk_us = (time.perf_counter() - began) / len(ids) * 1e6
        some = ids[:_SAMPLE]
        began = time.perf_counter()
        await bounded_gather([LedgerId(each) for each in some], store.read_ledger, 16)
        return walk_us, (time.perf_counter() - began) / len(some) * 1e6


async def _written(uri: str, count: int, entries: int) -> None:
    rng = random.Random(2)
    payloads = [rng.randbytes(ENTRY_BYTES) for _ in range(entries)]
    slots = asyncio.Semaphore(_AT_ONCE)
    async with await connect(uri) as store, Client(store, ClientOptions(), rng) as client:

        async def one() -> None:
            async with slots, await client.create_ledger(3, 3, 2) as writer:
                await writer.append_many(payloads)

        for start in range(0, count, 1_000):
            await asyncio.gather(*(one() for _ in range(min(1_000, count - start))))
