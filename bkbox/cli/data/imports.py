"""``bkbox import``: recreates exported ledgers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.base.text import counted
from bkbox.cli.data.audit import DIRECTORY, OpenedTarget
from bkbox.cli.lib.engines import engine_options
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.format_failures import LedgerFailure, print_failures
from bkbox.cli.lib.options import metadata_option
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints
from bkbox.cli.lib.progress_bar import ProgressBar
from bkbox.errors import OperatorError


@dataclass(frozen=True)
class ImportReport:
    """The result of an import. ``ids``: the id that was exported, and the one here."""

    ledgers: int
    entries: int
    bytes: int
    ids: list[list[int]]
    failed: list[LedgerFailure]


@click.command("import", no_args_is_help=True)
@click.argument("folder", metavar="DIR", type=DIRECTORY)
@metadata_option
@click.option("--new-ids", type=DIRECTORY, metavar="DIR", help="Draw new ids, and note them here.")
@click.option("--dry-run", is_flag=True, help="Only say what is there to import.")
@engine_options
@output_option
@prints(ImportReport)
@click.pass_context
def import_(
    ctx: click.Context,
    folder: Path,
    metadata: str,
    new_ids: Path | None,
    dry_run: bool,
    engine: OpenedTarget,
    output: Format,
) -> None:
    """Make the ledgers again that `bkbox export` wrote to DIR, under their ids, or under new ones with --new-ids.

    Each has the sizes, digest type, password and custom metadata of the one that was exported, and its entries are
    checked against the sum that was exported with them. Given again, it goes on where it was. An id that was a
    ledger's in this cluster before may still be known to its bookies: take new ids there.

    \b
    Example:
      bkbox import /backup/ledgers --metadata zk://zk2:2181/ledgers
      bkbox import /backup/ledgers --metadata zk://zk1:2181/ledgers --new-ids ./ids
    """
    from bkbox.audit.extras import need_arrow

    need_arrow("bkbox import")
    from bkbox.audit.export import ledgers_in, parts_in
    from bkbox.audit.imports import ImportJob

    parts = parts_in(folder)
    if not parts:
        raise OperatorError(f"{folder} holds nothing that `bkbox export` wrote")
    count = len(ledgers_in(folder))
    if dry_run:
        message(f"{counted(count, 'ledger')} in {counted(len(parts), 'part')}")
        return
    map_folder = None if new_ids is None else new_ids.absolute()
    job = ImportJob(metadata, folder.absolute(), new_ids is not None, map_folder)
    found = []
    with ProgressBar() as progress, engine() as chosen:
        progress.stage("importing", count)
        for outcomes in chosen.map(job, parts):
            found += outcomes
            progress.add_progress(len(outcomes), sum(each.size for each in outcomes))
    good = [each for each in found if not each.why]
    done = ImportReport(
        len(good),
        sum(each.entries for each in good),
        sum(each.size for each in good),
        [[each.ledger_id, each.new_id] for each in good],
        [LedgerFailure(each.ledger_id, each.why) for each in found if each.why],
    )
    if output != "table":
        print_document(asdict(done), output)
    else:
        message(
            f"{counted(done.ledgers, 'ledger', 'are')} there, {counted(done.entries, 'entry')}, "
            f"{counted(done.bytes, 'byte')}"
        )
        print_failures(done.failed)
    if done.failed:
        ctx.exit(ExitCode.FAILED)
