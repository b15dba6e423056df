"""What a seed means: the cluster, what clients do, and what goes wrong, drawn before anything happens.

Every action has a random generator of its own, so that leaving one out changes nothing about the others: that is what
makes a failing schedule shorter, action by action (shrink.py). Which kinds of faults there are, and how many, is drawn
first, so that some seeds have many of one kind and others none ("swarm").
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bkbox.sim.host import HostPlan

FAULTS_S = 1500.0
"""Simulated seconds with faults; then they cease."""

_EPISODE_S = 60.0
"""Actions come in episodes, so that they meet each other; in between the cluster rests."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something done at a time: by a client (``workload.py``) or to the cluster (``faults.py``)."""

    at: float
    kind: str
    who: str
    seed: int

    def __str__(self) -> str:
        return f"{self.at:8.2f}  {self.kind} ({self.who})"


@dataclass(frozen=True, slots=True)
class Plan:
    """All of one run. ``lossy``: so many bookies at a time may lose what they acknowledged; every ack quorum is
    larger."""

    seed: int
    hosts: tuple[HostPlan, ...]
    clients: tuple[str, ...]
    lossy: int
    protocol: str
    loss: float
    double: float
    in_order: bool
    delay_s: tuple[float, float]
    stale_s: float
    syncs_at_once: bool
    actions: tuple[Action, ...]

    def with_actions(self, actions: tuple[Action, ...]) -> Plan:
        return replace(self, actions=actions)


OPERATIONS = {
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

FAULTS = {
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
    "metadata outage": 1.5,
    "lose an answer of the metadata store": 3.0,
    "expire a session": 1.0,
    "jump a clock": 1.0,
    "slow links": 4.0,
    "slow network": 1.0,
}

_STORM = {
    "kill a bookie": 3.0,
    "kill a worker": 3.0,
    "kill a front-end": 1.0,
    "kill a repair worker": 1.0,
    "kill in the middle of a write": 4.0,
    "lose a host": 3.0,
    "lose all hosts": 0.3,
}


def plan_of(seed: int) -> Plan:
    rng = random.Random(seed)  # noqa: S311 - of a seed
    lossy = rng.choice((0, 1, 1, 1, 2))
    bookies = rng.randint(3, 6) if lossy < 2 else rng.randint(4, 6)
    ack_after = rng.choice(("sync", "sync", "write", "journal", "mixed"))
    clients = tuple(f"client{number}" for number in range(rng.randint(2, 5)))
    segment_bytes = rng.choice((2 << 10, 4 << 10, 16 << 10, 1 << 20))
    checkpoint_bytes = rng.choice((2 << 10, 8 << 10, 64 << 10))
    auto_fix = rng.random() < 0.5
    strict = rng.random() < 0.15 and lossy > 0
    hosts = tuple(
        HostPlan(
            name=f"b{number}:3181",
            disks=rng.choice((1, 1, 2, 3)),
            ack_after=rng.choice(("sync", "write", "journal"))
            if ack_after == "mixed"
            else ack_after,
            auto_fix_cookies=auto_fix,
            strict=strict,
            readonly_in_limbo=rng.random() < 0.3,
            segment_bytes=segment_bytes,
            checkpoint_bytes=checkpoint_bytes,
            sync_ms=rng.choice(((0.2, 0.5), (1.0, 4.0), (5.0, 60.0))),
        )
        for number in range(1, bookies + 1)
    )
    names = [host.name for host in hosts]
    episodes = [rng.uniform(0.0, FAULTS_S - _EPISODE_S) for _ in range(rng.randint(3, 10))]
    actions = [
        *_drawn(rng, episodes, OPERATIONS, rng.randint(15, 60), clients),
        *_drawn(rng, episodes, FAULTS, rng.choice((0, 5, 15, 30, 50)), names),
        *_storm(rng, names),
        *_duels(rng, episodes, names, clients),
    ]
    is_rough = rng.random() < 0.5
    return Plan(
        seed=seed,
        hosts=hosts,
        clients=clients,
        lossy=lossy,
        protocol=rng.choice(("v2", "v2", "v3")),
        loss=rng.choice((0.0, 0.001, 0.01, 0.05)) if is_rough else 0.0,
        double=rng.choice((0.0, 0.01, 0.1)) if is_rough else 0.0,
        in_order=rng.random() < 0.6,
        delay_s=rng.choice(((0.0002, 0.001), (0.001, 0.02), (0.01, 0.3))),
        stale_s=rng.choice((0.0, 0.0, 0.5, 10.0)),
        syncs_at_once=rng.random() < 0.2,
        actions=tuple(sorted(actions, key=lambda action: action.at)),
    )


def _drawn(
    rng: random.Random,
    episodes: list[float],
    weights: dict[str, float],
    count: int,
    names: Sequence[str],
) -> list[Action]:
    """So many actions of kinds of which some are left out, and others are more frequent."""
    swarm = {kind: weight * rng.choice((0, 1, 1, 4)) for kind, weight in weights.items()}
    if not any(swarm.values()):
        swarm = weights
    kinds = rng.choices(list(swarm), list(swarm.values()), k=count)
    return [
        Action(
            rng.choice(episodes) + rng.uniform(1.0, _EPISODE_S),
            kind,
            rng.choice(names),
            rng.getrandbits(48),
        )
        for kind in kinds
    ]


def _storm(rng: random.Random, names: Sequence[str]) -> list[Action]:
    """In some seeds: one crash after the other, all the time, so that starts and repairs are cut short as well."""
    if rng.random() < 0.75:
        return []
    kinds = rng.choices(list(_STORM), list(_STORM.values()), k=rng.randint(100, 250))
    return [
        Action(rng.uniform(1.0, FAULTS_S), kind, rng.choice(names), rng.getrandbits(48))
        for kind in kinds
    ]


def _duels(
    rng: random.Random, episodes: list[float], names: Sequence[str], clients: Sequence[str]
) -> list[Action]:
    """In some seeds: many writers that are recovered by others while they write, over links that are not alike."""
    if rng.random() < 0.6:
        return []
    actions = []
    for _ in range(rng.randint(20, 80)):
        at = rng.choice(episodes) + rng.uniform(1.0, _EPISODE_S)
        actions.append(Action(at, "duel", rng.choice(clients), rng.getrandbits(48)))
        if rng.random() < 0.3:
            actions.append(Action(at - 0.5, "slow links", rng.choice(names), rng.getrandbits(48)))
    return actions
