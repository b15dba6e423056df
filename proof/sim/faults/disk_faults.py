"""Faults of single disks that stay in place: failing syncs, writes and reads, no space, flipped bits, misdirected
writes, slowness.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random

from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.disk import LOG_SUFFIX
from proof.sim.world.host import Host


def fail_sync(faults: Faults, host: Host, rng: random.Random) -> bool:
    if not faults.may_lose(host):
        return False
    disk = rng.choice(host.disks)
    disk.fail_syncs = 1
    if rng.random() < 0.5:  # a disk that fails often brings its host down
        after = rng.choice((0.0, 0.001, 0.1, 1.0)) * rng.random()
        disk.on_failed_sync = lambda: faults.later(after, faults.lose_host, host, rng)
    faults.later(rng.uniform(5.0, 60.0), faults.restart, host)
    return True


def fail_write(faults: Faults, host: Host, rng: random.Random) -> bool:
    if not faults.may_lose(host):
        return False
    rng.choice(host.disks).fail_appends = 1
    faults.later(rng.uniform(5.0, 60.0), faults.restart, host)
    return True


def fail_reads(faults: Faults, host: Host, rng: random.Random) -> bool:
    if not faults.may_lose(host):  # an unreadable marker puts everything into limbo
        return False
    rng.choice(host.disks).fail_reads = rng.randint(1, 5)
    return True


def fill_disk(faults: Faults, host: Host, rng: random.Random) -> bool:
    disk = rng.choice(host.disks)
    disk.free_bytes = rng.choice((0, 100, 2000, 10000))
    faults.later(rng.uniform(1.0, 40.0), setattr, disk, "free_bytes", None)
    return True


def flip_bit(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Flips some bits of a disk. Damage is detected when it is read: often the bookie is restarted at once, and
    always during a repair, which may have read that place already."""
    if not faults.may_lose(host, for_good=True):
        return False
    suffix = rng.choice((LOG_SUFFIX, LOG_SUFFIX, "CHECKPOINT"))
    for _ in range(rng.choice((1, 3, 30))):
        what = rng.choice(host.disks).flip(rng, suffix)
        if what is not None:
            faults.cluster.scheduler.note(host.name, "a bit of %s flips", what)
    _inspect_damage(faults, host, rng)
    return True


def misdirect_write(faults: Faults, host: Host, rng: random.Random) -> bool:
    """A write also goes to a wrong place, over what was there."""
    if not faults.may_lose(host, for_good=True):
        return False
    for _ in range(rng.choice((1, 3))):
        what = rng.choice(host.disks).misdirect(rng)
        if what is not None:
            faults.cluster.scheduler.note(host.name, "a write goes to %s", what)
    _inspect_damage(faults, host, rng)
    return True


def _inspect_damage(faults: Faults, host: Host, rng: random.Random) -> None:
    if host.limbo() or rng.random() < 0.7:
        rng.choice((faults.kill_bookie, faults.lose_host))(host, rng)


def slow_disk(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Syncs take ten or a thousand times as long, until the workers are restarted or the fault is over."""
    for worker in host.workers.values():
        worker.slowness = rng.choice((10, 1000))
        faults.later(rng.uniform(5.0, 60.0), setattr, worker, "slowness", 1)
    return True


DISK_FAULTS: dict[str, Fault] = {
    "fail a sync": fail_sync,
    "fail a write": fail_write,
    "fail reads": fail_reads,
    "fill a disk": fill_disk,
    "flip a bit": flip_bit,
    "misdirect a write": misdirect_write,
    "slow disk": slow_disk,
}
