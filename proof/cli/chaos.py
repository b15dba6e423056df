"""``bkbox chaos``: a cluster of real processes that is hurt under load, and the judge of its history."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints, size
from bkbox.cli.lib.signals import end_in_order
from bkbox.errors import ChaosError
from proof.chaos import tmpfs
from proof.chaos.cluster import Cluster, Keep, Plan, free_bytes
from proof.chaos.history import History, in_order
from proof.chaos.history_checker import Verdict, check_history
from proof.chaos.run import Order, Progress, run
from proof.chaos.schedule import BY_NAME, FAULTS, Fault
from proof.cli.format_chaos import CheckResult, print_verdict

_HISTORY = "history.jsonl"
_TEXT_INTERVAL_S = 10.0
_SPACE_BYTES_PER_MINUTE = 40 << 20
_SPACE_BYTES = 500 << 20


@dataclass(frozen=True, slots=True)
class FaultName:
    """A kind of fault, and what it is."""

    name: str
    what: str


@click.group(invoke_without_command=True)
@click.option(
    "--minutes",
    type=click.FloatRange(0.0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long there are faults.",
)
@click.option(
    "--seed", type=click.IntRange(0), help="Of faults and load [default: drawn anew, and printed]."
)
@click.option(
    "--bookies",
    type=click.IntRange(2, 16),
    default=3,
    show_default=True,
    help="How many bookies there are.",
)
@click.option(
    "--disks", type=click.IntRange(1, 8), default=2, show_default=True, help="Of each bookie."
)
@click.option(
    "--ack-after",
    type=click.Choice(["sync", "write", "journal"]),
    default="write",
    show_default=True,
    help="When the bookies acknowledge an entry.",
)
@click.option(
    "--fault",
    "names",
    multiple=True,
    type=click.Choice(list(BY_NAME)),
    metavar="NAME",
    help="Only this kind of fault; repeatable [default: all].",
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two faults, on average.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"Work in this new folder; {_HISTORY} and the bookies' logs stay there.",
)
@click.option("--keep", is_flag=True, help="Keep the disks, too.")
@click.option("--list-faults", is_flag=True, help="Print the kinds of faults, one a line.")
@output_option
@prints(CheckResult, list[FaultName])
@click.pass_context
def chaos(
    ctx: click.Context,
    *,
    minutes: float,
    seed: int | None,
    bookies: int,
    disks: int,
    ack_after: str,
    names: tuple[str, ...],
    every_s: float,
    folder: Path | None,
    keep: bool,
    list_faults: bool,
    output: Format,
) -> None:
    """Run a cluster here, under load, hurt it in many ways, and see that nothing acknowledged is lost.

    Processes are killed and stopped, networks cut, disks filled and taken away, the metadata store is
    made unavailable: never more at once than may be without a loss. In the end everything is read,
    and the history of all that clients did and were told is judged. Exits with 0 if nothing was lost,
    with 1 if something did not hold. Listens on addresses of this host only, and leaves nothing behind
    but what --dir and --keep name, and what is needed to look into a loss.

    \b
    Example:
      bkbox chaos --minutes 5 --dir chaos
      bkbox chaos --minutes 1 --fault kill-worker --fault lost-disk
      bkbox chaos check chaos/history.jsonl
    """
    if ctx.invoked_subcommand is not None:
        return
    if list_faults:
        _list_faults(output)
        return
    end_in_order()
    objection = tmpfs.own_namespace()
    faults = _faults(names, objection)
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    click.echo(f"seed {seed}", err=output != "table")
    order = Order(seed, minutes * 60, every_s, faults)
    plan = Plan(bookies, disks, ack_after)
    root = Path(tempfile.mkdtemp(prefix="bkbox-chaos-")) if folder is None else folder.absolute()
    keeps: Keep = "all" if keep else "nothing" if folder is None else "history"
    verdict = _run(root, plan, order, keeps, with_tmpfs=objection is None)
    print_verdict(verdict, output)
    if keeps != "nothing" or verdict.violations:
        message(f"the history is in {root / _HISTORY}")
    ctx.exit(ExitCode.FAILED if verdict.violations else ExitCode.OK)


@chaos.command()
@click.argument("history", type=click.Path(path_type=Path))
@output_option
@prints(CheckResult)
@click.pass_context
def check(ctx: click.Context, history: Path, output: Format) -> None:
    """Judge the HISTORY of a run once more. Exits with 0 if nothing was lost, or with 1.

    \b
    Example:
      bkbox chaos check chaos/history.jsonl
    """
    verdict = check_history(in_order(history))
    print_verdict(verdict, output)
    ctx.exit(ExitCode.FAILED if verdict.violations else ExitCode.OK)


def _list_faults(output: Format) -> None:
    if output != "table":
        print_document([asdict(FaultName(fault.name, fault.what)) for fault in FAULTS], output)
        return
    width = max(len(fault.name) for fault in FAULTS)
    for fault in FAULTS:
        click.echo(f"{fault.name.ljust(width)}  {fault.what}")


def _faults(names: Iterable[str], objection: str | None) -> tuple[Fault, ...]:
    """The faults that were asked for and can be injected here."""
    chosen = [BY_NAME[name] for name in dict.fromkeys(names)] or list(FAULTS)
    if objection is not None and BY_NAME["full-disk"] in chosen:
        message(f"full-disk is left out: {objection}")
        chosen.remove(BY_NAME["full-disk"])
    return tuple(chosen)


def _run(root: Path, plan: Plan, order: Order, keep: Keep, *, with_tmpfs: bool) -> Verdict:
    rng = random.Random()  # noqa: S311 - ports
    with Cluster(root, plan, rng, keep, with_tmpfs=with_tmpfs) as cluster:
        needed = _SPACE_BYTES + int(_SPACE_BYTES_PER_MINUTE * order.seconds / 60)
        if free_bytes(cluster.root) < needed:
            raise ChaosError(
                f"about {size(needed)} are needed in {root}: choose another with --dir"
            )
        history = History(cluster.root / _HISTORY, time.time)
        history.note(
            "run",
            seed=order.seed,
            bookies=plan.bookies,
            disks=plan.disks,
            ack_after=plan.ack_after,
            faults=[fault.name for fault in order.faults],
            start=history.start,
        )
        try:
            asyncio.run(run(cluster, order, history, _Line(order.seconds)))
        finally:
            history.close()
            _Line.end()
        message("judging the history")
        verdict = check_history(in_order(history.path))
        if verdict.violations:
            cluster.keep = "all"
        return verdict


class _Line:
    """The progress: one line that changes at a terminal, a line now and then elsewhere."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._shown = -_TEXT_INTERVAL_S

    def __call__(self, progress: Progress, history: History) -> None:
        counts = history.counts
        text = (
            f"{_clock(progress.seconds)} of {_clock(self._seconds)}, {progress.phase}:  "
            f"adds {counts['add']:,}  reads {counts['found']:,}  recoveries {counts['recover']:,}  "
            f"faults {counts['fault']:,}  limbo {progress.limbo}  {progress.last_fault}"
        )
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r{text[:width].ljust(width)}", nl=False, err=True)
        elif progress.seconds - self._shown >= _TEXT_INTERVAL_S:
            self._shown = progress.seconds
            click.echo(text.rstrip(), err=True)

    @staticmethod
    def end() -> None:
        if sys.stderr.isatty():
            click.echo(err=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
