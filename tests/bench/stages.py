"""Where the time of adds goes, in a closed loop and at constant rates: ``python -m tests.bench.stages``.

Each row is one run of ``bkbox bench bookie`` on a new bookie; the table goes between the markers ``stages`` of
docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bkbox.bench.memory import PageCache
from tests.bench.peers.report import asked_rates, machine, replace_between
from tests.bench.peers.scenarios import RATE_LOADS, shape_options
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.harness.java import CHECKOUT
from tests.harness.processes import bkbox

KINDS = ("write", "sync", "journal")
WINDOWS = (256, 16, 1)
STAGES = ("queue", "append", "index", "fsync", "reply")
_RATE_FACTOR = 4
"""A constant rate takes so many times as long as a closed loop, for it has fewer adds."""


class Case(NamedTuple):
    """A row of the table. ``words``: options of ``bkbox bench bookie`` besides ``--dir`` and ``-o``."""

    text: str
    words: list[str]


def cases(seconds: float, docs: Path) -> list[Case]:
    """The rows of the table. ``seconds``: duration of a closed loop; ``docs``: the folder of the report that has the
    rates which are a share of Java's maximum."""
    found = []
    rates = asked_rates(docs)
    for kind in KINDS:
        for window in WINDOWS:
            words = f"--ack-after {kind} --window {window} --seconds {seconds:g}"
            if window == 1:
                words += " --ledgers 4"
            found.append(Case(f"{kind}, window {window}", words.split()))
    for load in RATE_LOADS:
        per_s = load.per_s or rates.get(load.name)
        if per_s is not None:  # without reads: what these need first would be in the stages
            words = f"--rate {per_s} {shape_options(load.plan.shape)}"
            words += f" --seconds {_RATE_FACTOR * seconds:g}"
            found.append(Case(load.name.replace("rate", "sync,", 1), words.split()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Where the time of adds goes.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookies write")
    parser.add_argument(
        "--docs", type=Path, default=CHECKOUT / "docs", help="where the report goes"
    )
    parser.add_argument("--no-report", action="store_true", help="print the table, write nothing")
    given = parser.parse_args()
    quiet = QuietMachine(strict=not given.no_report)
    try:
        with PageCache(given.dir) as page_cache:
            rows = [
                row(
                    case.text,
                    quiet.measure(case.text, partial(measure, case, given.dir, page_cache)),
                )
                for case in cases(given.seconds, given.docs)
            ]
    except DisturbedError as error:
        print(f"error: {error}: no report is written", file=sys.stderr)
        return 1
    closed_s, open_s = given.seconds, _RATE_FACTOR * given.seconds
    first = f"1 KiB where no size is named, {closed_s:g} s each, {open_s:g} at a constant rate. {machine()}."
    text = "\n".join([first, "", *head(), *rows])
    print(text)
    if not given.no_report:
        page = given.docs / "performance.md"
        page.write_text(replace_between(page.read_text(), "stages", text))
    return 0


def measure(case: Case, folder: Path, page_cache: PageCache) -> dict[str, Any]:
    """What ``bkbox bench bookie`` says of it."""
    words = [*case.words, "--dir", str(folder), "-o", "json"]
    page_cache.fill()
    return dict(json.loads(bkbox("bench", "bookie", *words, timeout=120).stdout))


def head() -> list[str]:
    stages = " | ".join(STAGES)
    first = f"| adds | adds/s | the client's | sent late | {stages} | CPU µs per add | stolen, ms |"
    return [first, "|---|--:|" + "--:|" * (len(STAGES) + 4)]


def row(text: str, found: dict[str, Any]) -> str:
    """Times are p50 / p99.9 / largest in milliseconds; of what an open loop sent late the last two."""
    stages = {each["stage"]: each for each in found["stages"]}
    adds, rate = found["adds"], found["rate"]
    cells = [
        text,
        f"{adds['per_s']:,.0f}",
        _times(adds),
        "" if rate is None else _ms(rate["late_p999_us"], rate["late_max_us"]),
        *(_times(stages[name]) if name in stages else "" for name in STAGES),
        f"{found['cost']['cpu_s_per_million']:.2f}",
        f"{found['stolen_s'] * 1000:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _times(of: dict[str, Any]) -> str:
    return _ms(of["p50_us"], of["p999_us"], of["max_us"])


def _ms(*times_us: float) -> str:
    return " / ".join(f"{each / 1000:.2f}" for each in times_us)


if __name__ == "__main__":
    sys.exit(main())
