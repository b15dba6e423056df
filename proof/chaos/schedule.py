"""The kinds of faults, and the schedule of a run: all of it follows from a seed, before the run begins.

How a fault is injected: faults.py. If it is permitted when it is due depends on the others: fault_budget.py.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bkbox.base.values import frozen_struct


@frozen_struct
class Fault:
    """A kind of fault. ``weight``: how often it is drawn; ``lasts_s``: minimum and maximum; ``loses``: the bookie may
    be without data after it; ``restarts``: the bookie is stopped and started, which no other fault may do meanwhile;
    ``pauses``: the bookie's status may be out of date."""

    name: str
    weight: int
    what: str
    lasts_s: tuple[float, float] = (0.0, 0.0)
    loses: bool = False
    restarts: bool = False
    pauses: bool = False


_PAUSE_S = (0.1, 20.0)
_STORE_S = (0.5, 8.0)

FAULTS = (
    Fault("kill-supervisor", 4, "SIGKILL for a supervisor; the rest dies with it", restarts=True),
    Fault("kill-frontend", 6, "SIGKILL for a front-end"),
    Fault("kill-worker", 8, "SIGKILL for the worker of a disk"),
    Fault("kill-repair", 4, "SIGKILL for a repair worker"),
    Fault("kill-bookie", 6, "SIGKILL for all of a bookie, now and then again", restarts=True),
    Fault("kill-all", 2, "SIGKILL for all of all bookies at once", restarts=True),
    Fault("restart", 3, "an ordered stop, and a start", (0.1, 5.0), restarts=True),
    Fault("pause-supervisor", 4, "SIGSTOP for a supervisor", _PAUSE_S, pauses=True),
    Fault("pause-frontend", 6, "SIGSTOP for a front-end", _PAUSE_S, pauses=True),
    Fault("pause-worker", 8, "SIGSTOP for the worker of a disk", _PAUSE_S, pauses=True),
    Fault("pause-repair", 3, "SIGSTOP for a repair worker", _PAUSE_S, pauses=True),
    Fault("pause-bookie", 4, "SIGSTOP for all processes of a bookie", _PAUSE_S, pauses=True),
    Fault("few-descriptors", 3, "a front-end can open nothing any more", (0.1, 10.0)),
    Fault("cut-network", 5, "connections to a bookie are reset, new ones too", _PAUSE_S),
    Fault("silent-network", 5, "nothing gets through to a bookie or back", _PAUSE_S),
    Fault("one-way-network", 4, "a bookie gets requests, its responses are lost", _PAUSE_S),
    Fault("metadata-locked", 3, "another process holds the metadata store's write lock", _STORE_S),
    Fault("metadata-away", 2, "the file of the metadata store is not there", _STORE_S),
    Fault("full-disk", 6, "a disk has no room for what it is given", (2.0, 15.0), loses=True),
    Fault(
        "lost-disk",
        6,
        "disks are gone, and replaced by empty ones",
        (0.1, 5.0),
        loses=True,
        restarts=True,
    ),
    Fault(
        "host-doubt",
        4,
        "SIGKILL, and a start that takes it for a crash of the host",
        (0.1, 2.0),
        loses=True,
        restarts=True,
    ),
)

BY_NAME = {fault.name: fault for fault in FAULTS}


@frozen_struct
class Planned:
    """A fault that is due ``at`` seconds after the beginning. ``bookie`` and ``disk`` count from 0; ``seed``: for all
    further random choices."""

    at: float
    fault: Fault
    bookie: int
    disk: int
    lasts_s: float
    seed: int


def schedule(
    seed: int, seconds: float, every_s: float, bookies: int, disks: int, faults: Sequence[Fault]
) -> list[Planned]:
    """The faults of ``seconds``, one in ``every_s`` on average, in order. Empty without kinds of faults."""
    rng = random.Random(f"schedule {seed}")  # noqa: S311 - it has to be repeatable
    planned: list[Planned] = []
    at = every_s * rng.uniform(0.2, 1.0)
    weights = [fault.weight for fault in faults]
    while faults and at < seconds:
        fault = rng.choices(faults, weights)[0]
        planned.append(
            Planned(
                at,
                fault,
                rng.randrange(bookies),
                rng.randrange(disks),
                _duration(fault, rng),
                rng.getrandbits(32),
            )
        )
        at += every_s * rng.uniform(0.2, 1.8)
    return planned


def _duration(fault: Fault, rng: random.Random) -> float:
    """A random duration: each order of magnitude is equally likely."""
    shortest, longest = fault.lasts_s
    if longest == 0:
        return 0.0
    ratio: float = (longest / shortest) ** rng.random()
    return round(shortest * ratio, 3)
