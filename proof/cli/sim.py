"""``bkbox sim``: the whole of bkbox under a simulator, one seed after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict

import click

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.output import Format, output_option, print_document, print_fields, prints
from proof.cli.format_sim import (
    BreakName,
    Broken,
    EveryBreak,
    Simulated,
    happened,
    show_broken,
    show_trace,
    totals,
)
from proof.sim.mutations.mutation_coverage import catches
from proof.sim.mutations.safety_mutations import BREAKS, BY_NAME
from proof.sim.plan.schedule import plan_of
from proof.sim.run import shrink as shrinking
from proof.sim.run.simulation import run
from proof.sim.run.soak import Failure, Tally, soak_for, soak_together

_SHRINK_TRIES = 150
_SHRINK_S = 120.0


@click.command()
@click.option("--seeds", type=click.IntRange(1), help="How many seeds to run [default: 10].")
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="The first one [default: drawn anew, and printed]. Alone: this one.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.0, min_open=True),
    help="Run seeds for so long, and at most --seeds; making a schedule shorter counts.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many processes share out the seeds.",
)
@click.option(
    "--break",
    "broken",
    metavar="NAME",
    type=click.Choice(list(BY_NAME)),
    help="Switch one safety measure off: the simulation has to notice.",
)
@click.option(
    "--every-break",
    is_flag=True,
    help="Switch every safety measure off in turn, and say which seed notices.",
)
@click.option("--list-breaks", is_flag=True, help="Print the names for --break, one a line.")
@click.option(
    "--shrink/--no-shrink", default=True, help="Make the schedule of a seed that fails shorter."
)
@click.option("--trace", is_flag=True, help="Print all that happens in the seed that --seed names.")
@output_option
@prints(Simulated, EveryBreak, list[BreakName])
@click.pass_context
def sim(
    ctx: click.Context,
    *,
    seeds: int | None,
    seed: int | None,
    minutes: float | None,
    jobs: int,
    broken: str | None,
    every_break: bool,
    list_breaks: bool,
    shrink: bool,
    trace: bool,
    output: Format,
) -> None:
    """Run a simulated cluster: clients, bookies, disks, network and metadata store, all decided by a seed.

    Messages are lost, doubled, late and out of order; processes and hosts crash; disks fail, fill up,
    are lost and come back as others; the metadata store is away. Clients write, recover, read and
    delete. What must hold is checked all the time. A seed that fails is run again with a trace, and
    with as few actions as will do. Exits with 0, or with 1 if something did not hold.

    \b
    Example:
      bkbox sim --seeds 100
      bkbox sim --seed 42
      bkbox sim --seeds 100 --break no-limbo
      bkbox sim --seed 1 --seeds 200 --every-break
    """
    if list_breaks:
        _list_breaks(output)
        return
    first = shrinking.fresh_seed() if seed is None else seed
    if broken is not None and jobs > 1:
        raise click.UsageError("--break is for one process: leave --jobs out")
    if every_break and (broken is not None or minutes is not None or trace):
        raise click.UsageError("--every-break goes with --seed, --seeds and --jobs only")
    if seeds is None and minutes is None:
        seeds = 1 if seed is not None else 10
    if every_break:
        ctx.exit(_break_all(first, seeds or 1, jobs, output))
    goes_on = _for_so_long(minutes)
    with BY_NAME[broken].applied() if broken is not None else contextlib.nullcontext():
        traced = happened(run(plan_of(first), traced=True).trace) if trace else None
        if output == "table":
            show_trace(traced or [])
        tally, failure = _soak(first, seeds, minutes, jobs, output)
        found = None
        if failure is not None:
            found = _explain(failure, broken, goes_on if shrink else None, output)
    if output != "table":
        print_document(asdict(Simulated(first, totals(tally), found, traced)), output)
    elif found is not None:
        show_broken(found)
    ctx.exit(ExitCode.OK if found is None else ExitCode.FAILED)


def _list_breaks(output: Format) -> None:
    if output != "table":
        print_document([asdict(BreakName(each.name, each.words)) for each in BREAKS], output)
        return
    for each in BREAKS:
        click.echo(each.name)


def _break_all(first: int, seeds: int, jobs: int, output: Format) -> ExitCode:
    """A line for each break as it comes; FAILED if one was not noticed."""
    err = output != "table"
    found = []
    for each in catches(BY_NAME, first, seeds, jobs):
        when = f"not noticed by {seeds} seeds" if each.seed is None else f"seed {each.seed}"
        line = f"{each.name:28}  {when}, {each.cpu_s:.0f} s  {each.violation or ''}"
        click.echo(line, err=err)
        found.append(each)
    noticed = sum(each.seed is not None for each in found)
    click.echo(f"{noticed} of {len(found)} are noticed", err=err)
    if output != "table":
        print_document(asdict(EveryBreak(first, seeds, found)), output)
    return ExitCode.OK if noticed == len(found) else ExitCode.FAILED


def _for_so_long(minutes: float | None) -> Callable[[int], bool]:
    """True if shrinking goes on, by the minutes that are left and its own bounds."""
    end = None if minutes is None else time.monotonic() + minutes * 60
    began: list[float] = []

    def goes_on(tries: int) -> bool:
        now = time.monotonic()
        if not began:
            began.append(now)
        return tries < _SHRINK_TRIES and now < began[0] + _SHRINK_S and (end is None or now < end)

    return goes_on


def _soak(
    first: int, seeds: int | None, minutes: float | None, jobs: int, output: Format
) -> tuple[Tally, Failure | None]:
    click.echo(f"seed {first}", err=output != "table")
    if jobs == 1:
        tally, failure = soak_for(first, seeds, minutes)
    else:
        tally, failure = soak_together(first, seeds, minutes, jobs)
    if output == "table":
        print_fields(list(tally.rows()))
    return tally, failure


def _explain(
    failure: Failure, broken: str | None, goes_on: Callable[[int], bool] | None, output: Format
) -> Broken:
    """The schedule that leads to the violation, shortened as long as ``goes_on`` says so, and what happens with it."""
    violation, plan = failure.outcome.violation, failure.plan
    assert violation is not None
    click.echo(f"broken: seed {plan.seed}: {violation}", err=output != "table")
    if goes_on is not None:
        plan = shrinking.shrink(plan, violation.name, goes_on)
    outcome = run(plan, traced=True)
    with_break = "" if broken is None else f" --break {broken}"
    return Broken(
        seed=plan.seed,
        violation=violation,
        planned=len(failure.plan.actions),
        actions=plan.actions,
        violation_then=outcome.violation,
        trace=happened(outcome.trace),
        again=f"bkbox sim --seed {plan.seed}{with_break}",
    )
