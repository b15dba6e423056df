"""What seeds are about: every seed has a theme, which says how much of what there is in it.

Within a theme all is drawn, and some kinds are left out altogether ("swarm"), so that each class of situation is dense
in some share of the seeds: crashes during starts, losses one after the other, recoveries of ledgers whose writer lives,
damage just before it is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Weights = Mapping[str, float]
Count = tuple[int, int]
"""At least, at most."""

OPERATIONS: Weights = {
    "write": 12.0,
    "write with deferred sync": 2.0,
    "duel": 3.0,
    "recover": 10.0,
    "recover together": 4.0,
    "read": 4.0,
    "tail": 3.0,
    "delete": 0.7,
    "kill a client": 1.5,
}

_WRITES: Weights = {"write": 12.0, "write with deferred sync": 1.0, "recover": 4.0, "read": 4.0}

_DEFERRED: Weights = {"write with deferred sync": 12.0, "write": 3.0, "recover": 3.0, "read": 3.0}

FAULTS: Weights = {
    "kill a bookie": 3.0,
    "kill a worker": 2.0,
    "kill a front-end": 1.0,
    "kill a repair worker": 1.0,
    "kill in the middle of a write": 3.0,
    "lose a host": 3.0,
    "lose all hosts": 0.5,
    "stop a bookie": 1.5,
    "lose a disk": 1.5,
    "replace a disk by an empty one": 1.0,
    "swap disks": 0.3,
    "fail a sync": 1.5,
    "fail a write": 0.7,
    "fail reads": 1.0,
    "fill a disk": 1.0,
    "flip a bit": 0.7,
    "cut off a host": 2.0,
    "cut one way": 1.5,
    "cut a link": 1.5,
    "lossy links": 1.5,
    "wrong bits on the way": 0.7,
    "metadata outage": 1.5,
    "lose an answer of the metadata store": 3.0,
    "expire a session": 1.0,
    "jump a clock": 1.0,
    "slow links": 4.0,
    "slow network": 1.0,
    "strike at a step": 2.0,
}

_CRASHES: Weights = {
    "kill a bookie": 4.0,
    "kill a worker": 3.0,
    "kill a front-end": 1.0,
    "kill a repair worker": 1.0,
    "kill in the middle of a write": 4.0,
    "lose a host": 3.0,
    "lose all hosts": 0.3,
    "fail a write": 0.3,
}

_LOSSES: Weights = {
    "lose a host": 6.0,
    "lose a disk": 1.0,
    "replace a disk by an empty one": 3.0,
    "fail a sync": 2.0,
    "lose all hosts": 1.0,
    "kill a bookie": 1.0,
    "kill a worker": 1.0,
    "strike at a step": 2.0,
}

_POWER: Weights = {
    "lose all hosts": 6.0,
    "lose a host": 6.0,
    "kill a worker": 2.0,
    "fail a sync": 1.0,
}

_ROT: Weights = {
    "flip a bit": 3.0,
    "lose a host": 2.0,
    "kill a bookie": 2.0,
    "fail reads": 1.0,
    "wrong bits on the way": 1.0,
}

_SIEGE: Weights = {
    "strike at a step": 12.0,
    "cut a link": 3.0,
    "cut one way": 1.0,
    "slow links": 3.0,
    "slow network": 1.0,
    "lossy links": 2.0,
    "lose a host": 1.0,
    "lose a disk": 1.0,
    "replace a disk by an empty one": 2.0,
    "kill a bookie": 1.0,
    "kill a worker": 1.0,
    "metadata outage": 0.5,
    "lose an answer of the metadata store": 1.0,
}

_NETWORK: Weights = {
    "strike at a step": 10.0,
    "cut a link": 2.0,
    "slow links": 6.0,
    "lossy links": 8.0,
    "kill a worker": 2.0,
    "kill a front-end": 2.0,
}


@dataclass(frozen=True, slots=True)
class Theme:
    """``share``: of the seeds, beside that of the others. ``lossy``, ``ack_after``, ``again_s``, ``delay_s``,
    ``haunted``, ``absent_s``: see Plan and HostPlan; one of them is drawn. ``at_any_time``: whether faults come at any
    time, and not only when there is something to hurt. ``duels``: writers that are recovered while they write;
    ``besieged``: so many faults around each of them, of the kinds of ``siege``.
    """

    share: float
    bookies: Count = (3, 6)
    clients: Count = (2, 5)
    lossy: tuple[int, ...] = (0, 1, 1, 1, 2)
    ack_after: tuple[str, ...] = ("sync", "sync", "write", "journal", "mixed")
    operations: Weights | None = None
    operation_count: Count = (15, 60)
    faults: Weights | None = None
    fault_count: Count = (0, 50)
    at_any_time: bool = False
    duels: Count = (0, 0)
    siege: Weights | None = None
    besieged: Count = (0, 0)
    again_s: tuple[float, ...] = (0.3, 5.0)
    delay_s: tuple[tuple[float, float], ...] = ((0.0002, 0.001), (0.001, 0.02), (0.01, 0.3))
    haunted: tuple[float, ...] = (0.0, 0.3)
    absent_s: tuple[tuple[float, ...], ...] = ((0.0,), (0.0, 3.0), (5.0, 20.0, 40.0))


THEMES: dict[str, Theme] = {
    "of everything": Theme(4.0),
    "crashes": Theme(
        4.0,
        operation_count=(10, 30),
        faults=_CRASHES,
        fault_count=(150, 350),
        at_any_time=True,
        again_s=(0.3, 1.0),
        haunted=(0.3, 0.6),
    ),
    "losses": Theme(
        4.0,
        lossy=(1, 1, 2),
        ack_after=("write", "write", "sync", "journal", "mixed"),
        operations=_WRITES,
        operation_count=(20, 50),
        faults=_LOSSES,
        fault_count=(30, 80),
        haunted=(0.5, 0.9),
    ),
    "power": Theme(
        3.0,
        ack_after=("sync", "journal", "mixed"),
        operations=_DEFERRED,
        operation_count=(20, 50),
        faults=_POWER,
        fault_count=(20, 60),
    ),
    "rot": Theme(
        3.0,
        lossy=(1, 1, 2),
        ack_after=("write", "write", "sync", "journal"),
        operations=_WRITES,
        operation_count=(15, 40),
        faults=_ROT,
        fault_count=(5, 30),
    ),
    "duels": Theme(
        3.0,
        lossy=(0, 0, 1, 1, 2),
        operation_count=(5, 15),
        faults=_NETWORK,
        fault_count=(0, 20),
        duels=(20, 50),
        siege=_NETWORK,
        besieged=(1, 4),
        delay_s=((0.001, 0.02), (0.01, 0.3)),
    ),
    "sieges": Theme(
        5.0,
        bookies=(4, 5),
        clients=(2, 3),
        lossy=(1, 1, 1, 2),
        operation_count=(5, 15),
        fault_count=(0, 10),
        duels=(15, 40),
        siege=_SIEGE,
        besieged=(1, 5),
        again_s=(0.05, 0.3),
        delay_s=((0.001, 0.02), (0.01, 0.3), (0.01, 0.6)),
        absent_s=((0.0, 3.0), (5.0, 20.0), (5.0, 20.0)),
    ),
}
