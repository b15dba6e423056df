"""Hosts and disks that are lost, replaced or swapped.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random

from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.host import Host


def lose_all(faults: Faults, host: Host, rng: random.Random) -> bool:
    hosts = list(faults.cluster.hosts.values())
    if faults.swapped:
        return False
    early = {each.name for each in hosts if each.plan.ack_after == "write"}
    if not faults.may_all_lose(early):
        return False
    for each in hosts:
        faults.loss_is_fine(each)
        each.lose()
    return True


def lose_disk(faults: Faults, host: Host, rng: random.Random) -> bool:
    """A disk fails while it is used; the operator replaces it by an empty one later."""
    if not faults.may_lose(host):
        return False
    disk = rng.choice(host.disks)
    disk.mounted = False
    faults.later(rng.choice((0.1, 1.0, rng.uniform(1.0, 40.0))), faults.replace, host, disk)
    faults.later(0.0, faults.haunt, host, rng)
    return True


def replace_disk(faults: Faults, host: Host, rng: random.Random) -> bool:
    if not faults.may_lose(host):
        return False
    host.kill("to replace a disk")
    faults.empty(host, rng.choice(host.disks))
    faults.haunt(host, rng)
    return True


def replace_disks(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Replaces all disks: nothing is left."""
    if not faults.may_lose(host):
        return False
    host.kill("to replace its disks")
    for disk in host.disks:
        faults.empty(host, disk)
    faults.haunt(host, rng)
    return True


def swap_disks(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Swaps two disks of the bookie, or one of it and one of another, until an operator notices. Not while one of
    them waits to be replaced: what came back after that would be an older disk, which a bookie refuses."""
    if faults.swapped:
        return False
    other = rng.choice(sorted(faults.cluster.hosts))
    stranger = faults.cluster.hosts[other]
    if not (_has_its_disks(host) and _has_its_disks(stranger)):
        return False
    if stranger is host:
        if len(host.disks) < 2 or not faults.crash_is_fine(host):
            return False
        host.kill("to swap disks")
        faults.exchange(host, host.disks[0], host, host.disks[1])
        return True
    if not (faults.crash_is_fine(host) and faults.crash_is_fine(stranger)):
        return False
    for each in (host, stranger):
        each.kill("to swap disks")
    faults.exchange(host, host.disks[0], stranger, stranger.disks[0])
    faults.swapped.append((host, host.disks[0], stranger, stranger.disks[0]))
    faults.later(rng.uniform(5.0, 30.0), faults.swap_back)
    return True


def _has_its_disks(host: Host) -> bool:
    return all(disk.mounted and disk.root in host.indexes for disk in host.disks)


LOSS_FAULTS: dict[str, Fault] = {
    "lose a host": Faults.lose_host,
    "lose all hosts": lose_all,
    "lose a disk": lose_disk,
    "replace a disk by an empty one": replace_disk,
    "replace all disks by empty ones": replace_disks,
    "swap disks": swap_disks,
}
