"""Runs a property for a few seconds, the same each time; ``FUZZ_SECONDS=60``: so long, other inputs each round."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, seed, settings

FUZZ_S = float(os.environ.get("FUZZ_SECONDS", "0"))


def fuzz(prop: Callable[[], None], examples: int) -> int:
    """Check ``prop``, a function with ``@given``, on so many inputs a round; how many rounds there were."""
    bounded = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )(prop)
    end_s, rounds = time.monotonic() + FUZZ_S, 0
    while not rounds or time.monotonic() < end_s:
        seed(rounds)(bounded)()
        rounds += 1
    return rounds
