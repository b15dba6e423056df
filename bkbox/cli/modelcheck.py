"""``bkbox model-check``: look at every state of the limbo model. Scripts rely on the first line and the exit code."""

from __future__ import annotations

import click

from bkbox.cli.exits import ExitCode
from bkbox.cli.output import message
from bkbox.host.files import HostFiles
from bkbox.model.options import (
    AS_PUBLISHED,
    WINDOWS,
    Clearing,
    Corrections,
    Loss,
    Marks,
    Options,
)
from bkbox.model.search import Result, Statistics, search
from bkbox.model.termination import closable
from bkbox.values import replaced

_CORRECTIONS = {
    "D3": "fragments_at_close",
    "D4": "timeouts_of_the_read",
    "D5": "lac_counts",
    "D9": "answers_have_ids",
    "first-holder": "first_holder",
}
_STATE_BYTES = 56
"""What a state takes at most, while the table of those that were seen grows (bkbox/kernel/exploration.py)."""

_WINDOWS = {status.value: status for status in WINDOWS}


@click.command("model-check")
@click.option(
    "--bookies",
    type=click.IntRange(1, 4),
    default=2,
    show_default=True,
    help="Where it is the write quorum, there are no ensemble changes.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, 3),
    default=2,
    show_default=True,
    help="Any of them may become the writer, any other may recover.",
)
@click.option(
    "--write-quorum",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Copies of an entry, and size of an ensemble.",
)
@click.option(
    "--ack-quorum",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Copies that acknowledge it.",
)
@click.option(
    "--sends",
    type=click.IntRange(1, 4),
    default=1,
    show_default=True,
    help="Entries that the writer may send.",
)
@click.option(
    "--crashes",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="How many in a behaviour.",
)
@click.option(
    "--window",
    "windows",
    type=click.Choice(list(_WINDOWS)),
    multiple=True,
    help="Crash only while the ledger is so; more than once for more [default: at any time].",
)
@click.option(
    "--as-published", is_flag=True, help="Without the corrections D3, D4, D5, D9 and first-holder."
)
@click.option("--no-fence", is_flag=True, help="An unclean boot does not fence the ledger.")
@click.option("--no-limbo", is_flag=True, help="An unclean boot does not put it into limbo.")
@click.option(
    "--marks",
    type=click.Choice([marks.value for marks in Marks]),
    default=Marks.ALL.value,
    show_default=True,
    help="Which ledgers it fences and puts into limbo: all, those that are not closed, or by bkbox's own rule.",
)
@click.option("--unnoticed", is_flag=True, help="An unclean shutdown may be taken for a clean one.")
@click.option("--durable-fence", is_flag=True, help="A fence is durable before it is answered.")
@click.option(
    "--clear-limbo",
    type=click.Choice([clearing.value for clearing in Clearing]),
    default=Clearing.NEVER.value,
    show_default=True,
    help="When limbo may be cleared.",
)
@click.option("--process-crash", is_flag=True, help="A crash keeps what the bookie has stored.")
@click.option(
    "--disk-loss", is_flag=True, help="A crash takes one of two disks; the ledger is on one."
)
@click.option("--no-message-loss", is_flag=True, help="Only a crash loses messages.")
@click.option(
    "--no-recovery-fence", is_flag=True, help="Recovery reads do not fence (a defect of 4.13)."
)
@click.option(
    "--no-lac-floor",
    is_flag=True,
    help="A recovery may start before the last fragment (a defect of 4.13).",
)
@click.option("--early-reads", is_flag=True, help="D6: a recovery read ends as soon as it can.")
@click.option(
    "--per-client", is_flag=True, help="D7: timeouts and the order of adds are those of one client."
)
@click.option(
    "--failed-reads", is_flag=True, help="D8: a recovery whose read ends neither way fails."
)
@click.option(
    "--without",
    type=click.Choice(list(_CORRECTIONS)),
    multiple=True,
    help="Leave out a correction of the published model; more than once for more.",
)
@click.option(
    "--fold",
    is_flag=True,
    help="Count states as one that differ in the names of clients only; in those of bookies too, where "
    "every ensemble has all of them.",
)
@click.option(
    "--termination",
    type=click.IntRange(1),
    metavar="LIMBO",
    help="Instead: can any recovery close the ledger with so many bookies in limbo?",
)
@click.option(
    "--states-max",
    type=click.IntRange(1),
    help="Give up after so many distinct states [default: as many as there is memory for].",
)
@click.option("-v", "--verbose", is_flag=True, help="Show how far it is, on standard error.")
@click.pass_context
def model_check(
    ctx: click.Context,
    *,
    bookies: int,
    clients: int,
    write_quorum: int,
    ack_quorum: int,
    sends: int,
    crashes: int,
    windows: tuple[str, ...],
    as_published: bool,
    no_fence: bool,
    no_limbo: bool,
    marks: str,
    unnoticed: bool,
    durable_fence: bool,
    clear_limbo: str,
    process_crash: bool,
    disk_loss: bool,
    no_message_loss: bool,
    no_recovery_fence: bool,
    no_lac_floor: bool,
    early_reads: bool,
    per_client: bool,
    failed_reads: bool,
    without: tuple[str, ...],
    fold: bool,
    termination: int | None,
    states_max: int | None,
    verbose: bool,
) -> None:
    """Look at every state of a model of one ledger, bookies that forget, and recoveries.

    Prints 'safe: …' and exits 0, or 'broken: …' with the shortest way there and exits 1.

    \b
    Example:
      bkbox model-check --no-limbo
    """
    if process_crash and disk_loss:
        raise click.UsageError("--process-crash and --disk-loss exclude each other")
    corrections = replaced(
        AS_PUBLISHED if as_published else Corrections(),
        early_reads=early_reads,
        per_client=per_client,
        failed_reads=failed_reads,
        **{_CORRECTIONS[name]: False for name in without},
    )
    options = Options(
        bookies=bookies,
        clients=clients,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        sends=sends,
        crashes=crashes,
        windows=tuple(_WINDOWS[name] for name in windows) or WINDOWS,
        fence=not no_fence,
        limbo=not no_limbo,
        marks=Marks(marks),
        unnoticed=unnoticed,
        durable_fence=durable_fence,
        clearing=Clearing(clear_limbo),
        loss=Loss.PROCESS if process_crash else Loss.DISK if disk_loss else Loss.BOOKIE,
        message_loss=not no_message_loss,
        recovery_reads_fence=not no_recovery_fence,
        lac_floor=not no_lac_floor,
        corrections=corrections,
    )
    progress = _Progress() if verbose else _nothing
    if termination is not None:
        ctx.exit(_answer_termination(closable(options, termination, progress=progress)))
    most = states_max or _room(HostFiles())
    ctx.exit(_answer(search(options, fold=fold, states_max=most, progress=progress)))


def _room(host: HostFiles) -> int | None:
    """How many states there is memory for; None where the system does not say."""
    for line in host.lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return max(1, int(value.split()[0]) * 1024 // _STATE_BYTES)
    return None


def _answer(result: Result) -> ExitCode:
    if result.broken:
        click.echo(f"broken: {result.broken}, trace of {len(result.trace)} states")
        _show_trace(result)
        code = ExitCode.FAILED
    elif result.exhausted:
        click.echo(f"safe: {_counts(result.statistics)}")
        code = ExitCode.OK
    else:
        click.echo(f"not exhausted: {_counts(result.statistics)}")
        message(
            "--fold, fewer --sends or --bookies, or more memory and --states-max, may exhaust it"
        )
        code = ExitCode.TRY_AGAIN
    message(_rate(result.statistics))
    return code


def _answer_termination(result: Result) -> ExitCode:
    if result.broken:
        click.echo(f"closable: trace of {len(result.trace)} states")
        _show_trace(result)
        return ExitCode.OK
    click.echo(f"never closable: {_counts(result.statistics)}")
    return ExitCode.FAILED


def _show_trace(result: Result) -> None:
    for number, line in enumerate(result.trace, 1):
        click.echo(f"{number:3}  {line.words}")
        for change in line.changes:
            click.echo(f"       {change}")


def _counts(statistics: Statistics) -> str:
    return (
        f"{statistics.distinct} distinct, {statistics.generated} generated, "
        f"{statistics.levels} levels"
    )


def _rate(statistics: Statistics) -> str:
    rate = statistics.distinct / max(statistics.seconds, 0.001)
    return (
        f"{_counts(statistics)}, {statistics.queue} in the queue, "
        f"{statistics.seconds:.1f} s, {rate:.0f} states/s"
    )


def _nothing(_: Statistics) -> None:
    """Nobody wants to know."""


class _Progress:
    """A line for each level."""

    def __init__(self) -> None:
        self._level = 0

    def __call__(self, statistics: Statistics) -> None:
        if statistics.levels > self._level:
            self._level = statistics.levels
            message(_rate(statistics))
