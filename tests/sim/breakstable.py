"""The table of what the simulator notices, in docs/verification.md:

    python -m tests.sim.breakstable [--seeds 200] [--jobs 2] [--report docs/verification.md]

It is that of ``bkbox sim --seed 1 --seeds N --every-break``. Ends with 1 if a break is not noticed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from proof.sim.mutations.mutation_coverage import Catch, catches
from proof.sim.mutations.safety_mutations import BREAKS
from tests.bench.peers.report import replace_between


def table(found: Iterable[Catch], seeds: int) -> list[str]:
    """Lines of the table, and before them a sentence that sums it up."""
    rows, last, missed = [], 0, 0
    for one in found:
        missed += one.seed is None
        last = max(last, one.seed or 0)
        seed = "not noticed" if one.seed is None else str(one.seed)
        by = str(one.violation or "").partition(":")[0]
        rows.append(f"| {one.name} | {seed} | {one.cpu_s:.0f} | {by} |")
        print(rows[-1], flush=True)
    command = f"`bkbox sim --seed 1 --seeds {seeds} --every-break`"
    noticed = f"{len(rows) - missed} of {len(rows)} are noticed, the last at seed {last}"
    return [
        f"{command}: {noticed}.",
        "",
        "| switched off | noticed at seed | processor s | by |",
        "|---|--:|--:|---|",
        *rows,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.breakstable")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", type=Path, help="page with markers for the table")
    given = parser.parse_args()
    found = list(catches([each.name for each in BREAKS], 1, given.seeds, given.jobs))
    lines = table(found, given.seeds)
    if given.report is not None:
        page = given.report.read_text()
        given.report.write_text(replace_between(page, "breaks", "\n".join(lines)))
    return any(each.seed is None for each in found)


if __name__ == "__main__":
    sys.exit(main())
