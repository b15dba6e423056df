"""A load of adds that shares nothing with bkbox's load generator: foreign.c, compiled when it is needed.

What a measurement owes to its load generator shows beside another one: ``make bench-peers ARGS='--only foreign'``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from bkbox.bench.load import Shape
from bkbox.errors import BenchError

SOURCE = Path(__file__).with_name("foreign.c")
_OPTIONS = ("-O2", "-pthread")
_TIMEOUT_S = 300.0


def compiled(folder: Path) -> Path:
    """The program, compiled into a folder. Raises BenchError."""
    program = folder / "foreign"
    compiler = os.environ.get("CC", "cc")
    try:
        built = subprocess.run(
            [compiler, *_OPTIONS, "-o", program, SOURCE],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise BenchError(f"the foreign load needs a C compiler: {compiler} is missing") from error
    if built.returncode:
        raise BenchError(f"{compiler} cannot compile {SOURCE.name}:\n{built.stderr[-2000:]}")
    return program


def run(
    program: Path,
    address: tuple[str, int],
    shape: Shape,
    first_ledger: int,
    *,
    seconds: float = 0.0,
    warmup_s: float = 0.0,
    entries: int = 0,
) -> dict[str, Any]:
    """Adds for ``seconds`` after ``warmup_s``, or ``entries`` entries to each ledger. Returns what the program prints;
    raises BenchError if it fails or if an add was refused."""
    numbers = (first_ledger, shape.ledgers, shape.connections, shape.window, shape.size)
    words = map(str, (*address, *numbers, warmup_s, seconds, entries))
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise BenchError(f"the foreign load failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["errors"]:
        raise BenchError(f"the foreign load: {found['errors']} adds were refused")
    return found
