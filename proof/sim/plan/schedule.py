"""The plan of a seed: the cluster, the clients' actions and the faults, all drawn before the run begins.

Every action has a random generator of its own, so that leaving one out does not change the others: so a failing
schedule can be shortened, action by action (run/shrink.py). The seed's profile sets the amounts (profiles.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proof.sim.plan.profiles import (
    FAULTS,
    OPERATIONS,
    PROFILES,
    Count,
    Profile,
    Weights,
    profile_of,
)
from proof.sim.world.background_jobs import BackgroundJobs
from proof.sim.world.host_plan import HostPlan

FAULTS_S = 3600.0
"""Simulated seconds with faults; then they cease."""

_EPISODE_S = 60.0
"""Length of an episode: actions come in episodes, so that they overlap; in between the cluster is idle."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action at a time: by a client (``run/workload.py``) or on the cluster (``faults``)."""

    at: float
    kind: str
    who: str
    seed: int

    def __str__(self) -> str:
        return f"{self.at:8.2f}  {self.kind} ({self.who})"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run. ``lossy``: maximum number of bookies that may lose acknowledged data at a time; every ack
    quorum is larger. ``haunted``: probability that a start after a crash or a loss is interrupted. ``absent_s``:
    seconds for which writers of duels do nothing once they are attacked; ``handicaps``: network faults between the
    attacking client and one of the bookies; ``background_jobs``: None without audit, re-replication and collection."""

    seed: int
    profile: str
    hosts: tuple[HostPlan, ...]
    clients: tuple[str, ...]
    lossy: int
    protocol: str
    loss: float
    double: float
    in_order: bool
    delay_s: tuple[float, float]
    stale_s: float
    metadata_s: tuple[float, float]
    syncs_at_once: bool
    haunted: float
    absent_s: tuple[float, ...]
    handicaps: tuple[str, ...]
    background_jobs: BackgroundJobs | None
    actions: tuple[Action, ...]

    def with_actions(self, actions: tuple[Action, ...]) -> Plan:
        return replace(self, actions=actions)


def plan_of(seed: int) -> Plan:
    rng = random.Random(seed)  # noqa: S311 - of a seed
    name = profile_of(seed)
    profile = PROFILES[name]
    lossy = rng.choice(profile.lossy)
    bookies = max(rng.randint(*profile.bookies), lossy + 2)
    ack_after = rng.choice(profile.ack_after)
    clients = tuple(f"client{number}" for number in range(rng.randint(*profile.clients)))
    segment_bytes = rng.choice((2 << 10, 4 << 10, 16 << 10, 1 << 20))
    checkpoint_bytes = rng.choice((2 << 10, 8 << 10, 64 << 10))
    auto_fix = rng.random() < 0.5
    strict = rng.random() < 0.15 and lossy > 0
    again_s = rng.choice(profile.again_s)
    list_s = rng.choice((0.0, 0.01, 1.0))
    bare = random.Random(f"{seed} bare").choice(profile.bare)  # noqa: S311 - of a seed
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
            again_s=again_s,
            list_s=list_s,
            bare=bare,
        )
        for number in range(1, bookies + 1)
    )
    names = [host.name for host in hosts]
    is_rough = rng.random() < 0.5
    return Plan(
        seed=seed,
        profile=name,
        hosts=hosts,
        clients=clients,
        lossy=lossy,
        protocol=rng.choice(("v2", "v2", "v3")),
        loss=rng.choice((0.0, 0.001, 0.01, 0.05)) if is_rough else 0.0,
        double=rng.choice((0.0, 0.01, 0.1)) if is_rough else 0.0,
        in_order=rng.random() < 0.6,
        delay_s=rng.choice(profile.delay_s),
        stale_s=rng.choice((0.0, 0.0, 0.5, 10.0)),
        metadata_s=rng.choice(((0.0005, 0.002), (0.0005, 0.002), (0.01, 0.05), (0.1, 0.5))),
        syncs_at_once=rng.random() < 0.2,
        haunted=rng.choice(profile.haunted),
        absent_s=rng.choice(profile.absent_s),
        handicaps=rng.choice(profile.handicaps),
        background_jobs=BackgroundJobs.of(seed) if profile.background_jobs else None,
        actions=tuple(sorted(_actions(rng, profile, names, clients), key=lambda each: each.at)),
    )


def _actions(
    rng: random.Random, profile: Profile, names: Sequence[str], clients: Sequence[str]
) -> Iterator[Action]:
    episodes = [rng.uniform(0.0, FAULTS_S - _EPISODE_S) for _ in range(rng.randint(3, 10))]

    def action(at: float, kind: str, targets: Sequence[str]) -> Action:
        return Action(at, kind, rng.choice(targets), rng.getrandbits(48))

    def some_time() -> float:
        return rng.choice(episodes) + rng.uniform(1.0, _EPISODE_S)

    for kind in _kinds(rng, profile.operations or OPERATIONS, profile.operation_count):
        yield action(some_time(), kind, clients)
    for kind in _kinds(rng, profile.faults or FAULTS, profile.fault_count):
        at = rng.uniform(1.0, FAULTS_S) if profile.at_any_time else some_time()
        yield action(at, kind, names)
    for _ in range(rng.randint(*profile.duels)):
        at = rng.uniform(1.0, FAULTS_S - _EPISODE_S) if profile.at_any_time else some_time()
        yield action(at, "duel", clients)
        for kind in _kinds(rng, profile.siege or {}, profile.besieged):
            yield action(at + rng.uniform(*profile.besieged_s), kind, names)
        if rng.random() < 0.2:
            yield action(at + rng.uniform(0.0, 10.0), "kill a client", clients)
        if rng.random() < 0.5:
            yield action(at + rng.uniform(0.0, _EPISODE_S), "recover", clients)


def _kinds(rng: random.Random, weights: Weights, count: Count) -> list[str]:
    """``count`` kinds, of which some are left out, and others are more frequent."""
    swarm = {kind: weight * rng.choice((0, 1, 1, 4)) for kind, weight in weights.items()}
    if not any(swarm.values()):
        swarm = dict(weights)
    return rng.choices(list(swarm), list(swarm.values()), k=rng.randint(*count)) if swarm else []
