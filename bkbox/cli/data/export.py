"""``bkbox export``: exports closed ledgers as Parquet files."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox import metadata as stores
from bkbox.audit.selection import parse_ledgers, parse_select
from bkbox.base.text import counted
from bkbox.cli.data.audit import DIRECTORY, OpenedTarget
from bkbox.cli.lib.engines import engine_options
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.format_failures import LedgerFailure, print_failures
from bkbox.cli.lib.options import metadata_option
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints
from bkbox.cli.lib.progress_bar import ProgressBar

_LEDGERS_PER_PART = 100


@dataclass(frozen=True)
class ExportReport:
    """The result of an export."""

    ledgers: int
    entries: int
    bytes: int
    there_already: int
    failed: list[LedgerFailure]
    losses: list[str]
    """Of exported ledgers that were ended with loss accepted, what is not there."""


@click.command(no_args_is_help=True)
@metadata_option
@click.option(
    "-d",
    "--dir",
    "folder",
    type=DIRECTORY,
    required=True,
    metavar="DIR",
    help="Where the files go.",
)
@click.option("--ledgers", metavar="LIST", help="Only these, as 1,2,5-9.")
@click.option("--select", metavar="CONDITION", help="Only those whose metadata fit.")
@click.option(
    "--per-part",
    type=click.IntRange(1, 100_000),
    default=_LEDGERS_PER_PART,
    show_default=True,
    help="Ledgers in one file.",
)
@engine_options
@output_option
@prints(ExportReport)
@click.pass_context
def export(
    ctx: click.Context,
    metadata: str,
    folder: Path,
    ledgers: str | None,
    select: str | None,
    per_part: int,
    engine: OpenedTarget,
    output: Format,
) -> None:
    """Write closed ledgers, with their metadata, to Parquet files, from which `bkbox import` makes them again.

    What is in DIR already is left out: the same command, given every night, adds what was closed since. Every digest
    is checked, and the entries are counted. Of ledgers that an operator has ended with loss accepted, standard error
    says what is lost. The files have the passwords of the ledgers in them.

    \b
    Example:
      bkbox export --metadata zk://zk1:2181/ledgers -d /backup/ledgers
      bkbox export --metadata zk://zk1:2181/ledgers -d /backup/ledgers --select "owner = billing"
    """
    from bkbox.audit.extras import need_arrow

    need_arrow("bkbox export")
    from bkbox.audit.export import ExportJob, ledgers_in, parts_of

    if select is not None:
        parse_select(select)
    selected = None if ledgers is None else parse_ledgers(ledgers, "--ledgers")
    there = ledgers_in(folder)
    runs = (
        asyncio.run(_runs(metadata)) if selected is None else [range(at, at + 1) for at in selected]
    )
    run = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    parts = parts_of(runs, there, run, per_part)
    job = ExportJob(metadata, folder.absolute(), select)
    found = []
    with ProgressBar() as progress, engine() as chosen:
        progress.stage("exporting", sum(len(ids) for part in parts for ids in part.ledgers))
        for part, outcomes in zip(parts, chosen.map(job, parts), strict=True):
            found += outcomes
            progress.add_progress(sum(map(len, part.ledgers)), sum(each.size for each in outcomes))
    good = [each for each in found if not each.why]
    done = ExportReport(
        len(good),
        sum(each.entries for each in good),
        sum(each.size for each in good),
        len(there),
        [LedgerFailure(each.ledger_id, each.why) for each in found if each.why],
        [loss for each in good for loss in each.losses],
    )
    for loss in done.losses:
        message(f"warning: {loss}")
    if output != "table":
        print_document(asdict(done), output)
    else:
        message(
            f"{counted(done.ledgers, 'ledger')}, {counted(done.entries, 'entry')}, "
            f"{counted(done.bytes, 'byte')} exported; {done.there_already} were there already"
        )
        print_failures(done.failed)
    if done.failed:
        ctx.exit(ExitCode.FAILED)


async def _runs(uri: str) -> list[range]:
    from bkbox.audit.judgement import ranges_of

    async with await stores.connect(uri) as store:
        return [run async for page in store.ledger_ranges() for run in ranges_of(page)]
