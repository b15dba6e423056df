"""``bkbox model-check``: look at every state of the limbo model. Scripts rely on the first line and the exit code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import click

from bkbox.base.host.files import HostFiles
from bkbox.base.text import counted
from bkbox.base.values import replaced
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints
from proof.model.options import (
    AS_PUBLISHED,
    WINDOWS,
    Clearing,
    Corrections,
    Loss,
    Marks,
    Options,
)
from proof.model.search import Result, Statistics, search
from proof.model.termination import closable
from proof.model.trace import Line

_CORRECTIONS = {
    "D3": "fragments_at_close",
    "D4": "timeouts_of_the_read",
    "D5": "lac_counts",
    "D9": "responses_have_ids",
    "first-holder": "first_holder",
}
_STATE_BYTES = 56
"""Upper bound on the bytes of a state, while the table of those that were seen grows (proof/model/exploration.py)."""

_WINDOWS = {status.value: status for status in WINDOWS}

Word = Literal["safe", "broken", "not exhausted", "closable", "never closable"]

_CODES: dict[Word, ExitCode] = {
    "safe": ExitCode.OK,
    "broken": ExitCode.FAILED,
    "not exhausted": ExitCode.TRY_AGAIN,
    "closable": ExitCode.OK,
    "never closable": ExitCode.FAILED,
}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search. ``broken``: the property that does not hold; ``trace``: the shortest way there, or to a
    ledger that is closed, state by state."""

    answer: Word
    broken: str | None
    statistics: Statistics
    trace: tuple[Line, ...]


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
@click.option(
    "--device-loss",
    is_flag=True,
    help="A crash takes what was not synced, and the kernel stays up: the device was away.",
)
@click.option("--boot-id-only", is_flag=True, help="A boot does not compare mounts.")
@click.option(
    "--copies", is_flag=True, help="A closed ledger is copied before the metadata names the bookie."
)
@click.option(
    "--no-records", is_flag=True, help="A boot sets no limbo for copies that are not named."
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
@output_option
@prints(SearchResult)
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
    device_loss: bool,
    boot_id_only: bool,
    copies: bool,
    no_records: bool,
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
    output: Format,
) -> None:
    """Look at every state of a model of one ledger, bookies that forget, and recoveries.

    Prints 'safe: …' and exits 0, or 'broken: …' with the shortest way there and exits 1.

    \b
    Example:
      bkbox model-check --no-limbo
    """
    losses = {
        "--process-crash": (process_crash, Loss.PROCESS),
        "--disk-loss": (disk_loss, Loss.DISK),
        "--device-loss": (device_loss, Loss.DEVICE),
    }
    chosen = {name: loss for name, (is_chosen, loss) in losses.items() if is_chosen}
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
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
        loss=next(iter(chosen.values()), Loss.BOOKIE),
        mounts=not boot_id_only,
        copies=copies,
        records=not no_records,
        message_loss=not no_message_loss,
        recovery_reads_fence=not no_recovery_fence,
        lac_floor=not no_lac_floor,
        corrections=corrections,
    )
    progress = _Progress() if verbose else _nothing
    if termination is not None:
        found = _termination(closable(options, termination, progress=progress))
    else:
        most = states_max or _states_limit(HostFiles())
        found = _safety(search(options, fold=fold, states_max=most, progress=progress))
    if output != "table":
        print_document(asdict(found), output)
    else:
        _show(found)
    if found.answer == "not exhausted":
        message(
            "--fold, fewer --sends or --bookies, or more memory and --states-max, may exhaust it"
        )
    if termination is None:
        message(_rate(found.statistics))
    ctx.exit(_CODES[found.answer])


def _states_limit(host: HostFiles) -> int | None:
    """The number of states that fit into memory; None if the system does not tell."""
    for line in host.lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return max(1, int(value.split()[0]) * 1024 // _STATE_BYTES)
    return None


def _safety(result: Result) -> SearchResult:
    word: Word = "broken" if result.broken else "safe" if result.exhausted else "not exhausted"
    return SearchResult(word, result.broken, result.statistics, result.trace)


def _termination(result: Result) -> SearchResult:
    """A search for a closed ledger: what it calls broken is what was hoped for."""
    word: Word = "closable" if result.broken else "never closable"
    return SearchResult(word, None, result.statistics, result.trace)


def _show(found: SearchResult) -> None:
    if not found.trace:
        click.echo(f"{found.answer}: {_counts(found.statistics)}")
        return
    broken = "" if found.broken is None else f"{found.broken}, "
    click.echo(f"{found.answer}: {broken}trace of {counted(len(found.trace), 'state')}")
    for number, line in enumerate(found.trace, 1):
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
    """Drops the progress report."""


class _Progress:
    """A line for each level."""

    def __init__(self) -> None:
        self._level = 0

    def __call__(self, statistics: Statistics) -> None:
        if statistics.levels > self._level:
            self._level = statistics.levels
            message(_rate(statistics))
