"""How bkbox's bookie does when there is more of everything: ``make bench-growth``.

Each row of the table is one measurement, or the median of the rounds with the least and the most, by the command it
names or as its function says. Small and large take turns, in an order that is reversed every other round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.bench.bookie import Plan, Target, run
from bkbox.bench.load import Shape, first_ledger, write_ledgers
from bkbox.bench.memory import PageCache
from bkbox.bench.server import Bookie, running, temporary_folder
from bkbox.wire.metadata import ledger_metadata
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from tests.bench.peers.report import replace_between
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.harness.java import CHECKOUT
from tests.harness.processes import bkbox

Row = tuple[str, str, str]
"""What, how much, how it was measured."""

SMALL_LEDGERS, SHARE = 100, 100
SIZE = 100
SILENCE_S = 60.0
OPEN_LEDGERS = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(description="What growth costs bkbox's bookie.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds where there are some (5)")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, one round")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookies write")
    parser.add_argument(
        "--docs", type=Path, default=CHECKOUT / "docs", help="where the report goes"
    )
    parser.add_argument("--no-report", action="store_true", help="print the table, write nothing")
    given = parser.parse_args()
    rounds = 1 if given.quick else given.rounds
    part = 10 if given.quick else 1
    rows: list[Row] = []
    quiet = QuietMachine(strict=not given.no_report)
    measurements: list[Callable[[Path, PageCache], list[Row]]] = [
        lambda *place: more_ledgers(*place, rounds, quiet),
        lambda *place: more_entries(*place, rounds, 100_000 // part, quiet),
        lambda *place: phase_one(*place, OPEN_LEDGERS // part, rounds, quiet),
    ]
    with PageCache(given.dir) as page_cache:
        for measure in measurements:
            with temporary_folder(given.dir) as root:
                try:
                    found = measure(root, page_cache)
                except DisturbedError as error:
                    print(f"error: {error}: no report is written", file=sys.stderr)
                    return 1
            for row in found:
                print(" | ".join(row), file=sys.stderr)
            rows += found
    text = table(rows)
    print(text)
    if not given.no_report:
        page = given.docs / "performance.md"
        page.write_text(replace_between(page.read_text(), "growth", text))
    return 0


def table(rows: list[Row]) -> str:
    """In Markdown."""
    head = ["| what | figure | how |", "|---|--:|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def more_ledgers(root: Path, page_cache: PageCache, rounds: int, quiet: QuietMachine) -> list[Row]:
    """Adds to some ledgers and to a hundred times as many, in turn, each on a new bookie."""
    plans = [_adds(SMALL_LEDGERS), _adds(SMALL_LEDGERS * SHARE)]
    rates: list[list[float]] = [[], []]
    sizes: list[list[float]] = [[], []]
    rng = random.Random()

    def one_round(number: int) -> dict[int, tuple[float, float]]:
        """Rate, and bytes of the index per entry, by number of the plan."""
        found = {}
        for which in _in_turn(number):
            place = root / f"{number}-{which}"
            shutil.rmtree(place, ignore_errors=True)
            bookie = _bookie(place, rng)
            page_cache.fill()
            with running(bookie):
                rate = _rate(bookie, plans[which], rng)
            report = _rebuild(bookie)
            found[which] = (rate, _bytes(bookie.disk / "index") / report["entries"])
            shutil.rmtree(place)
            os.sync()
        return found

    for number in range(rounds):
        found = quiet.measure(f"ledgers, round {number + 1}", partial(one_round, number))
        for which, (rate, size) in found.items():
            rates[which].append(rate)
            sizes[which].append(size)
    command = "bkbox bench bookie --ledgers {} --connections 16 --window 64"
    rows = []
    for which, ledgers in enumerate((SMALL_LEDGERS, SMALL_LEDGERS * SHARE)):
        how = f"`{command.format(ledgers)}`"
        rows.append((f"adds/s, {ledgers:,} ledgers", _spread(rates[which]), how))
        rows.append(
            (
                f"index bytes per entry, {ledgers:,} ledgers",
                f"{_median(sizes[which]):.2f}",
                "the size of `index/` after a rebuild",
            )
        )
    ratios = [large / small for small, large in zip(*rates, strict=True)]
    rows.append(
        ("100 x the ledgers: adds/s", _spread(ratios, 2), "large : small, median (least, most)")
    )
    return rows


def more_entries(
    root: Path, page_cache: PageCache, rounds: int, small: int, quiet: QuietMachine
) -> list[Row]:
    """Adds to a bookie that holds some entries, new in each round, and to one that holds a hundred times as many and is
    stopped while the other is measured; and a rebuild of the latter."""
    rng = random.Random()
    bookie = _bookie(root / "large", rng)
    plan = _adds(SMALL_LEDGERS)
    rates: list[list[float]] = [[], []]

    def stored(of: Bookie, entries: int) -> None:
        shape = Shape(SMALL_LEDGERS, 4, 256, SIZE)
        each = entries // SMALL_LEDGERS
        write_ledgers(of.address, shape, first_ledger(rng), each, SILENCE_S)
        os.sync()

    def one_round(number: int) -> dict[int, float]:
        found = {}
        for which in _in_turn(number):
            if which:
                with running(bookie):
                    page_cache.fill()
                    found[which] = _rate(bookie, plan, rng)
                continue
            place = root / "small"
            shutil.rmtree(place, ignore_errors=True)
            few = _bookie(place, rng)
            with running(few):
                stored(few, small)
                page_cache.fill()
                found[which] = _rate(few, plan, rng)
        return found

    with running(bookie):
        stored(bookie, small * SHARE)
    for number in range(rounds):
        found = quiet.measure(f"entries, round {number + 1}", partial(one_round, number))
        for which, rate in found.items():
            rates[which].append(rate)
    ratios = [large / few for few, large in zip(*rates, strict=True)]
    index_bytes = _bytes(bookie.disk / "index")
    start = time.perf_counter()
    report = _rebuild(bookie)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    with running(bookie):
        start_s = time.perf_counter() - start
    entries = report["entries"]
    how = f"{SIZE} bytes each, then `bkbox bench bookie --ledgers 100 --connections 16 --window 64`"
    return [
        (f"adds/s, {small:,} entries stored", _spread(rates[0]), how),
        (f"adds/s, {small * SHARE:,} entries stored", _spread(rates[1]), how),
        ("100 x the entries: adds/s", _spread(ratios, 2), "large : small, median (least, most)"),
        (
            f"index bytes per entry, {entries:,} entries",
            f"{index_bytes / entries:.2f}",
            "the size of `index/` after a clean stop",
        ),
        (
            "rebuild of the index, entries/s",
            f"{entries / seconds:,.0f}",
            f"`bkbox index rebuild`, {entries:,} entries, {report['bytes_read'] / 1e9:.1f} GB",
        ),
        (f"start with {entries:,} entries", f"{start_s:.2f} s", "`bkbox run`, until ready"),
    ]


def phase_one(
    root: Path, page_cache: PageCache, ledgers: int, rounds: int, quiet: QuietMachine
) -> list[Row]:
    """The start of a bookie that may have lost something, with so many open ledgers of its own in the
    metadata store: every one is fenced and put into limbo before the port opens."""

    def one_round(place: Path) -> tuple[float, float]:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        page_cache.fill()
        return _phase_one(place, ledgers)

    found = [
        quiet.measure(f"phase one, round {number + 1}", partial(one_round, root / f"{number}"))
        for number in range(rounds)
    ]
    clean_s = _median([clean for clean, _ in found])
    return [
        (
            f"phase one, {ledgers:,} open ledgers",
            f"{_spread([after - clean for clean, after in found], 2)} s",
            f"`bkbox run` after a kill with `strict_unclean_shutdown`; a clean start takes {clean_s:.2f} s",
        )
    ]


def _phase_one(root: Path, ledgers: int) -> tuple[float, float]:
    """Seconds of a clean start, and of one with phase one."""
    rng = random.Random()
    bookie = Bookie(
        root,
        f"sqlite:{root / 'metadata.db'}",
        {"ack_after": "write", "strict_unclean_shutdown": "true"},
        rng,
    )
    with running(bookie):
        pass  # the first start is that of a new bookie
    begin = time.perf_counter()
    with running(bookie):
        start_s = time.perf_counter() - begin
        os.kill(bookie.pid, signal.SIGKILL)
    _enter_open_ledgers(root / "metadata.db", bookie, ledgers)
    begin = time.perf_counter()
    with running(bookie):
        return start_s, time.perf_counter() - begin


def _enter_open_ledgers(path: Path, bookie: Bookie, count: int) -> None:
    """All in one transaction: through the store's interface each would have a sync of its own."""
    me = BookieId(f"{bookie.address[0]}:{bookie.address[1]}")
    with closing(sqlite3.connect(path)) as database, database:
        for number in range(count):
            metadata = LedgerMetadata(
                ledger_id=LedgerId(number),
                ensemble_size=1,
                write_quorum=1,
                ack_quorum=1,
                state=LedgerState.OPEN,
                fragments=(Fragment(EntryId(0), (me,)),),
                digest_type=DigestType.CRC32C,
                password=b"",
                custom=(),
                creator_token=number + 1,
            )
            row = (number, 0, ledger_metadata.encode(metadata))
            database.execute("INSERT INTO ledger VALUES (?, ?, 0, ?)", row)
        database.execute("UPDATE cluster SET next_ledger_id = ?", (count,))


def _adds(ledgers: int) -> Plan:
    return Plan("adds", Shape(ledgers, 16, 64, 1024), 3.0, 1.0, None, 0.0, SILENCE_S)


def _in_turn(number: int) -> tuple[int, int]:
    """Small and large, in the order of a round."""
    return (0, 1) if number % 2 == 0 else (1, 0)


def _rate(bookie: Bookie, plan: Plan, rng: random.Random) -> float:
    """Adds per second."""
    result = run(_target(bookie), plan, rng)
    assert result.adds is not None
    return result.adds.per_s


def _bookie(root: Path, rng: random.Random) -> Bookie:
    root.mkdir(parents=True, exist_ok=True)
    return Bookie(root, f"sqlite:{root / 'metadata.db'}", {"ack_after": "sync"}, rng)


def _target(bookie: Bookie) -> Target:
    return Target(bookie.address, bookie.pid, bookie.disk)


def _rebuild(bookie: Bookie) -> dict[str, Any]:
    config = str(bookie.disk.parent / bookie.config)
    done = bkbox("index", "rebuild", "--config", config, "-o", "json", timeout=600)
    (report,) = json.loads(done.stdout)
    return dict(report)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _spread(values: list[float], digits: int = 0) -> str:
    """Median (least, most)."""
    middle, least, most = (
        f"{value:,.{digits}f}" for value in (_median(values), min(values), max(values))
    )
    return f"{middle} ({least}, {most})"


if __name__ == "__main__":
    sys.exit(main())
