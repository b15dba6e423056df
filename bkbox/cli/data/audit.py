"""``bkbox audit``: audits every entry of a cluster."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from bkbox.audit.run import Summary
from bkbox.base.text import UNLIMITED, counted, quoted
from bkbox.cli.lib.engines import engine_options
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import bytes_per_second, metadata_option
from bkbox.cli.lib.output import Format, message, print_document, print_table, prints
from bkbox.cli.lib.progress_bar import ProgressBar

if TYPE_CHECKING:
    from bkbox.audit.engine import Engine


class _TableFolder(click.Path):
    """A folder of Parquet files, absolute: pyarrow takes no name that is not UTF-8, and ``s3:x`` for a URI."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        try:
            os.fspath(value).encode()
        except UnicodeEncodeError:
            self.fail(f"{quoted(os.fspath(value))} is not UTF-8: name another folder", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx))).absolute()


DIRECTORY = _TableFolder(file_okay=False, path_type=Path)


class OpenedTarget(Protocol):
    """The type of ``engine``, as ``engine_options`` passes it."""

    def __call__(self) -> AbstractContextManager[Engine]: ...


@click.command(no_args_is_help=True)
@metadata_option
@click.option(
    "-o",
    "--out",
    "folder",
    type=DIRECTORY,
    required=True,
    metavar="DIR",
    help="Where the tables go.",
)
@click.option(
    "--read", "read_all", is_flag=True, help="Read every copy of every entry and check it."
)
@click.option(
    "--select",
    metavar="CONDITION",
    help='Only ledgers whose metadata fit, as "owner = billing"; ids that no ledger has are not probed.',
)
@click.option("--no-orphans", is_flag=True, help="Do not probe ids that no ledger has.")
@click.option(
    "--rate",
    default=UNLIMITED,
    show_default=True,
    metavar="RATE",
    help="Read at most so much a second per task, as 50MiB/s.",
)
@click.option("--rack-map", metavar="MAP", help="Racks from a JSON map: a file, or znode:PATH.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print the sums.",
)
@engine_options
@prints(Summary)
@click.pass_context
def audit(
    ctx: click.Context,
    metadata: str,
    folder: Path,
    read_all: bool,
    select: str | None,
    no_orphans: bool,
    rate: str,
    rack_map: str | None,
    output: Format,
    engine: OpenedTarget,
) -> None:
    """Compare what the metadata of every ledger promise with what each bookie says that it has.

    Bookies of Java are asked like those of bkbox; one that cannot list its entries is read. With --read every copy is
    read, its digest is checked, and copies are compared. Nothing is changed; without --no-orphans one ledger id is
    drawn. A bookie that does not answer makes its copies 'unknown', never 'missing'.

    DIR gets a table (Parquet) for each kind of finding, summary.html, summary.md, summary.json and metrics.prom.
    Exit code 0: nothing is wrong, and every bookie answered; 1: something is wrong, be it an open ledger that cannot be
    recovered; 7: nothing that any bookie said, but one did not answer or is in limbo.

    \b
    Example:
      bkbox audit --metadata zk://zk1:2181/ledgers --read -o /var/lib/bkbox/audit
      bkbox audit --metadata zk://zk1:2181/ledgers --select "owner = billing and state = CLOSED" -o audit
      bkbox audit --metadata zk://zk1:2181/ledgers --engine spark --master spark://host:7077 -o audit
    """
    from bkbox.audit.extras import need_arrow

    need_arrow("bkbox audit")
    from bkbox.audit.report import MEANINGS, verdict_of, write_report
    from bkbox.audit.run import plan_audit, run_audit

    client: dict[str, Any] = {} if rack_map is None else {"rack_map": rack_map}
    plan = asyncio.run(
        plan_audit(
            metadata,
            read_all=read_all,
            orphans=not no_orphans,
            rate=bytes_per_second(rate),
            client=client,
            select=select or "",
        )
    )
    with ProgressBar() as progress, engine() as chosen:
        summary = run_audit(
            chosen, plan, folder, progress, wall_ms=lambda: time.time_ns() // 1_000_000
        )
    write_report(folder)
    if output != "table":
        print_document(asdict(summary), output)
    else:
        print_table(
            ["found", "rows", "entries or ledgers", "meaning"],
            [
                (name, summary.rows[name], summary.faults.get(name, summary.rows[name]), text)
                for name, text in MEANINGS.items()
            ],
            title=f"{counted(summary.ledgers, 'ledger')}, {counted(summary.entries, 'entry')}",
        )
    message(f"{verdict_of(summary)}: {folder / 'summary.html'}")
    if not summary.is_clean:
        ctx.exit(ExitCode.FAILED)
    if not summary.is_certain:
        ctx.exit(ExitCode.TRY_AGAIN)
