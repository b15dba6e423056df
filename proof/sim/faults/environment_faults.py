"""Faults of the environment of bookies and clients: the network, the metadata store, clocks. They lose no data.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random

from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.host import Host


def cut_off(faults: Faults, host: Host, rng: random.Random) -> bool:
    others = [name for name in faults.names if name != host.name]
    cut = {(host.name, name) for name in others} | {(name, host.name) for name in others}
    _cut(faults, cut, rng)
    return True


def cut_one_way(faults: Faults, host: Host, rng: random.Random) -> bool:
    others = [name for name in faults.names if name != host.name]
    chosen = rng.sample(others, rng.randint(1, len(others)))
    outwards = rng.random() < 0.5
    _cut(faults, {(host.name, x) if outwards else (x, host.name) for x in chosen}, rng)
    return True


def cut_link(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Cuts the link between the host and one other."""
    clients = [name for name in faults.names if name not in faults.cluster.hosts]
    other = rng.choice([*(name for name in faults.names if name != host.name), *clients * 3])
    _cut(faults, {(host.name, other), (other, host.name)}, rng)
    return True


def leak(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Some routes to and from the host lose many messages."""
    for name in rng.sample(faults.names, rng.randint(1, len(faults.names))):
        route = (name, host.name) if rng.random() < 0.7 else (host.name, name)
        network = faults.cluster.network
        network.lose_for(rng.uniform(5.0, 60.0), route, rng.choice((0.1, 0.3, 0.7)))
    return True


def garble(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The network corrupts entries that the bookie reads."""
    garbling = faults.cluster.network.garbling
    garbling[host.name] = rng.choice((0.1, 0.5))
    faults.later(rng.uniform(5.0, 60.0), garbling.pop, host.name, None)
    return True


def _cut(faults: Faults, cut: set[tuple[str, str]], rng: random.Random) -> None:
    faults.cluster.network.cut_for(rng.uniform(1.0, 60.0), cut)


def metadata_outage(faults: Faults, host: Host, rng: random.Random) -> bool:
    truth = faults.cluster.truth
    truth.down_until = truth.scheduler.now + rng.uniform(1.0, 30.0)
    return True


def lose_response(faults: Faults, host: Host, rng: random.Random) -> bool:
    faults.cluster.truth.lose_responses += 1
    return True


def expire_session(faults: Faults, host: Host, rng: random.Random) -> bool:
    faults.cluster.truth.marks.expire(host.name)
    for name, found in faults.cluster.truth.registered.items():
        if name == host.name:
            found.lost_from = faults.cluster.scheduler.now
            found.lost_until = found.lost_from + rng.uniform(1.0, 90.0)
            return True
    return False


def jump_clock(faults: Faults, host: Host, rng: random.Random) -> bool:
    host.wall_offset_ms += rng.randint(-(10**8), 10**8)
    for worker in host.workers.values():
        worker.wall_offset_ms = host.wall_offset_ms
    return True


def slow_links(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Some routes to and from the host are much slower than others."""
    for name in rng.sample(faults.names, rng.randint(1, len(faults.names))):
        route = (name, host.name) if rng.random() < 0.7 else (host.name, name)
        network = faults.cluster.network
        network.slow_for(rng.uniform(5.0, 60.0), route, rng.choice((0.1, 0.5, 1.0, 3.0)))
    return True


def slow_network(faults: Faults, host: Host, rng: random.Random) -> bool:
    faults.cluster.network.delay_s = (0.05, rng.choice((0.3, 1.0, 3.0)))
    faults.later(rng.uniform(5.0, 30.0), _usual_network, faults)
    return True


def _usual_network(faults: Faults) -> None:
    faults.cluster.network.delay_s = faults.normal_delay_s


ENVIRONMENT_FAULTS: dict[str, Fault] = {
    "cut off a host": cut_off,
    "cut one way": cut_one_way,
    "cut a link": cut_link,
    "lossy links": leak,
    "wrong bits on the way": garble,
    "metadata outage": metadata_outage,
    "lose an answer of the metadata store": lose_response,
    "expire a session": expire_session,
    "jump a clock": jump_clock,
    "slow links": slow_links,
    "slow network": slow_network,
}
