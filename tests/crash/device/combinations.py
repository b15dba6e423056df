"""Which combinations of modes, faults and places are tried: each of these at least once, or all combinations if
``TESTS_LONG`` is set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

LONG = "TESTS_LONG" in os.environ


def combinations(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows with one of each; without ``LONG`` no more than it takes to have all of each among them."""
    if LONG:
        return list(product(*values))
    rows = range(max(map(len, values)))
    return [tuple(each[row % len(each)] for each in values) for row in rows]
