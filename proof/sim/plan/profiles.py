"""Profiles of seeds: the profile of a seed says how frequent each kind of operation and fault is in it.

Within a profile all is drawn, and some kinds are left out altogether ("swarm"), so that each class of situation is
dense in some share of the seeds: crashes during starts, consecutive losses, recoveries of ledgers with a live writer,
damage just before it is read. Profiles take turns, so that a few dozen consecutive seeds cover all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Weights = Mapping[str, float]

AT_A_CHANGE, AFTER_ITS_BEGIN, AFTER_A_LOSS_IS_SEEN, AFTER_ITS_END = range(4)
"""When a start is interrupted: at a change of a file of the host; or some time after the start has begun, has found
that something may be lost, or has ended."""

Count = tuple[int, int]
"""Minimum, maximum."""

HIDDEN, HALF_HIDDEN, FENCE_LOST = "hidden", "half hidden", "fence lost"
"""Network faults between the attacking client and one of the bookies: all messages are lost; half of the client's
requests are lost; or only the first request, which fences. With the last two, the writer's messages to the bookie are
delayed."""

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

_READS: Weights = {"write": 12.0, "recover": 6.0, "read": 12.0, "tail": 3.0}

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
    "replace all disks by empty ones": 0.3,
    "swap disks": 0.3,
    "fail a sync": 1.5,
    "fail a write": 0.7,
    "fail reads": 1.0,
    "fill a disk": 1.0,
    "flip a bit": 0.7,
    "misdirect a write": 0.5,
    "slow disk": 1.0,
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
    "lose a host at an add": 1.0,
    "replace disks at a takeover": 1.0,
}

_EVERYTHING: Weights = {
    **FAULTS,
    "keep a bookie away": 6.0,
    "kill a repair worker": 3.0,
    "replace disks at a takeover": 4.0,
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
    "fill a disk": 0.5,
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
    "fail a write": 3.0,
    "fill a disk": 1.0,
}

_RELAPSES: Weights = {
    "lose a host at an add": 12.0,
    "lose a host": 9.0,
    "fail a write": 3.0,
    "replace a disk by an empty one": 1.0,
    "kill a bookie": 1.0,
}

_POWER: Weights = {
    "lose all hosts": 3.0,
    "lose all hosts at an add": 9.0,
    "lose a host": 3.0,
    "lose a host at an add": 3.0,
    "kill a worker": 2.0,
    "fail a sync": 4.0,
    "fill a disk": 2.0,
}

_ROT: Weights = {
    "flip a bit": 3.0,
    "misdirect a write": 1.0,
    "lose a host": 2.0,
    "kill a bookie": 2.0,
    "fail reads": 1.0,
    "fill a disk": 1.0,
    "wrong bits on the way": 3.0,
}

_DEVICES: Weights = {
    "lose a device at an add": 20.0,
    "lose a device for a while": 3.0,
    "fail a device for a while": 6.0,
    "remount in order": 4.0,
    "kill a bookie": 2.0,
    "stop a bookie": 1.0,
}

_PAST: Weights = {
    "older index": 3.0,
    "older disk": 5.0,
    "older metadata store": 2.0,
    "cut off a log": 4.0,
    "rot at rest": 3.0,
    "stop a bookie": 2.0,
    "kill a bookie": 2.0,
    "lose a host": 1.0,
}

_COPIES: Weights = {"write": 6.0, "copy by hand": 20.0, "recover": 6.0, "read": 6.0}

_BETWEEN: Weights = {
    "lose a host at a copy": 20.0,
    "lose a host": 1.0,
    "kill a bookie": 1.0,
    "lose a device for a while": 1.0,
}

_SIEGE: Weights = {
    "strike at a step": 8.0,
    "replace disks at a takeover": 6.0,
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
class Profile:
    """``share``: number of seeds of one round. ``lossy``, ``ack_after``, ``again_s``, ``delay_s``, ``haunted``,
    ``bare``, ``absent_s``, ``handicaps``: see Plan and HostPlan; one of them is drawn. ``haunts``, ``haunt_s``: when
    starts are interrupted. ``background_jobs``: True if bookies audit, re-replicate and collect. ``at_any_time``: if
    faults come at any time, and not only when they can do harm. ``duels``: writers whose ledgers are recovered while
    they write; ``besieged``: number of faults around each of them, of the kinds of ``siege``, ``besieged_s`` after its
    beginning."""

    share: int
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
    besieged_s: tuple[float, float] = (-1.0, 10.0)
    again_s: tuple[float, ...] = (0.3, 5.0)
    delay_s: tuple[tuple[float, float], ...] = ((0.0002, 0.001), (0.001, 0.02), (0.01, 0.3))
    haunted: tuple[float, ...] = (0.0, 0.3)
    haunts: tuple[int, ...] = (
        AT_A_CHANGE,
        AT_A_CHANGE,
        AFTER_ITS_BEGIN,
        AFTER_A_LOSS_IS_SEEN,
        AFTER_ITS_END,
    )
    haunt_s: tuple[float, ...] = (0.01, 0.1, 1.0)
    bare: tuple[float, ...] = (0.0,)
    absent_s: tuple[tuple[float, ...], ...] = ((0.0,), (0.0, 3.0), (5.0, 20.0, 40.0))
    handicaps: tuple[tuple[str, ...], ...] = (("",), ("", HIDDEN))
    background_jobs: bool = False


PROFILES: dict[str, Profile] = {
    "of everything": Profile(3, faults=_EVERYTHING, background_jobs=True),
    "crashes": Profile(
        3,
        operation_count=(10, 30),
        faults=_CRASHES,
        fault_count=(150, 350),
        at_any_time=True,
        again_s=(0.3, 1.0),
        haunted=(0.3, 0.6),
    ),
    "losses": Profile(
        3,
        lossy=(1, 1, 2),
        ack_after=("write", "write", "sync", "journal", "mixed"),
        operations=_WRITES,
        operation_count=(20, 50),
        faults=_LOSSES,
        fault_count=(30, 80),
        haunted=(0.5, 0.9),
    ),
    "relapses": Profile(
        3,
        lossy=(1, 1, 2),
        ack_after=("write",),
        operations=_WRITES,
        operation_count=(15, 40),
        faults=_RELAPSES,
        fault_count=(60, 110),
        again_s=(0.3, 1.0),
        haunted=(0.9,),
        bare=(0.0, 0.5),
        haunts=(AT_A_CHANGE, AFTER_A_LOSS_IS_SEEN, AFTER_A_LOSS_IS_SEEN, AFTER_ITS_END),
        haunt_s=(0.003, 0.01, 0.1),
    ),
    "power": Profile(
        3,
        lossy=(0, 1, 1, 1, 2),
        ack_after=("sync", "journal", "mixed"),
        operations=_DEFERRED,
        operation_count=(20, 50),
        faults=_POWER,
        fault_count=(20, 60),
        again_s=(0.1, 0.3, 1.0),
        bare=(0.0, 0.5, 1.0),
    ),
    "rot": Profile(
        3,
        lossy=(1, 1, 2),
        ack_after=("write", "write", "sync", "journal"),
        operations=_READS,
        operation_count=(20, 50),
        faults=_ROT,
        fault_count=(10, 40),
    ),
    "devices": Profile(
        3,
        lossy=(1, 1, 2),
        ack_after=("write",),
        operations=_WRITES,
        operation_count=(40, 80),
        faults=_DEVICES,
        fault_count=(40, 90),
        again_s=(0.1, 0.3, 1.0),
        bare=(0.0, 0.5, 1.0),
    ),
    "the past": Profile(
        3,
        lossy=(1, 1, 2),
        ack_after=("write", "sync", "sync", "journal"),
        operations=_READS,
        operation_count=(20, 50),
        faults=_PAST,
        fault_count=(15, 40),
        again_s=(0.3, 1.0),
    ),
    "copies by hand": Profile(
        3,
        bookies=(4, 6),
        lossy=(1, 1, 2),
        ack_after=("write",),
        operations=_COPIES,
        operation_count=(30, 60),
        faults=_BETWEEN,
        fault_count=(20, 50),
        again_s=(0.1, 0.3, 1.0),
        bare=(0.5, 1.0),
    ),
    "duels": Profile(
        4,
        lossy=(0, 0, 1, 1, 2),
        operation_count=(5, 15),
        faults=_NETWORK,
        fault_count=(0, 20),
        duels=(20, 50),
        siege=_NETWORK,
        besieged=(1, 4),
        delay_s=((0.001, 0.02), (0.01, 0.3)),
        handicaps=(("", HIDDEN), ("", HIDDEN, HALF_HIDDEN), (FENCE_LOST,)),
    ),
    "takeovers": Profile(
        3,
        bookies=(4, 5),
        clients=(2, 3),
        lossy=(1, 1, 1, 2),
        operation_count=(5, 15),
        fault_count=(0, 3),
        at_any_time=True,
        duels=(20, 35),
        siege={"replace disks at a takeover": 1.0},
        besieged=(1, 1),
        besieged_s=(-1.0, 1.0),
        again_s=(0.05,),
        delay_s=((0.01, 0.3), (0.01, 0.6)),
        haunted=(0.0,),
        absent_s=((20.0, 40.0),),
        handicaps=((HIDDEN,),),
    ),
    "sieges": Profile(
        5,
        bookies=(4, 5),
        clients=(2, 3),
        lossy=(1, 1, 1, 2),
        operation_count=(5, 15),
        fault_count=(0, 10),
        duels=(15, 40),
        siege=_SIEGE,
        besieged=(1, 5),
        again_s=(0.05, 0.05, 0.3),
        delay_s=((0.001, 0.02), (0.01, 0.3), (0.01, 0.6), (0.01, 0.6)),
        haunted=(0.0,),
        absent_s=((0.0, 3.0), (5.0, 20.0), (5.0, 20.0)),
        handicaps=(("", HIDDEN), (HIDDEN,)),
    ),
}


NEWER = ("devices", "the past", "copies by hand")
"""Profiles of every fifth seed, so that earlier seeds kept their profiles when these were added."""


def _turns() -> Iterator[str]:
    """The names of one round, each as often as its share, spread evenly."""
    profiles = {name: profile for name, profile in PROFILES.items() if name not in NEWER}
    total = sum(profile.share for profile in profiles.values())
    due = dict.fromkeys(profiles, 0)
    for _ in range(total):
        for name, profile in profiles.items():
            due[name] += profile.share
        name = max(due, key=due.__getitem__)
        due[name] -= total
        yield name


_ROUND = tuple(_turns())


def profile_of(seed: int) -> str:
    """The name of its profile."""
    turn, rest = divmod(seed, 5)
    return _ROUND[seed % len(_ROUND)] if rest else NEWER[turn % len(NEWER)]
