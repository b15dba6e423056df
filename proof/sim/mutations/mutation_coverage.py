"""Mutation coverage: every safety measure is switched off in turn, and seeds are run until one fails."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from proof.checks.check import Violation
from proof.sim.mutations.safety_mutations import BY_NAME
from proof.sim.plan.schedule import plan_of
from proof.sim.run.simulation import run


@dataclass(frozen=True, slots=True)
class Catch:
    """``seeds``: how many were run; ``seed``: the last of them, which failed, and its failure; ``cpu_s``: processor
    time."""

    name: str
    seeds: int
    seed: int | None
    cpu_s: float
    violation: Violation | None


def catches(names: Iterable[str], first: int, seeds: int, jobs: int) -> Iterator[Catch]:
    """One result for each name, in their order: with that measure switched off, at most ``seeds`` seeds from ``first``
    on."""
    orders = [(name, first, seeds) for name in names]
    if jobs == 1:
        yield from map(_catch, orders)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context) as pool:
        yield from pool.map(_catch, orders)


def _catch(order: tuple[str, int, int]) -> Catch:
    name, first, seeds = order
    began = time.process_time()
    violation = None
    done = 0
    with BY_NAME[name].applied():
        while violation is None and done < seeds:
            violation = run(plan_of(first + done)).violation
            done += 1
    seed = None if violation is None else first + done - 1
    return Catch(name, done, seed, time.process_time() - began, violation)
