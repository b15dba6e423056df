"""Why a batch is copied together before it is written: ``python -m tests.bench.gathering [--dir FOLDER]``.

Compiles and runs gathering.c, and prints nanoseconds per entry, medians of five alternating repeats, for both ways: one
write of what was copied together, and one that gathers the entries from where they came in.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("gathering.c")
SIZES = (132, 1_064, 4_136, 65_568)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where to write")
    folder = parser.parse_args().dir
    with tempfile.TemporaryDirectory(dir=folder) as made:
        program, file = Path(made) / "gathering", Path(made) / "file"
        compiler = os.environ.get("CC", "cc")
        built = subprocess.run([compiler, "-O3", "-msse4.2", "-o", program, SOURCE], check=False)
        if built.returncode:
            print(f"{compiler} cannot compile {SOURCE.name} for this processor", file=sys.stderr)
            return 1
        print(
            "| bytes of an entry | copied, one write: ns | gathered by pwritev: ns |\n|--:|--:|--:|"
        )
        for size in SIZES:
            found = subprocess.run(
                [program, str(size), file], check=True, capture_output=True, text=True
            ).stdout
            pairs = [tuple(map(float, line.split())) for line in found.splitlines()]
            copied, gathered = map(statistics.median, zip(*pairs, strict=True))
            print(f"| {size:,} | {copied:,.0f} | {gathered:,.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
