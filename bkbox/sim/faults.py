"""What goes wrong in the simulated cluster, by kind, and how it is put right again.

What may lose acknowledged data, or put ledgers into limbo, is done only while so few bookies are in that state that the
protocol promises to survive it (``Plan.lossy``): a bookie is *suspect* from such a fault until it has started again,
accounted for it and has no ledger in limbo any more.

What a bookie does about a loss is as likely to be cut short as anything else: losses, and crashes, may come with an
ambush for the start that follows (``_haunt``), which kills the bookie or loses its host once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from bkbox.sim.files import LOG_SUFFIX, Disk
from bkbox.sim.host import KILLED, STEPS, Cluster, Host
from bkbox.sim.loop import Process
from bkbox.sim.schedule import Action, Plan

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
    """Carries out faults; ``heal`` ends all of them."""

    def __init__(
        self, cluster: Cluster, plan: Plan, machine: Process, names: Sequence[str]
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._machine = machine
        self._names = names
        self._suspects: dict[str, float] = {}
        self._for_good: set[str] = set()
        self._normal_delay = cluster.network.delay_s
        self._over = False
        self._swapped: list[tuple[Host, Disk, Host, Disk]] = []

    def do(self, action: Action) -> None:
        host = self._cluster.hosts[action.who]
        rng = random.Random(action.seed)  # noqa: S311 - of a seed
        if KINDS[action.kind](self, host, rng):
            self._cluster.counts[action.kind] += 1
            self._cluster.scheduler.say(action.who, "FAULT: %s", action.kind)

    def _later(self, delay: float, call: Callable[..., object], *args: object) -> None:
        self._machine.after(delay, self._unless_over, call, args)

    def _unless_over(self, call: Callable[..., object], args: tuple[object, ...]) -> None:
        if not self._over:
            call(*args)

    # ---- who may lose ---------------------------------------------------------------------------

    def may_lose(self, host: Host, *, for_good: bool = False) -> bool:
        """Whether one more bookie may lose something; it is suspect from now on. Not while it has a disk of another:
        that would lose it."""
        if self._has_strange_disk(host):
            return False
        self._review()
        if host.name not in self._suspects and len(self._suspects) >= self._plan.lossy:
            return False
        self._suspects[host.name] = self._machine.scheduler.now
        if for_good:
            self._for_good.add(host.name)
        return True

    def _review(self) -> None:
        for name, since in list(self._suspects.items()):
            host = self._cluster.hosts[name]
            if name not in self._for_good and host.accounted_at > since and is_settled(host):
                del self._suspects[name]

    def _crash_is_fine(self, host: Host) -> bool:
        """Whether a kill may be done: with strict_unclean_shutdown it counts as a loss where acks are early."""
        early = host.plan.ack_after == "write"
        return not (host.plan.strict and early) or self.may_lose(host)

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
        """In some cases the next start, or what follows it, is cut short: at one of its changes of files, or at a time
        after its begin or after its end."""
        if rng.random() >= self._plan.haunted:
            return
        strike = partial(
            self._lose_again if rng.random() < 0.5 else self._kill_again,
            host,
            random.Random(rng.getrandbits(48)),  # noqa: S311 - of a seed
        )
        when = rng.randrange(4)
        if when < 2:
            host.ambush.lay(rng.randint(1, rng.choice((8, 30, 120))), strike)
            return
        later = partial(self._later, rng.expovariate(1.0) * rng.choice((0.01, 0.1, 1.0)), strike)
        if when == 2:
            host.on_start = later
        else:
            host.on_up = later

    def _lose_again(self, host: Host, rng: random.Random) -> bool:
        return not self._over and self.lose_host(host, rng)

    def _kill_again(self, host: Host, rng: random.Random) -> bool:
        return not self._over and self.kill_bookie(host, rng)

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
        """A worker's, or the supervisor's, n-th change from now."""
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
        hosts = list(self._cluster.hosts.values())
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
        """It fails while it is used; somebody puts an empty one in its place later."""
        if not self.may_lose(host):
            return False
        disk = rng.choice(host.disks)
        disk.mounted = False
        self._later(rng.choice((0.1, 1.0, rng.uniform(1.0, 40.0))), self._replace, host, disk)
        self._later(0.0, self._haunt, host, rng)
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

    def swap_disks(self, host: Host, rng: random.Random) -> bool:
        """Two disks of the bookie, or one of it and one of another, until somebody notices."""
        if self._swapped:
            return False
        other = rng.choice(sorted(self._cluster.hosts))
        stranger = self._cluster.hosts[other]
        data = [disk for disk in host.disks if disk.root in host.indexes]
        if stranger is host:
            if len(data) < 2 or not self._crash_is_fine(host):
                return False
            host.kill("to swap disks")
            self._exchange(host, data[0], host, data[1])
            return True
        theirs = [disk for disk in stranger.disks if disk.root in stranger.indexes]
        if not (data and theirs and self._crash_is_fine(host) and self._crash_is_fine(stranger)):
            return False
        for each in (host, stranger):
            each.kill("to swap disks")
        self._exchange(host, data[0], stranger, theirs[0])
        self._swapped.append((host, data[0], stranger, theirs[0]))
        self._later(rng.uniform(5.0, 30.0), self._swap_back)
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

    def fail_sync(self, host: Host, rng: random.Random) -> bool:
        if not self.may_lose(host):
            return False
        disk = rng.choice(host.disks)
        disk.fail_syncs = 1
        if rng.random() < 0.5:  # a disk that fails often takes the host with it
            after = rng.choice((0.0, 0.001, 0.1, 1.0)) * rng.random()
            disk.on_failed_sync = lambda: self._later(after, self.lose_host, host, rng)
        self._later(rng.uniform(5.0, 60.0), host.kill, "to restart it after trouble with a disk")
        return True

    def fail_write(self, host: Host, rng: random.Random) -> bool:
        if not self.may_lose(host):
            return False
        rng.choice(host.disks).fail_appends = 1
        self._later(rng.uniform(5.0, 60.0), host.kill, "to restart it after trouble with a disk")
        return True

    def fail_reads(self, host: Host, rng: random.Random) -> bool:
        if not self.may_lose(host):  # a marker that cannot be read puts everything into limbo
            return False
        rng.choice(host.disks).fail_reads = rng.randint(1, 5)
        return True

    def fill_disk(self, host: Host, rng: random.Random) -> bool:
        disk = rng.choice(host.disks)
        disk.room = rng.choice((0, 100, 2000, 10000))
        self._later(rng.uniform(1.0, 40.0), setattr, disk, "room", None)
        return True

    def flip_bit(self, host: Host, rng: random.Random) -> bool:
        """Some bits of a disk. What is wrong is found when it is read: often the bookie starts again at once, and
        always where a repair is under way, which may have looked there already.
        """
        if not self.may_lose(host, for_good=True):
            return False
        suffix = rng.choice((LOG_SUFFIX, LOG_SUFFIX, "CHECKPOINT"))
        for _ in range(rng.choice((1, 3, 30))):
            what = rng.choice(host.disks).flip(rng, suffix)
            if what is not None:
                self._cluster.scheduler.say(host.name, "a bit of %s flips", what)
        if host.limbo() or rng.random() < 0.7:
            rng.choice((self.kill_bookie, self.lose_host))(host, rng)
        return True

    def strike_at_step(self, host: Host, rng: random.Random) -> bool:
        """What befalls the next bookie that takes a certain step of the protocol, just then."""
        kind = rng.choice(_AT_STEPS)
        after_s = rng.expovariate(1.0) * rng.choice((0.0, 0.01, 0.3))
        self._cluster.traps[rng.choice(STEPS)] = partial(self._strike, after_s, kind, rng)
        return True

    def _strike(self, after_s: float, kind: str, rng: random.Random, host: Host) -> None:
        now = self._machine.scheduler.now
        action = Action(now, kind, host.name, rng.getrandbits(48))
        self._later(after_s, self.do, action)

    # ---- network, metadata store, clocks ----------------------------------------------------------

    def cut_off(self, host: Host, rng: random.Random) -> bool:
        others = [name for name in self._names if name != host.name]
        cut = {(host.name, name) for name in others} | {(name, host.name) for name in others}
        self._cut(cut, rng)
        return True

    def cut_one_way(self, host: Host, rng: random.Random) -> bool:
        others = [name for name in self._names if name != host.name]
        chosen = rng.sample(others, rng.randint(1, len(others)))
        outwards = rng.random() < 0.5
        self._cut({(host.name, x) if outwards else (x, host.name) for x in chosen}, rng)
        return True

    def cut_link(self, host: Host, rng: random.Random) -> bool:
        """Between the host and one other."""
        clients = [name for name in self._names if name not in self._cluster.hosts]
        other = rng.choice([*(name for name in self._names if name != host.name), *clients * 3])
        self._cut({(host.name, other), (other, host.name)}, rng)
        return True

    def leak(self, host: Host, rng: random.Random) -> bool:
        """Some ways to and from the host lose much."""
        leaky = self._cluster.network.leaky
        for name in rng.sample(self._names, rng.randint(1, len(self._names))):
            way = (name, host.name) if rng.random() < 0.7 else (host.name, name)
            leaky[way] = rng.choice((0.1, 0.3, 0.7))
            self._later(rng.uniform(5.0, 60.0), leaky.pop, way, None)
        return True

    def garble(self, host: Host, rng: random.Random) -> bool:
        """What the bookie reads gets wrong on the way."""
        garbling = self._cluster.network.garbling
        garbling[host.name] = rng.choice((0.1, 0.5))
        self._later(rng.uniform(5.0, 60.0), garbling.pop, host.name, None)
        return True

    def _cut(self, cut: set[tuple[str, str]], rng: random.Random) -> None:
        self._cluster.network.cut_for(rng.uniform(1.0, 60.0), cut)

    def metadata_outage(self, host: Host, rng: random.Random) -> bool:
        truth = self._cluster.truth
        truth.down_until = truth.scheduler.now + rng.uniform(1.0, 30.0)
        return True

    def lose_answer(self, host: Host, rng: random.Random) -> bool:
        self._cluster.truth.lose_answers += 1
        return True

    def expire_session(self, host: Host, rng: random.Random) -> bool:
        for name, found in self._cluster.truth.registered.items():
            if name == host.name:
                found.lost_from = self._machine.scheduler.now
                found.lost_until = found.lost_from + rng.uniform(1.0, 90.0)
                return True
        return False

    def jump_clock(self, host: Host, rng: random.Random) -> bool:
        host.wall_offset_ms += rng.randint(-(10**8), 10**8)
        for worker in host.workers.values():
            worker.wall_offset_ms = host.wall_offset_ms
        return True

    def slow_links(self, host: Host, rng: random.Random) -> bool:
        """Some ways to and from the host are much slower than others."""
        slow = self._cluster.network.slow
        for name in rng.sample(self._names, rng.randint(1, len(self._names))):
            way = (name, host.name) if rng.random() < 0.7 else (host.name, name)
            slow[way] = rng.choice((0.1, 0.5, 1.0, 3.0))
            self._later(rng.uniform(5.0, 60.0), slow.pop, way, None)
        return True

    def slow_network(self, host: Host, rng: random.Random) -> bool:
        self._cluster.network.delay_s = (0.05, rng.choice((0.3, 1.0, 3.0)))
        self._later(rng.uniform(5.0, 30.0), self._usual_network)
        return True

    def _usual_network(self) -> None:
        self._cluster.network.delay_s = self._normal_delay

    # ---- the end --------------------------------------------------------------------------------

    def heal(self) -> None:
        """No fault acts any more, and whatever broke was replaced."""
        self._over = True
        cluster = self._cluster
        cluster.network.heal()
        cluster.traps.clear()
        cluster.network.delay_s = (0.0002, 0.001)
        cluster.truth.down_until = 0.0
        cluster.truth.lose_answers = 0
        cluster.truth.stale_s = 0.0
        for registration in cluster.truth.registered.values():
            registration.lost_until = 0.0
        self._swap_back()
        for host in cluster.hosts.values():
            host.crash_next_start = 0
            host.ambush.changes = 0
            host.on_start = host.on_up = None
            for disk in host.disks:
                self._replace(host, disk)
                disk.fail_syncs = disk.fail_appends = disk.fail_reads = 0
                disk.room = None
            for worker in host.workers.values():
                worker.files.crash_at(0)
            if any(
                worker.store is None or worker.store.failed_reason
                for worker in host.workers.values()
            ):
                host.kill("to restart it after trouble with a disk")


def is_settled(host: Host) -> bool:
    """Whether it runs, with all its disks, no fault is about to act and nothing is in limbo."""
    return (
        host.is_up
        and len(host.workers) == len(host.config.disks)
        and all(
            not worker.process.dead
            and worker.store is not None
            and worker.store.failed_reason is None
            for worker in host.workers.values()
        )
        and all(
            disk.mounted and not (disk.fail_syncs or disk.fail_appends or disk.fail_reads)
            for disk in host.disks
        )
        and host.supervisor is not None
        and all(disk.settled for disk in host.supervisor.disks)
        and not host.limbo()
    )


KINDS: dict[str, Callable[[Faults, Host, random.Random], bool]] = {
    "kill a bookie": Faults.kill_bookie,
    "kill a worker": Faults.kill_worker,
    "kill a front-end": Faults.kill_frontend,
    "kill a repair worker": Faults.kill_repair,
    "kill in the middle of a write": Faults.kill_in_write,
    "lose a host": Faults.lose_host,
    "lose all hosts": Faults.lose_all,
    "stop a bookie": Faults.stop_bookie,
    "lose a disk": Faults.lose_disk,
    "replace a disk by an empty one": Faults.replace_disk,
    "swap disks": Faults.swap_disks,
    "fail a sync": Faults.fail_sync,
    "fail a write": Faults.fail_write,
    "fail reads": Faults.fail_reads,
    "fill a disk": Faults.fill_disk,
    "flip a bit": Faults.flip_bit,
    "cut off a host": Faults.cut_off,
    "cut one way": Faults.cut_one_way,
    "cut a link": Faults.cut_link,
    "lossy links": Faults.leak,
    "wrong bits on the way": Faults.garble,
    "metadata outage": Faults.metadata_outage,
    "lose an answer of the metadata store": Faults.lose_answer,
    "expire a session": Faults.expire_session,
    "jump a clock": Faults.jump_clock,
    "strike at a step": Faults.strike_at_step,
    "slow links": Faults.slow_links,
    "slow network": Faults.slow_network,
}
