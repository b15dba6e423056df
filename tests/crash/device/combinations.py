"""Which combinations of modes, faults and places are tried: half of them, or all if ``TESTS_LONG`` is set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

LONG = "TESTS_LONG" in os.environ


def combinations(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows with one of each; without ``LONG`` every other one, so that all of each are among them."""
    rows = product(*map(enumerate, values))
    return [
        tuple(value for _, value in row)
        for row in rows
        if LONG or sum(number for number, _ in row) % 2 == 0
    ]
