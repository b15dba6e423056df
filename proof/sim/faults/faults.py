"""Injects the faults of the simulated cluster, and undoes them.

A fault that may lose acknowledged data, or put ledgers into limbo, is injected only while so few bookies are affected
that the protocol promises to survive it (``Plan.lossy``): a bookie is *suspect* from such a fault until it has started
again, accounted for it and has no ledger in limbo any more.

A bookie's handling of a loss is as likely to be interrupted as anything else: losses, and crashes, may come with a
trigger for the following start (``haunt``), which kills the bookie or loses its host once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from proof.sim.plan.profiles import (
    AFTER_A_LOSS_IS_SEEN,
    AFTER_ITS_BEGIN,
    AT_A_CHANGE,
    PROFILES,
)
from proof.sim.plan.schedule import Action, Plan
from proof.sim.world.disk import Disk
from proof.sim.world.host import Cluster, Host
from proof.sim.world.loop import Process

Fault = Callable[["Faults", Host, random.Random], bool]
"""Injects a fault of one kind into a host; returns True if it did."""


class Faults:
    """Injects faults; ``heal`` ends all of them. ``names``: hosts and clients; ``kinds``: see kinds.py."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        machine: Process,
        names: Sequence[str],
        kinds: Mapping[str, Fault],
    ) -> None:
        self.cluster = cluster
        self._plan = plan
        self._kinds = kinds
        self._profile = PROFILES[plan.profile]
        self.machine = machine
        self.at_last: list[Callable[[], None]] = []
        """Calls that put back newer copies at the end."""
        self.names = names
        self._suspects: dict[str, float] = {}
        self._for_good: set[str] = set()
        self.normal_delay_s = cluster.network.delay_s
        self._over = False
        self.swapped: list[tuple[Host, Disk, Host, Disk]] = []

    def do(self, action: Action) -> None:
        host = self.cluster.hosts[action.who]
        rng = random.Random(action.seed)  # noqa: S311 - of a seed
        if self._kinds[action.kind](self, host, rng):
            self.cluster.counts[action.kind] += 1
            self.cluster.scheduler.note(action.who, "FAULT: %s", action.kind)

    def later(self, delay: float, call: Callable[..., object], *args: object) -> None:
        self.machine.after(delay, self._unless_over, call, args)

    def _unless_over(self, call: Callable[..., object], args: tuple[object, ...]) -> None:
        if not self._over:
            call(*args)

    # ---- bookies that may lose data -------------------------------------------------------------

    def may_lose(self, host: Host, *, for_good: bool = False) -> bool:
        """True if one more bookie may lose something; it is suspect from now on. False while it has another bookie's
        disk: the fault would affect that one."""
        if self._has_strange_disk(host):
            return False
        self._review()
        if host.name not in self._suspects and len(self._suspects) >= self._plan.lossy:
            return False
        host.must_be_clean = False
        self._suspects[host.name] = self.machine.scheduler.now
        if for_good:
            self._for_good.add(host.name)
        return True

    def may_all_lose(self, early: set[str]) -> bool:
        """True if all hosts may be lost together; ``early``: bookies that acknowledge before a sync."""
        self._review()
        return len(early | self._suspects.keys()) <= self._plan.lossy

    def is_suspect(self, host: Host) -> bool:
        """True if it may have lost something that it has not accounted for."""
        self._review()
        return host.name in self._suspects

    def _review(self) -> None:
        for name, since in list(self._suspects.items()):
            host = self.cluster.hosts[name]
            is_copied_to = self.cluster.copying[name] > 0  # in limbo as soon as it is named
            is_over = host.accounted_at > since and is_quiescent(host) and not is_copied_to
            if name not in self._for_good and is_over:
                del self._suspects[name]

    def crash_is_fine(self, host: Host) -> bool:
        """True if a kill is permitted: with strict_unclean_shutdown it counts as a loss if acks come before syncs."""
        early = host.plan.ack_after == "write"
        return not (host.plan.strict and early) or self.may_lose(host)

    def restart(self, host: Host) -> None:
        """Restarts a bookie after a disk fault. The restart may itself be a loss if the bookie has recovered from the
        fault since."""
        if self.crash_is_fine(host):
            host.kill("to restart it after trouble with a disk")

    def _has_strange_disk(self, host: Host) -> bool:
        return any(host in (one, other) for one, _, other, _ in self.swapped)

    def loss_is_fine(self, host: Host) -> bool:
        if self._has_strange_disk(host):
            return False
        return host.plan.ack_after != "write" or self.may_lose(host)

    # ---- processes ------------------------------------------------------------------------------

    def kill_bookie(self, host: Host, rng: random.Random) -> bool:
        if not self.crash_is_fine(host):
            return False
        host.kill("SIGKILL")
        self.haunt(host, rng)
        return True

    def haunt(self, host: Host, rng: random.Random) -> None:
        """In some cases interrupts the next start, or what follows it: at one of its changes of files, or some time
        after its begin, its end, or when it has found that something may be lost."""
        if rng.random() >= self._plan.haunted:
            return
        strike = partial(
            self._lose_again if rng.random() < 0.5 else self._kill_again,
            host,
            random.Random(rng.getrandbits(48)),  # noqa: S311 - of a seed
        )
        when = rng.choice(self._profile.haunts)
        if when == AT_A_CHANGE:
            host.ambush.lay(rng.randint(1, rng.choice((8, 30, 120))), strike)
            return
        after_s = rng.expovariate(1.0) * rng.choice(self._profile.haunt_s)
        later = partial(self.later, after_s, strike)
        if when == AFTER_ITS_BEGIN:
            host.on_start = later
        elif when == AFTER_A_LOSS_IS_SEEN:
            host.on_loss = later
        else:
            host.on_up = later

    def _lose_again(self, host: Host, rng: random.Random) -> bool:
        return not self._over and self.lose_host(host, rng)

    def _kill_again(self, host: Host, rng: random.Random) -> bool:
        return not self._over and self.kill_bookie(host, rng)

    def start_host(self, host: Host) -> None:
        if not host.should_run:
            host.should_run = True
            host.start_in(0.1)

    # ---- hosts and disks ------------------------------------------------------------------------

    def lose_host(self, host: Host, rng: random.Random) -> bool:
        if not self.loss_is_fine(host):
            return False
        host.lose()
        self.haunt(host, rng)
        return True

    def replace(self, host: Host, disk: Disk) -> None:
        if disk.mounted:
            return
        host.kill("to replace a disk")
        self.empty(host, disk)
        disk.mounted = True

    def empty(self, host: Host, disk: Disk) -> None:
        disk.empty()
        host.indexes.pop(disk.root, None)

    def swap_back(self) -> None:
        swapped, self.swapped = self.swapped, []
        for host, one, stranger, other in reversed(swapped):
            for each in (host, stranger):
                each.kill("to put disks right")
            self.exchange(host, one, stranger, other)

    def exchange(self, host: Host, one: Disk, stranger: Host, other: Disk) -> None:
        one.exchange(other)
        ours, theirs = host.indexes.pop(one.root, None), stranger.indexes.pop(other.root, None)
        if theirs is not None:
            host.indexes[one.root] = theirs
        if ours is not None:
            stranger.indexes[other.root] = ours

    def strike(self, after_s: float, kind: str, rng: random.Random, host: Host) -> None:
        now = self.machine.scheduler.now
        action = Action(now, kind, host.name, rng.getrandbits(48))
        self.later(after_s, self.do, action)

    # ---- the end --------------------------------------------------------------------------------

    def heal(self) -> None:
        """Ends all faults; everything that broke is replaced."""
        self._over = True
        cluster = self.cluster
        cluster.network.heal()
        cluster.traps.clear()
        cluster.network.delay_s = (0.0002, 0.001)
        cluster.truth.down_until = 0.0
        cluster.truth.lose_responses = 0
        cluster.truth.stale_s = 0.0
        for call in self.at_last:
            call()
        for registration in cluster.truth.registered.values():
            registration.lost_until = 0.0
        self.swap_back()
        for host in cluster.hosts.values():
            self.start_host(host)
            host.crash_next_start = 0
            host.ambush.changes = 0
            host.on_start = host.on_loss = host.on_up = host.on_down = None
            for disk in host.disks:
                self.replace(host, disk)
                if disk.is_failing:
                    host.kill("to mount a disk again")
                    host.remount(disk)
                disk.fail_syncs = disk.fail_appends = disk.fail_reads = 0
                disk.free_bytes = None
            for worker in host.workers.values():
                worker.files.crash_at(0)
                worker.slowness = 1
            if any(
                worker.store is None or worker.store.health.failed_reason
                for worker in host.workers.values()
            ):
                host.kill("to restart it after trouble with a disk")


def is_quiescent(host: Host) -> bool:
    """True if it runs, with all its disks, without a pending fault and with nothing in limbo."""
    return (
        host.is_up
        and len(host.workers) == len(host.config.disks)
        and all(
            not worker.process.dead
            and worker.store is not None
            and worker.store.health.failed_reason is None
            and not worker.files.will_crash
            for worker in host.workers.values()
        )
        and not host.crash_next_start
        and all(
            disk.mounted
            and not (disk.is_failing or disk.fail_syncs or disk.fail_appends or disk.fail_reads)
            for disk in host.disks
        )
        and host.supervisor is not None
        and all(disk.recovered for disk in host.supervisor.disks)
        and not host.limbo()
    )
