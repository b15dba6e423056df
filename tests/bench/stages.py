"""Where the time of adds goes, by what is acknowledged after and by window: ``python -m tests.bench.stages``.

Each row is one run of ``bkbox bench bookie --ack-after … --window …`` on a new bookie; the table goes between the
markers ``stages`` of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bkbox.bench.memory import PageCache
from tests.bench.peers.report import machine, replace_between
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.harness.java import CHECKOUT
from tests.harness.processes import bkbox

KINDS = ("write", "sync", "journal")
WINDOWS = (256, 16, 1)
STAGES = ("queue", "append", "index", "fsync", "reply")


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
                    kind,
                    window,
                    quiet.measure(
                        f"{kind}, window {window}",
                        partial(measure, kind, window, given.seconds, given.dir, page_cache),
                    ),
                )
                for kind in KINDS
                for window in WINDOWS
            ]
    except DisturbedError as error:
        print(f"error: {error}: no report is written", file=sys.stderr)
        return 1
    text = "\n".join([f"1 KiB, {given.seconds:g} s each. {machine()}.", "", *head(), *rows])
    print(text)
    if not given.no_report:
        page = given.docs / "performance.md"
        page.write_text(replace_between(page.read_text(), "stages", text))
    return 0


def measure(
    kind: str, window: int, seconds: float, folder: Path, page_cache: PageCache
) -> dict[str, Any]:
    """What ``bkbox bench bookie`` says of it."""
    words = ["--ack-after", kind, "--window", str(window), "--seconds", str(seconds)]
    words += ["--dir", str(folder), "-o", "json"]
    if window == 1:
        words += ["--ledgers", "4"]
    page_cache.fill()
    return dict(json.loads(bkbox("bench", "bookie", *words, timeout=120).stdout))


def head() -> list[str]:
    stages = " | ".join(STAGES)
    first = f"| adds | adds/s | the client's | {stages} | CPU µs per add |"
    return [first, "|---|--:|" + "--:|" * (len(STAGES) + 2)]


def row(kind: str, window: int, found: dict[str, Any]) -> str:
    """Times are p50 / p99.9 in milliseconds."""
    stages = {each["stage"]: each for each in found["stages"]}
    adds = found["adds"]
    cells = [
        f"{kind}, window {window}",
        f"{adds['per_s']:,.0f}",
        _times(adds),
        *(_times(stages[name]) if name in stages else "" for name in STAGES),
        f"{found['cost']['cpu_s_per_million']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _times(of: dict[str, Any]) -> str:
    return f"{of['p50_us'] / 1000:.2f} / {of['p999_us'] / 1000:.2f}"


if __name__ == "__main__":
    sys.exit(main())
