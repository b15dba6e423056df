"""Shortens a failing schedule: actions are left out, in halves, quarters, and one by one, as long as the
same property is violated (delta debugging). Every action has its own random generator (plan/schedule.py), so the others
do not change; the network still draws from the seed, and so a shorter schedule may fail at another time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from proof.sim.plan.schedule import Action, Plan
from proof.sim.run.simulation import Outcome, run

Fails = Callable[[Sequence[Action]], bool]
GoesOn = Callable[[int], bool]
"""True to try once more, after this many tries."""


def shortened(actions: Sequence[Action], fails: Fails, goes_on: GoesOn) -> tuple[Action, ...]:
    """A subsequence that fails and from which, if ``goes_on`` permits enough tries, no action can be left out."""
    remaining = list(actions)
    pieces = 2
    tries = 0
    while remaining and goes_on(tries):
        size = max(1, -(-len(remaining) // pieces))
        for start in range(0, len(remaining), size):
            shorter = remaining[:start] + remaining[start + size :]
            tries += 1
            if fails(shorter):
                remaining = shorter
                pieces = max(2, pieces - 1)
                break
            if not goes_on(tries):
                break
        else:
            if size == 1:
                break
            pieces = min(len(remaining), 2 * pieces)
    return tuple(remaining)


def shrink(plan: Plan, violated: str, goes_on: GoesOn) -> Plan:
    """The plan with as few actions as still violate the property of this name."""

    def fails(actions: Sequence[Action]) -> bool:
        return _violates(run(plan.with_actions(tuple(actions))), violated)

    return plan.with_actions(shortened(plan.actions, fails, goes_on))


def _violates(outcome: Outcome, name: str) -> bool:
    return outcome.violation is not None and outcome.violation.name == name


def fresh_seed() -> int:
    """A random seed, for callers without one."""
    return random.SystemRandom().getrandbits(40)
