"""``python -m tests.bench.peers``: see ``make bench-peers``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bkbox.bench.server import temporary_folder
from bkbox.errors import BenchError, BkboxError
from tests.bench.peers import report, runner
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.harness.java import CHECKOUT, class_path, missing_reason


def main() -> int:
    parser = argparse.ArgumentParser(description="bkbox beside Apache's bookie.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5)")
    parser.add_argument(
        "--more", action="store_true", help="rounds in addition to the report's, of the same code"
    )
    parser.add_argument("--only", action="append", default=[], help="lines that contain this")
    parser.add_argument("--quick", action="store_true", help="a second for each load")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookies write")
    parser.add_argument(
        "--docs", type=Path, default=CHECKOUT / "docs", help="where the report goes"
    )
    parser.add_argument("--no-report", action="store_true", help="print the table, write nothing")
    parser.add_argument("--list", action="store_true", help="say what lines there are, and stop")
    given = parser.parse_args()
    lines = runner.chosen(given.only, whole_loads=not given.no_report)
    if given.list:
        print("\n".join(f"{line.text} [{line.name}]" for line in lines))
        return 0
    reason = missing_reason()
    if not given.dir.is_dir():
        reason = f"--dir {given.dir}: there is no such folder, make it first"
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    found: report.Rounds = {}
    if given.more:
        try:
            found = report.rounds_so_far(given.docs, {line.load for line in lines})
        except BenchError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    first = max(map(len, found.values()), default=0)
    numbers = range(first, first + given.rounds)
    class_path()  # Maven computes, and downloads: not while anything is measured
    status = 0
    quiet = QuietMachine(strict=not given.no_report)
    with temporary_folder(given.dir) as root:
        try:
            for figures in runner.rounds(root, lines, numbers, quiet, quick=given.quick):
                for load, of_subjects in figures.items():
                    found.setdefault(load, []).append(of_subjects)
        except DisturbedError as error:
            print(f"error: {error}: no report is written", file=sys.stderr)
            return 1
        except (KeyboardInterrupt, BkboxError, AssertionError) as error:
            print(f"error: {error!r}: the rounds that are complete count", file=sys.stderr)
            status = 1
    if not found:
        return 1
    print(report.tables(report.compare(lines, found), found))
    if not given.no_report:
        report.write(given.docs, found)
    return status


if __name__ == "__main__":
    sys.exit(main())
