"""The results of ``bkbox sim``, as documents and as text."""

from __future__ import annotations

from dataclasses import dataclass

import click

from proof.checks.check import Violation
from proof.sim.mutations.mutation_coverage import Catch
from proof.sim.plan.schedule import Action
from proof.sim.run.simulation import Trace
from proof.sim.run.soak import Tally


@dataclass(frozen=True, slots=True)
class FaultCounts:
    """``at``: in simulated seconds."""

    at: float
    who: str
    what: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the seeds that were run; ``cpu_s``: processor time, ``seconds``: simulated time, ``counts``: faults by
    their kind, and what else was counted."""

    seeds: int
    cpu_s: float
    seconds: float
    events: int
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Broken:
    """The first seed that failed, and how. ``actions``: those of ``planned`` that are enough; ``violation_then`` and
    ``trace``: what comes of them alone; ``again``: the command that runs the seed again."""

    seed: int
    violation: Violation
    planned: int
    actions: tuple[Action, ...]
    violation_then: Violation | None
    trace: list[FaultCounts]
    again: str


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of the seeds from ``seed`` on. ``broken``: None where all held; ``trace``: of ``seed``, with
    --trace."""

    seed: int
    totals: Totals
    broken: Broken | None
    trace: list[FaultCounts] | None


@dataclass(frozen=True, slots=True)
class EveryBreak:
    """The safety measures, and the first of at most ``seeds`` seeds from ``seed`` on that fails without each."""

    seed: int
    seeds: int
    breaks: list[Catch]


@dataclass(frozen=True, slots=True)
class BreakName:
    """A safety measure, and what it is to switch it off."""

    name: str
    words: str


def totals(tally: Tally) -> Totals:
    """Totals of the seeds that were run."""
    counts = dict(sorted(tally.counts.items()))
    return Totals(tally.seeds, tally.cpu_s, tally.seconds, tally.events, counts)


def happened(trace: Trace | None) -> list[FaultCounts]:
    """A trace as a document; empty where there was none."""
    return [FaultCounts(*each) for each in trace or ()]


def show_trace(trace: list[FaultCounts]) -> None:
    """A line for each event."""
    for each in trace:
        click.echo(f"  {each.at:10.4f}  {each.who:22}  {each.what}")


def show_broken(broken: Broken) -> None:
    """The schedule, what happened, and how it is run again."""
    click.echo(f"{len(broken.actions)} of {broken.planned} actions are enough:")
    for action in broken.actions:
        click.echo(f"  {action}")
    click.echo("what happened:")
    show_trace(broken.trace)
    click.echo(f"broken: {broken.violation_then}")
    click.echo(f"again: {broken.again}")
