"""One simulation, from the plan to the verdict.

Faults act for FAULTS_S simulated seconds. Then they cease, and the cluster has QUIESCENCE_S to become quiescent: every
bookie runs, nothing is in limbo and nothing is marked for re-replication. At last a client, the judge, closes and reads
every ledger, and the checks tell if all is there.
"""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from dataclasses import dataclass

from proof.checks.all import all_checks
from proof.checks.check import Violation
from proof.checks.observer import Observer
from proof.checks.readable import JUDGE
from proof.checks.replication import Replication
from proof.sim.faults.faults import Faults, is_quiescent
from proof.sim.faults.kinds import KINDS
from proof.sim.plan.schedule import FAULTS_S, Action, Plan
from proof.sim.run.workload import Ledgers, SimClient
from proof.sim.world.environment import installed
from proof.sim.world.host import Cluster, Host
from proof.sim.world.loop import Process, Scheduler
from proof.sim.world.metadata import StoreState
from proof.sim.world.network import Network
from proof.sim.world.supervisor import SimSupervisor

INIT_S = 20.0
QUIESCENCE_S = 900.0

_SWEEP_S = 20.0
_SWEEP_DEATHS = 1000

Trace = list[tuple[float, str, str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run; ``seconds`` are simulated ones."""

    violation: Violation | None
    seconds: float
    events: int
    counts: Counter[str]
    trace: Trace | None


def run(plan: Plan, *, traced: bool = False) -> Outcome:
    """Executes a plan."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()  # permanent objects need no collection after every run
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _Run(plan, traced=traced).outcome()
    finally:
        gc.enable()


class _Run:
    def __init__(self, plan: Plan, *, traced: bool) -> None:
        self._plan = plan
        self._scheduler = scheduler = Scheduler(plan.seed, traced=traced)
        self._observer = Observer([*all_checks(), Replication()], self._violated)
        counts: Counter[str] = Counter()
        network = Network(scheduler, counts)
        network.delay_s, network.in_order = plan.delay_s, plan.in_order
        truth = StoreState(scheduler, self._observer)
        self._cluster = Cluster(scheduler, network, truth, self._observer)
        self._cluster.counts = counts
        self._cluster.background_jobs = plan.background_jobs
        self._machine = Process(scheduler, "machine")
        for host_plan in plan.hosts:
            self._cluster.hosts[host_plan.name] = Host(
                self._cluster, host_plan, self._machine, SimSupervisor
            )
        self._clients = {
            name: SimClient(self._cluster, plan, name) for name in (*plan.clients, JUDGE)
        }
        names = (*self._cluster.hosts, *plan.clients)
        self._faults = Faults(self._cluster, plan, self._machine, names, KINDS)
        self._died = 0
        self._ledgers = Ledgers()
        self._ledgers.clients = self._clients

    def _violated(self, violation: Violation) -> None:
        self._scheduler.note("check", "VIOLATED: %s", violation)
        self._scheduler.stopped = True

    def outcome(self) -> Outcome:
        scheduler = self._scheduler
        with installed(self._cluster, syncs_at_once=self._plan.syncs_at_once):
            try:
                self._initialise()
                self._misbehave()
                self._quiesce()
                self._check()
            finally:
                scheduler.discard()
        violation = self._observer.violation
        if violation is None and scheduler.failures:
            violation = Violation("no defects", scheduler.failures[0])
        return Outcome(
            violation, scheduler.now, scheduler.events, self._cluster.counts, scheduler.trace
        )

    @property
    def _goes_on(self) -> bool:
        return not self._scheduler.stopped and not self._scheduler.failures

    def _initialise(self) -> None:
        hosts = self._cluster.hosts.values()
        for host in hosts:
            process = host.process("init")
            process.run_task(host.initialise(process))
        self._scheduler.run(INIT_S / 2)
        for host in hosts:
            host.start()
        self._scheduler.run(INIT_S, lambda: all(host.is_up for host in hosts))
        if self._goes_on and not all(host.is_up for host in hosts):
            self._observer.fail("liveness", "a bookie does not start for the first time")

    def _misbehave(self) -> None:
        scheduler, network, plan = self._scheduler, self._cluster.network, self._plan
        begin = scheduler.now
        network.loss, network.double = plan.loss, plan.double
        self._cluster.truth.stale_s = plan.stale_s
        self._cluster.truth.delay_s = plan.metadata_s
        for action in plan.actions:
            scheduler.at(begin + action.at, self._machine, self._do, (action,))
        while self._goes_on and scheduler.now < begin + FAULTS_S:
            scheduler.run(min(scheduler.now + _SWEEP_S, begin + FAULTS_S))
            self._sweep()

    def _sweep(self) -> None:
        """Frees the memory of dead processes, now and then."""
        died = self._cluster.counts["processes that died"]
        if died - self._died > _SWEEP_DEATHS:
            self._died = died
            gc.collect()

    def _do(self, action: Action) -> None:
        if action.kind in KINDS:
            self._faults.do(action)
        elif action.kind == "kill a client":
            self._cluster.counts.update((action.kind, "crashes"))
            self._clients[action.who].kill()
        else:
            self._clients[action.who].do(action, self._ledgers)

    def _quiesce(self) -> None:
        if not self._goes_on:
            return
        scheduler, hosts = self._scheduler, self._cluster.hosts
        scheduler.note("machine", "faults cease")
        self._faults.heal()
        for name in self._plan.clients:
            self._clients[name].process.die("it is not needed any more")
        end = scheduler.now + QUIESCENCE_S
        while self._goes_on and scheduler.now < end:
            scheduler.run(scheduler.now + 2.0)
            if all(map(is_quiescent, hosts.values())) and not self._marked:
                return
        if self._goes_on:
            left = [
                f"{name} ({', '.join(map(str, host.limbo())) or 'not settled'} in limbo)"
                for name, host in hosts.items()
                if not is_quiescent(host)
            ]
            left += [f"ledger {ledger} is marked for re-replication" for ledger in self._marked]
            self._observer.fail(
                "liveness", f"after {QUIESCENCE_S:g} s not at rest: {', '.join(left)}"
            )

    @property
    def _marked(self) -> list[int]:
        """Ledgers still marked as under-replicated."""
        return sorted(self._cluster.truth.marks.marks)

    def _check(self) -> None:
        if not self._goes_on:
            return
        checker = self._clients[JUDGE]
        scheduler = self._scheduler
        done: list[bool] = []
        checker.do(Action(scheduler.now, "judge", JUDGE, 0), self._ledgers)
        (task,) = checker.tasks
        task.add_done_callback(lambda _task: done.append(True))
        scheduler.run(scheduler.now + QUIESCENCE_S, lambda: bool(done))
        if self._goes_on and not done:
            self._observer.fail("liveness", "a ledger cannot be closed and read in the end")
        elif self._goes_on:
            self._observer.finished()
