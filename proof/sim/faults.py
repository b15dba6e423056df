"""The faults of the simulated cluster, by kind, and how they are undone.

A fault that may lose acknowledged data, or put ledgers into limbo, is injected only while so few bookies are affected
that the protocol promises to survive it (``Plan.lossy``): a bookie is *suspect* from such a fault until it has started
again, accounted for it and has no ledger in limbo any more.

A bookie's handling of a loss is as likely to be interrupted as anything else: losses, and crashes, may come with a
trigger for the following start (``_haunt``), which kills the bookie or loses its host once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from proof.sim.devicefaults import DEVICE_FAULTS
from proof.sim.disk import Disk
from proof.sim.diskfaults import DISK_FAULTS
from proof.sim.disturbances import DISTURBANCES
from proof.sim.frontend import ADDED
from proof.sim.host import ADDED_BY_REPLACEMENT, COPIED, KILLED, STEPS, Cluster, Host
from proof.sim.loop import Process
from proof.sim.schedule import Action, Plan
from proof.sim.themes import (
    AFTER_A_LOSS_IS_SEEN,
    AFTER_ITS_BEGIN,
    AT_A_CHANGE,
    THEMES,
)

_AT_STEPS = (
    "kill a bookie",
    "kill a worker",
    "kill a front-end",
    "lose a host",
    "lose a disk",
    "replace a disk by an empty one",
    "replace a disk by an empty one",
    "replace a disk by an empty one",
    "cut a link",
)


class Faults:
    """Injects faults; ``heal`` ends all of them. ``names``: of all hosts and clients."""

    def __init__(
        self, cluster: Cluster, plan: Plan, machine: Process, names: Sequence[str]
    ) -> None:
        self.cluster = cluster
        self._plan = plan
        self._theme = THEMES[plan.theme]
        self.machine = machine
        self.at_last: list[Callable[[], None]] = []
        """Calls that put back newer copies at the end."""
        self.names = names
        self._suspects: dict[str, float] = {}
        self._for_good: set[str] = set()
        self.normal_delay_s = cluster.network.delay_s
        self._over = False
        self._swapped: list[tuple[Host, Disk, Host, Disk]] = []

    def do(self, action: Action) -> None:
        host = self.cluster.hosts[action.who]
        rng = random.Random(action.seed)  # noqa: S311 - of a seed
        if KINDS[action.kind](self, host, rng):
            self.cluster.counts[action.kind] += 1
            self.cluster.scheduler.say(action.who, "FAULT: %s", action.kind)

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

    def is_suspect(self, host: Host) -> bool:
        """True if it may have lost something that it has not accounted for."""
        self._review()
        return host.name in self._suspects

    def _review(self) -> None:
        for name, since in list(self._suspects.items()):
            host = self.cluster.hosts[name]
            is_copied_to = self.cluster.copying[name] > 0  # in limbo as soon as it is named
            is_over = host.accounted_at > since and is_settled(host) and not is_copied_to
            if name not in self._for_good and is_over:
                del self._suspects[name]

    def _crash_is_fine(self, host: Host) -> bool:
        """True if a kill is permitted: with strict_unclean_shutdown it counts as a loss if acks come before syncs."""
        early = host.plan.ack_after == "write"
        return not (host.plan.strict and early) or self.may_lose(host)

    def restart(self, host: Host) -> None:
        """Restarts a bookie after a disk fault. The restart may itself be a loss if the bookie has recovered from the
        fault since."""
        if self._crash_is_fine(host):
            host.kill("to restart it after trouble with a disk")

    def _has_strange_disk(self, host: Host) -> bool:
        return any(host in (one, other) for one, _, other, _ in self._swapped)

    def _loss_is_fine(self, host: Host) -> bool:
        if self._has_strange_disk(host):
            return False
        return host.plan.ack_after != "write" or self.may_lose(host)

    # ---- processes ------------------------------------------------------------------------------

    def kill_bookie(self, host: Host, rng: random.Random) -> bool:
        if not self._crash_is_fine(host):
            return False
        host.kill("SIGKILL")
        self._haunt(host, rng)
        return True

    def _haunt(self, host: Host, rng: random.Random) -> None:
        """In some cases interrupts the next start, or what follows it: at one of its changes of files, or some time
        after its begin, its end, or when it has found that something may be lost."""
        if rng.random() >= self._plan.haunted:
            return
        strike = partial(
            self._lose_again if rng.random() < 0.5 else self._kill_again,
            host,
            random.Random(rng.getrandbits(48)),  # noqa: S311 - of a seed
        )
        when = rng.choice(self._theme.haunts)
        if when == AT_A_CHANGE:
            host.ambush.lay(rng.randint(1, rng.choice((8, 30, 120))), strike)
            return
        after_s = rng.expovariate(1.0) * rng.choice(self._theme.haunt_s)
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

    def keep_away(self, host: Host, rng: random.Random) -> bool:
        """The operator does not restart it for a while: long enough for other bookies to replace it."""
        if not self._crash_is_fine(host):
            return False
        host.wanted = False
        host.kill("SIGKILL, for a while")
        self.later(rng.choice((5.0, 60.0, 300.0)) * rng.random(), self._bring_back, host)
        return True

    def _bring_back(self, host: Host) -> None:
        if not host.wanted:
            host.wanted = True
            host.start_in(0.1)

    def kill_worker(self, host: Host, rng: random.Random) -> bool:
        workers = [worker for worker in host.workers.values() if not worker.process.dead]
        if not workers or not self._crash_is_fine(host):
            return False
        rng.choice(workers).process.die(KILLED)
        return True

    def kill_frontend(self, host: Host, rng: random.Random) -> bool:
        if host.frontend is None:
            return False
        host.frontend.process.die(KILLED)
        return True

    def kill_repair(self, host: Host, rng: random.Random) -> bool:
        found = [each for each in host.processes if each.name.endswith("repair") and not each.dead]
        for process in found:
            process.die(KILLED)
        return bool(found)

    def kill_in_write(self, host: Host, rng: random.Random) -> bool:
        """Kills at the n-th change from now, of a worker or of the supervisor."""
        if host.supervisor is None or not self._crash_is_fine(host):
            return False
        workers = list(host.workers.values())
        if workers and rng.random() < 0.7:
            rng.choice(workers).files.crash_at(rng.randint(1, 40))
        else:
            host.kill("SIGKILL, and the next start is killed, too")
            host.crash_next_start = rng.randint(1, 25)
        return True

    def stop_bookie(self, host: Host, rng: random.Random) -> bool:
        host.stop()
        return True

    # ---- hosts and disks ------------------------------------------------------------------------

    def lose_host(self, host: Host, rng: random.Random) -> bool:
        if not self._loss_is_fine(host):
            return False
        host.lose()
        self._haunt(host, rng)
        return True

    def lose_all(self, host: Host, rng: random.Random) -> bool:
        hosts = list(self.cluster.hosts.values())
        if self._swapped:
            return False
        early = {each.name for each in hosts if each.plan.ack_after == "write"}
        self._review()
        if len(early | self._suspects.keys()) > self._plan.lossy:
            return False
        for each in hosts:
            self._loss_is_fine(each)
            each.lose()
        return True

    def lose_disk(self, host: Host, rng: random.Random) -> bool:
        """A disk fails while it is used; the operator replaces it by an empty one later."""
        if not self.may_lose(host):
            return False
        disk = rng.choice(host.disks)
        disk.mounted = False
        self.later(rng.choice((0.1, 1.0, rng.uniform(1.0, 40.0))), self._replace, host, disk)
        self.later(0.0, self._haunt, host, rng)
        return True

    def _replace(self, host: Host, disk: Disk) -> None:
        if disk.mounted:
            return
        host.kill("to replace a disk")
        self._empty(host, disk)
        disk.mounted = True

    def _empty(self, host: Host, disk: Disk) -> None:
        disk.empty()
        host.indexes.pop(disk.root, None)

    def replace_disk(self, host: Host, rng: random.Random) -> bool:
        if not self.may_lose(host):
            return False
        host.kill("to replace a disk")
        self._empty(host, rng.choice(host.disks))
        self._haunt(host, rng)
        return True

    def replace_disks(self, host: Host, rng: random.Random) -> bool:
        """Replaces all disks: nothing is left."""
        if not self.may_lose(host):
            return False
        host.kill("to replace its disks")
        for disk in host.disks:
            self._empty(host, disk)
        self._haunt(host, rng)
        return True

    def swap_disks(self, host: Host, rng: random.Random) -> bool:
        """Swaps two disks of the bookie, or one of it and one of another, until an operator notices. Not while one of
        them waits to be replaced: what came back after that would be an older disk, which a bookie refuses."""
        if self._swapped:
            return False
        other = rng.choice(sorted(self.cluster.hosts))
        stranger = self.cluster.hosts[other]
        if not (_has_its_disks(host) and _has_its_disks(stranger)):
            return False
        if stranger is host:
            if len(host.disks) < 2 or not self._crash_is_fine(host):
                return False
            host.kill("to swap disks")
            self._exchange(host, host.disks[0], host, host.disks[1])
            return True
        if not (self._crash_is_fine(host) and self._crash_is_fine(stranger)):
            return False
        for each in (host, stranger):
            each.kill("to swap disks")
        self._exchange(host, host.disks[0], stranger, stranger.disks[0])
        self._swapped.append((host, host.disks[0], stranger, stranger.disks[0]))
        self.later(rng.uniform(5.0, 30.0), self._swap_back)
        return True

    def _swap_back(self) -> None:
        swapped, self._swapped = self._swapped, []
        for host, one, stranger, other in reversed(swapped):
            for each in (host, stranger):
                each.kill("to put disks right")
            self._exchange(host, one, stranger, other)

    def _exchange(self, host: Host, one: Disk, stranger: Host, other: Disk) -> None:
        one.exchange(other)
        ours, theirs = host.indexes.pop(one.root, None), stranger.indexes.pop(other.root, None)
        if theirs is not None:
            host.indexes[one.root] = theirs
        if ours is not None:
            stranger.indexes[other.root] = ours

    def strike_at_step(self, host: Host, rng: random.Random) -> bool:
        """Sets a trap for the next bookie that takes a certain step of the protocol."""
        kind = rng.choice(_AT_STEPS)
        after_s = rng.expovariate(1.0) * rng.choice((0.0, 0.01, 0.3))
        self.cluster.traps[rng.choice(STEPS)] = partial(self.strike, after_s, kind, rng)
        return True

    def lose_at_add(self, host: Host, rng: random.Random) -> bool:
        """The host of the next bookie that responds to an add is lost, mostly before anything can have been synced."""
        after_s = rng.choice((0.0, 0.0, 0.001, 0.1)) * rng.random()
        self.cluster.traps[ADDED] = partial(self.strike, after_s, "lose a host", rng)
        return True

    def lose_all_at_add(self, host: Host, rng: random.Random) -> bool:
        """All hosts are lost soon after a bookie has responded to an add: adds with deferred sync are lost, unless they
        were forced meanwhile."""
        after_s = rng.choice((0.03, 0.3, 3.0)) * rng.random()
        self.cluster.traps[ADDED] = partial(self.strike, after_s, "lose all hosts", rng)
        return True

    def lose_at_copy(self, host: Host, rng: random.Random) -> bool:
        """The host of the next bookie that was given a copy by hand is lost, before metadata names it."""
        after_s = rng.choice((0.0, 0.0, 0.01, 1.0)) * rng.random()
        self.cluster.traps[COPIED] = partial(self.strike, after_s, "lose a host", rng)
        return True

    def replace_at_takeover(self, host: Host, rng: random.Random) -> bool:
        """A bookie that a recovery has just taken as a replacement loses its disks."""
        after_s = rng.choice((0.0, 0.01, 0.1)) * rng.random()
        kind = "replace all disks by empty ones"
        self.cluster.traps[ADDED_BY_REPLACEMENT] = partial(self.strike, after_s, kind, rng)
        return True

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
        cluster.truth.lose_answers = 0
        cluster.truth.stale_s = 0.0
        for call in self.at_last:
            call()
        for registration in cluster.truth.registered.values():
            registration.lost_until = 0.0
        self._swap_back()
        for host in cluster.hosts.values():
            self._bring_back(host)
            host.crash_next_start = 0
            host.ambush.changes = 0
            host.on_start = host.on_loss = host.on_up = host.on_down = None
            for disk in host.disks:
                self._replace(host, disk)
                if disk.is_failing:
                    host.kill("to mount a disk again")
                    host.remount(disk)
                disk.fail_syncs = disk.fail_appends = disk.fail_reads = 0
                disk.room = None
            for worker in host.workers.values():
                worker.files.crash_at(0)
                worker.slowness = 1
            if any(
                worker.store is None or worker.store.failed_reason
                for worker in host.workers.values()
            ):
                host.kill("to restart it after trouble with a disk")


def _has_its_disks(host: Host) -> bool:
    return all(disk.mounted and disk.root in host.indexes for disk in host.disks)


def is_settled(host: Host) -> bool:
    """True if it runs, with all its disks, without a pending fault and with nothing in limbo."""
    return (
        host.is_up
        and len(host.workers) == len(host.config.disks)
        and all(
            not worker.process.dead
            and worker.store is not None
            and worker.store.failed_reason is None
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
        and all(disk.settled for disk in host.supervisor.disks)
        and not host.limbo()
    )


KINDS: dict[str, Callable[[Faults, Host, random.Random], bool]] = {
    "kill a bookie": Faults.kill_bookie,
    "keep a bookie away": Faults.keep_away,
    "kill a worker": Faults.kill_worker,
    "kill a front-end": Faults.kill_frontend,
    "kill a repair worker": Faults.kill_repair,
    "kill in the middle of a write": Faults.kill_in_write,
    "lose a host": Faults.lose_host,
    "lose all hosts": Faults.lose_all,
    "stop a bookie": Faults.stop_bookie,
    "lose a disk": Faults.lose_disk,
    "replace a disk by an empty one": Faults.replace_disk,
    "replace all disks by empty ones": Faults.replace_disks,
    "swap disks": Faults.swap_disks,
    "strike at a step": Faults.strike_at_step,
    "lose a host at an add": Faults.lose_at_add,
    "lose all hosts at an add": Faults.lose_all_at_add,
    "replace disks at a takeover": Faults.replace_at_takeover,
    "lose a host at a copy": Faults.lose_at_copy,
    **DISK_FAULTS,
    **DEVICE_FAULTS,
    **DISTURBANCES,
}
