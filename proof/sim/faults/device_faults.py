"""Devices that fail and come back, and mounts that change, while the kernel's boot id stays as it is.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.disk import Disk
from proof.sim.world.frontend import ADDED
from proof.sim.world.host import Host

_ADDS = 200


def lose_device(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The device is gone with all unsynced data, and back soon; the bookie is killed and the disk mounted again."""
    if not faults.may_lose(host):
        return False
    host.kill("the device of a disk is gone")
    for disk in _some(host, rng):
        host.remount(disk)
    return True


def lose_device_at_add(faults: Faults, host: Host, rng: random.Random) -> bool:
    """When a bookie next acknowledges an add and has not synced it, the device is gone, or fails."""
    faults.cluster.traps[ADDED] = partial(_strike_unsynced, faults, rng, _ADDS)
    return True


def _strike_unsynced(faults: Faults, rng: random.Random, adds: int, host: Host) -> None:
    disks = [disk for disk in host.data_disks if disk.has_unsynced_log]
    if not disks:
        if adds:
            call = partial(_strike_unsynced, faults, rng, adds - 1)
            faults.later(0.0, faults.cluster.traps.setdefault, ADDED, call)
        return
    faults.later(rng.choice((0.0, 0.0, 0.01)) * rng.random(), _lose_these, faults, host, rng, disks)


def _lose_these(faults: Faults, host: Host, rng: random.Random, disks: Sequence[Disk]) -> None:
    if not faults.may_lose(host):
        return
    faults.cluster.counts["devices lost at an add"] += 1
    if rng.random() < 0.3:
        host.kill("the device of a disk is gone")
        for disk in disks:
            host.remount(disk)
        return
    for disk in disks:
        disk.is_failing = True
    end = rng.choice((_heal_and_kill, _heal_and_kill, _remount_after_stop, _remount_after_kill))
    faults.later(rng.choice((0.0, 0.0, 2.0, 5.0)) * rng.random(), end, faults, host, rng, disks)


def fail_device(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The device takes no writes for a while. Then the bookie is stopped, or killed, and the disk mounted again; or the
    device works again by itself, and the bookie is killed, or does not notice."""
    if not faults.may_lose(host):
        return False
    disks = _some(host, rng)
    for disk in disks:
        disk.is_failing = True
    end = rng.choice((_remount_after_kill, _remount_after_stop, _heal, _heal_and_kill))
    faults.later(rng.choice((0.01, 1.0, 20.0)) * rng.random(), end, faults, host, rng, disks)
    return True


def _some(host: Host, rng: random.Random) -> list[Disk]:
    return rng.sample(host.disks, 2 if len(host.disks) > 1 and rng.random() < 0.4 else 1)


def _remount(host: Host, disks: Sequence[Disk]) -> None:
    for disk in disks:
        if disk.is_failing:
            host.remount(disk)


def _remount_after_kill(
    _faults: Faults, host: Host, _rng: random.Random, disks: Sequence[Disk]
) -> None:
    host.kill("to mount a disk again")
    _remount(host, disks)


def _remount_after_stop(
    _faults: Faults, host: Host, _rng: random.Random, disks: Sequence[Disk]
) -> None:
    host.stop()
    host.when_down(partial(_remount, host, disks))


def _heal(faults: Faults, host: Host, rng: random.Random, disks: Sequence[Disk]) -> None:
    for disk in disks:
        if disk.is_failing:
            disk.reattach()
    faults.later(rng.uniform(5.0, 60.0), faults.restart, host)


def _heal_and_kill(faults: Faults, host: Host, rng: random.Random, disks: Sequence[Disk]) -> None:
    """The bookie has noted the failure, if it saw it, where it could. In some cases another program has then received
    the error from the kernel, which reports it once."""
    reported = {path for path, worker in host.workers.items() if worker.has_reported_failure}
    faults.cluster.counts["devices that came back"] += 1
    faults.cluster.counts["devices that came back after trouble"] += bool(reported)
    for disk in disks:
        if disk.is_failing:
            disk.reattach()
            if disk.root in reported and rng.random() < 0.7:
                disk.sync_failed = False
                for names in disk.names.values():
                    for file in names.values():
                        file.unheard = False
    host.kill("after an error of its disk")
    if rng.random() < 0.8:
        for disk in disks:
            disk.drop_caches()


def remount_in_order(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The operator stops the bookie, and mounts its disks again: nothing is lost."""
    if not host.is_up:
        return False
    host.stop()
    host.when_down(partial(_remount_all, faults, host))
    return True


def _remount_all(faults: Faults, host: Host) -> None:
    if any(not disk.mounted or disk.is_failing for disk in host.disks):
        return
    for disk in host.disks:
        disk.remount_in_order()
    if host.stopped_cleanly and not faults.is_suspect(host):
        host.must_be_clean = True
        faults.cluster.counts["remounts after an ordered stop"] += 1


DEVICE_FAULTS: dict[str, Fault] = {
    "lose a device for a while": lose_device,
    "lose a device at an add": lose_device_at_add,
    "fail a device for a while": fail_device,
    "remount in order": remount_in_order,
}
