"""Faults that wait for a step of the protocol, and befall the bookie that takes it.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random
from functools import partial

from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.frontend import ADDED
from proof.sim.world.host import ADDED_BY_REPLACEMENT, COPIED, STEPS, Host

_AT_STEPS = (
    "kill a bookie",
    "kill a worker",
    "kill a front-end",
    "lose a host",
    "lose a disk",
    "replace a disk by an empty one",
    "replace a disk by an empty one",
    "replace a disk by an empty one",
    "cut a link",
)


def strike_at_step(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Sets a trap for the next bookie that takes a certain step of the protocol."""
    kind = rng.choice(_AT_STEPS)
    after_s = rng.expovariate(1.0) * rng.choice((0.0, 0.01, 0.3))
    faults.cluster.traps[rng.choice(STEPS)] = partial(faults.strike, after_s, kind, rng)
    return True


def lose_at_add(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The host of the next bookie that responds to an add is lost, mostly before anything can have been synced."""
    after_s = rng.choice((0.0, 0.0, 0.001, 0.1)) * rng.random()
    faults.cluster.traps[ADDED] = partial(faults.strike, after_s, "lose a host", rng)
    return True


def lose_all_at_add(faults: Faults, host: Host, rng: random.Random) -> bool:
    """All hosts are lost soon after a bookie has responded to an add: adds with deferred sync are lost, unless they
    were forced meanwhile."""
    after_s = rng.choice((0.03, 0.3, 3.0)) * rng.random()
    faults.cluster.traps[ADDED] = partial(faults.strike, after_s, "lose all hosts", rng)
    return True


def lose_at_copy(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The host of the next bookie that was given a copy by hand is lost, before metadata names it."""
    after_s = rng.choice((0.0, 0.0, 0.01, 1.0)) * rng.random()
    faults.cluster.traps[COPIED] = partial(faults.strike, after_s, "lose a host", rng)
    return True


def replace_at_takeover(faults: Faults, host: Host, rng: random.Random) -> bool:
    """A bookie that a recovery has just taken as a replacement loses its disks."""
    after_s = rng.choice((0.0, 0.01, 0.1)) * rng.random()
    kind = "replace all disks by empty ones"
    faults.cluster.traps[ADDED_BY_REPLACEMENT] = partial(faults.strike, after_s, kind, rng)
    return True


STEP_FAULTS: dict[str, Fault] = {
    "strike at a step": strike_at_step,
    "lose a host at an add": lose_at_add,
    "lose all hosts at an add": lose_all_at_add,
    "replace disks at a takeover": replace_at_takeover,
    "lose a host at a copy": lose_at_copy,
}
