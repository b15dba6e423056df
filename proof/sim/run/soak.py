"""Runs many seeds one after the other, and sums their results."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from proof.sim.faults.kinds import KINDS
from proof.sim.plan.schedule import Plan, plan_of
from proof.sim.run.simulation import Outcome, run


@dataclass(slots=True)
class Tally:
    """Sums over the runs so far; ``cpu_s``: processor time, ``seconds``: simulated time."""

    seeds: int = 0
    cpu_s: float = 0.0
    seconds: float = 0.0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def join(self, other: Tally) -> None:
        """Adds the sums of another process."""
        self.seeds += other.seeds
        self.cpu_s += other.cpu_s
        self.seconds += other.seconds
        self.events += other.events
        self.counts += other.counts

    def add(self, outcome: Outcome, cpu_s: float) -> None:
        self.seeds += 1
        self.cpu_s += cpu_s
        self.seconds += outcome.seconds
        self.events += outcome.events
        self.counts += outcome.counts

    @property
    def crashes(self) -> int:
        """Deaths of processes and hosts, and starts."""
        return self.counts["crashes"]

    def rows(self) -> Iterator[tuple[str, str]]:
        """The sums as text for output."""
        cpu_s = max(self.cpu_s, 1e-9)
        yield "seeds", f"{self.seeds:,}"
        yield "simulated hours", f"{self.seconds / 3600:,.1f}"
        yield "processor seconds", f"{self.cpu_s:,.1f}"
        yield "simulated hours per minute", f"{self.seconds / 60 / cpu_s:,.1f}"
        yield "simulated seconds per processor second", f"{self.seconds / cpu_s:,.0f}"
        yield "events", f"{self.events:,}"
        yield "events per processor second", f"{self.events / cpu_s:,.0f}"
        yield "crashes of processes and hosts", f"{self.crashes:,}"
        for name in sorted({*KINDS, "kill a client"} & self.counts.keys()):
            yield f"fault: {name}", f"{self.counts[name]:,}"
        for name in sorted(self.counts.keys() - KINDS.keys() - {"crashes", "kill a client"}):
            yield name, f"{self.counts[name]:,}"


@dataclass(frozen=True, slots=True)
class Failure:
    """The first seed that failed."""

    plan: Plan
    outcome: Outcome


def soak(first: int, goes_on: Callable[[int], bool], tally: Tally, step: int = 1) -> Failure | None:
    """Runs the seeds from ``first`` on, in steps, while ``goes_on`` returns True; its argument is the number of seeds
    run."""
    seed = first
    while goes_on(tally.seeds):
        plan = plan_of(seed)
        began = time.process_time()
        outcome = run(plan)
        tally.add(outcome, time.process_time() - began)
        if outcome.violation is not None:
            return Failure(plan, outcome)
        seed += step
    return None


def soak_together(
    first: int, seeds: int | None, minutes: float | None, jobs: int
) -> tuple[Tally, Failure | None]:
    """The same in several processes, which share out the seeds. All of them run to their end; the failure is that of
    the lowest seed that any of them found."""
    context = multiprocessing.get_context("spawn")
    orders = [
        (first + job, None if seeds is None else -(-(seeds - job) // jobs), minutes, jobs)
        for job in range(jobs)
    ]
    with ProcessPoolExecutor(jobs, context) as pool:
        results = list(pool.map(_one_of_several, orders))
    tally = Tally()
    for each, _ in results:
        tally.join(each)
    failures = [failure for _, failure in results if failure is not None]
    return tally, min(failures, key=lambda failure: failure.plan.seed, default=None)


def _one_of_several(
    order: tuple[int, int | None, float | None, int],
) -> tuple[Tally, Failure | None]:
    first, seeds, minutes, step = order
    return soak_for(first, seeds, minutes, step)


def soak_for(
    first: int, seeds: int | None, minutes: float | None, step: int = 1
) -> tuple[Tally, Failure | None]:
    """Runs ``seeds`` seeds, or as many as fit into ``minutes``; None: no bound."""
    tally = Tally()
    end = None if minutes is None else time.monotonic() + minutes * 60

    def goes_on(done: int) -> bool:
        return (seeds is None or done < seeds) and (end is None or time.monotonic() < end)

    return tally, soak(first, goes_on, tally, step)
