"""``python -m tests.bench.repair``: see ``make bench-repair``."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bkbox.base.ids import BookieId
from bkbox.bench.load import Load, Shape, measured
from bkbox.bench.load_loop import ADD
from bkbox.bench.memory import PageCache
from bkbox.bench.server import temporary_folder
from bkbox.errors import BkboxError
from bkbox.metadata import connect
from tests.bench.peers.java import ZooKeeper
from tests.bench.peers.report import machine, replace_between
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.bench.repair.ledgers import REPLICAS, Data, Looks, write
from tests.bench.repair.sides import Bkbox, Java, Side
from tests.harness.java import CHECKOUT, missing_reason
from tests.harness.waiting import wait_for

LOOK_S = 0.5
SAMPLE = 40
FOREGROUND = Shape(ledgers=64, connections=4, window=8, size=1024)
FOREGROUND_LEDGER = 1 << 40


@dataclass(frozen=True, slots=True)
class Repaired:
    """``ledgers`` of all were repaired within ``seconds``."""

    ledgers: int
    seconds: float

    def per_s(self, data: Data) -> float:
        return self.ledgers * data.entries / self.seconds


@dataclass(frozen=True, slots=True)
class Foreground:
    """Adds of clients to the bookie that is repaired."""

    per_s: float
    p99_us: float


@dataclass(slots=True)
class Figures:
    """Of one side."""

    disk: Repaired
    bookie: Repaired
    alone: Foreground | None = None
    beside: Foreground | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description="How fast what was lost is brought back.")
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=500, help="of each ledger (500)")
    parser.add_argument("--size", type=int, default=100, help="bytes of payload (100)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    parser.add_argument("--only", choices=["bkbox", "java"], help="one side alone")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each repair (900)")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookies write")
    parser.add_argument("--docs", type=Path, default=CHECKOUT / "docs", help="where the table goes")
    parser.add_argument("--no-report", action="store_true", help="print the table, write nothing")
    given = parser.parse_args()
    reason = missing_reason()
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    data = Data(given.ledgers, given.entries, given.size)
    found: dict[str, list[Figures]] = {}
    kinds: list[type[Bkbox] | type[Java]] = [
        kind for kind in (Java, Bkbox) if given.only in (None, kind.name)
    ]
    quiet = QuietMachine(strict=not given.no_report)
    with PageCache(given.dir) as page_cache:
        for number in range(given.rounds):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                try:
                    figures = quiet.measure(
                        f"round {number + 1}, {kind.name}",
                        partial(one_side, kind, data, given.limit, given.dir, page_cache),
                    )
                except DisturbedError as error:
                    print(f"error: {error}: no report is written", file=sys.stderr)
                    return 1
                found.setdefault(kind.name, []).append(figures)
                say(f"{kind.name}: {asdict(figures)}")
    text = table(data, found)
    print(text)
    if not given.no_report and len(found) == 2:
        page = given.docs / "performance.md"
        page.write_text(replace_between(page.read_text(), "repair", text))
    return 0


def one_side(
    kind: type[Bkbox] | type[Java],
    data: Data,
    limit_s: float,
    folder: Path,
    page_cache: PageCache,
) -> Figures:
    """The figures of one round of a side, on new bookies."""
    page_cache.fill()
    with temporary_folder(folder) as root:
        zookeeper = ZooKeeper(root / "zookeeper").start()
        side = kind(root, zookeeper)
        try:
            return measure(side, data, limit_s)
        finally:
            side.close()
            zookeeper.kill()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def measure(side: Side, data: Data, limit_s: float) -> Figures:
    for _ in range(REPLICAS):
        side.add_bookie()
    say(f"{side.name}: writing {data.total} entries")
    ledgers = write(side.uri, data)
    looks = Looks(side.uri, ledgers, data)
    alone = beside = None
    if side.name == "bkbox":  # first: nothing else is at work
        alone = foreground(side, lambda: None)
    sample = random.Random(4).sample(ledgers, min(SAMPLE, len(ledgers)))

    def is_whole(place: int) -> bool:
        name = side.bookies[place]
        return side.is_idle(place) and looks.count_whole(name, sample) == len(sample)

    say(f"{side.name}: a disk is lost")
    side.lose_disk(0)
    disk = timed(
        lambda: is_whole(0), lambda: looks.count_whole(side.bookies[0]), len(ledgers), limit_s
    )
    say(f"{side.name}: {disk}")
    if disk.ledgers == len(ledgers):
        looks.check(side.bookies[0])
    if side.name == "bkbox":
        beside = foreground(side, lambda: side.lose_disk(0))
        wait_for(lambda: is_whole(0), "the second repair", timeout=limit_s, pause=LOOK_S)
    say(f"{side.name}: a bookie is lost, another one is there")
    side.add_bookie()
    side.kill(1)
    lost = BookieId(side.bookies[1])
    wait_for(lambda: lost not in registered(side), "its registration to end", timeout=60)
    with side.autorecovery():
        bookie = timed(
            lambda: looks.count_without(lost, sample) == len(sample),
            lambda: looks.count_without(lost),
            len(ledgers),
            limit_s,
        )
    say(f"{side.name}: {bookie}")
    if bookie.ledgers == len(ledgers):
        looks.check(side.bookies[-1])
    return Figures(disk, bookie, alone, beside)


def registered(side: Side) -> set[str]:
    async def go() -> set[str]:
        async with await connect(side.uri) as store:
            return set(map(str, await store.bookies()))

    return asyncio.run(go())


def timed(
    is_done: Callable[[], bool], count: Callable[[], int], total: int, limit_s: float
) -> Repaired:
    begin = time.perf_counter()
    while time.perf_counter() - begin < limit_s:
        time.sleep(LOOK_S)
        if is_done():
            seconds = time.perf_counter() - begin
            done = count()
            if done == total:
                return Repaired(done, seconds)
    return Repaired(count(), time.perf_counter() - begin)


def foreground(side: Side, begin: Callable[[], None]) -> Foreground:
    """Twenty seconds of adds, from the moment on in which ``begin`` has come back."""
    begin()
    host, _, port = side.bookies[0].rpartition(":")
    with Load((host, int(port)), 60.0) as load:
        streams = load.add(ADD, FOREGROUND, FOREGROUND_LEDGER + random.randrange(1 << 30))
        load.run(3.0)
        load.count()
        seconds = load.run(20.0)
        found = measured(streams, seconds)
        load.finish()
    if found.errors:
        raise BkboxError(f"adds of the foreground failed: {found.errors}")
    p99_us = found.p99_us or 0.0
    say(f"{side.name}: foreground {found.per_s:.0f} adds/s, p99 {p99_us:.0f} us")
    return Foreground(found.per_s, p99_us)


def table(data: Data, found: dict[str, list[Figures]]) -> str:
    """In Markdown: medians of the rounds; of ratios, the least and the most, too."""
    sides = [found.get(name, []) for name in ("bkbox", "java")]
    rounds = max(map(len, sides))
    rows = [
        f"{data.ledgers:,} ledgers, {data.total:,} entries of {data.size} bytes on three bookies. Medians of {rounds} "
        f"rounds (least, most). {machine()}.",
        "",
        "| what | bkbox | Apache's | ratio | target | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    names = (
        ("disk", "a lost disk is filled again: boot phase two against `dataIntegrityChecking`"),
        ("bookie", "a lost bookie's copies are made anew: autorecovery against autorecovery"),
    )
    for field, text in names:
        pair = [[getattr(each, field) for each in side] for side in sides]
        rates = [[each.per_s(data) for each in side] for side in pair]
        ours, theirs = map(_spread, rates)
        rows.append(f"| {text}, entries/s | {ours} | {theirs} | {_ratio(rates, 1.5)}")
        ours, theirs = (_spread([rate * data.entry_bytes / 1e6 for rate in side]) for side in rates)
        rows.append(f"| the same, MB/s | {ours} | {theirs} | | | |")
        ours, theirs = (_done(side, data) for side in pair)
        rows.append(f"| the same, ledgers in seconds | {ours} | {theirs} | | | |")
    pairs = [
        (each.alone, each.beside)
        for each in sides[0]
        if each.alone is not None and each.beside is not None
    ]
    if pairs:
        shares = [beside.per_s / alone.per_s for alone, beside in pairs]
        alone_s, beside_s = (statistics.median(each[at].per_s for each in pairs) for at in (0, 1))
        rows.append(
            f"| adds/s of clients while the disk is filled, of what they are alone | {beside_s:,.0f} of {alone_s:,.0f} "
            f"| | {_spread(shares)} | >= 0.8 | {_said(statistics.median(shares) >= 0.8)} |"
        )
        tails = [beside.p99_us / alone.p99_us for alone, beside in pairs]
        alone_ms, beside_ms = (
            statistics.median(each[at].p99_us for each in pairs) / 1000 for at in (0, 1)
        )
        rows.append(
            f"| their p99 | {beside_ms:,.2f} instead of {alone_ms:,.2f} ms | | {_spread(tails)} "
            f"| <= 2 | {_said(statistics.median(tails) <= 2)} |"
        )
    return "\n".join(rows)


def _figure(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _spread(values: list[float]) -> str:
    """Median (least, most); empty without values."""
    if not values:
        return ""
    middle, least, most = map(_figure, (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}, {most})"


def _ratio(rates: list[list[float]], target: float) -> str:
    """Of each round, as median and extremes."""
    ratios = [ours / theirs for ours, theirs in zip(*rates, strict=False) if theirs]
    if not ratios:
        return " | | |"
    return f"{_spread(ratios)} | >= {target} | {_said(statistics.median(ratios) >= target)} |"


def _done(repairs: list[Repaired], data: Data) -> str:
    """Of the round with the median duration."""
    if not repairs:
        return ""
    repaired = sorted(repairs, key=lambda each: each.per_s(data))[len(repairs) // 2]
    cut = "" if repaired.ledgers == data.ledgers else ", then cut"
    return f"{repaired.ledgers:,} in {repaired.seconds:,.0f}{cut}"


def _said(reached: bool) -> str:
    return "reached" if reached else "**missed**"


if __name__ == "__main__":
    sys.exit(main())
