"""``bkbox cluster status``: every bookie of a cluster at once, as each says itself."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from bkbox.api.cluster.asking import Asker, Reach, watch_cluster, watch_from
from bkbox.api.cluster.rows import APACHE, ORDERS, BookieRow, Report, selected, summary
from bkbox.api.cluster.watch import ClusterWatch
from bkbox.base.commandline import set_origin
from bkbox.cli.lib.options import config_choice, configuration_of, metadata_choice
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_table,
    prints,
    size,
    watch_option,
)
from bkbox.cli.lib.target import is_given, remote_of, remote_options
from bkbox.config import metadata_uri
from bkbox.config.schema import Config

_SIGNS = {"ok": "+", "warn": "!", "fail": "X"}
_RATES_S = 1.0
"""Between two looks at the counters of Apache's bookies, which tell no rates."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """``problem``: why the list of bookies is old, "" if it is not."""

    bookies: list[BookieRow]
    problem: str


@click.command()
@metadata_choice(f"Metadata store: {metadata_uri.FORMS}.")
@config_choice("Configuration of one of the bookies.")
@remote_options
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="bookie",
    show_default=True,
    help="The worst, largest or oldest first.",
)
@click.option(
    "--filter",
    "text",
    default="",
    metavar="TEXT",
    help="Only bookies with this text in what is known of them.",
)
@watch_option
@output_option
@prints(ClusterStatus)
def status(
    metadata: str | None,
    config_file: Path | None,
    url: str | None,
    token_file: Path | None,
    plain_text: bool,
    order: str,
    text: str,
    output: Format,
) -> None:
    """Show every bookie of a cluster: state, fill, rates, latency, limbo, jobs, deletions.

    Bookies of bkbox are asked on this host by their admin socket, on others by their admin API (http_listen), which
    needs one token for all: --token-file. Apache's bookies are asked by their HTTP server. One that has neither still
    tells the space on its disks. A bookie that does not answer is listed with for how long; no other waits for it.

    \b
    Example:
      bkbox cluster status --config bookie.toml
      bkbox cluster status --metadata zk://zk1:2181/ledgers --token-file token --sort state --watch
      bkbox cluster status --bookie https://10.0.0.5:8080 --token-file token -o json
    """
    if is_given("url") and (metadata or config_file):
        raise click.UsageError("give one of --metadata, --config and --bookie")
    by_url = url is not None and metadata is None and config_file is None
    config = None
    if config_file is not None or (metadata is None and not by_url):
        config = configuration_of(config_file)
    if metadata is not None and config is None:
        set_origin(metadata=metadata)
    watching = _watching(metadata, config, url, token_file, plain_text=plain_text)
    found = asyncio.run(_poll(watching))
    rows = selected(found.bookies, order, text)
    if output != "table":
        print_document(asdict(ClusterStatus(rows, found.problem)), output)
        return
    print_table(COLUMNS, [cells(row) for row in rows])
    message(summary(rows) or "there is no such bookie")
    for row in rows:
        for problem in row.problems:
            message(f"{row.bookie}: {problem}")
    if found.problem:
        message(found.problem)


def _watching(
    metadata: str | None,
    config: Config | None,
    url: str | None,
    token_file: Path | None,
    *,
    plain_text: bool,
) -> AbstractAsyncContextManager[tuple[ClusterWatch, Asker]]:
    if metadata is None and config is not None:
        metadata = config.metadata
    clock = time.monotonic
    if metadata is not None:
        reach = None if token_file is None else Reach(token_file, plain_text)
        return watch_cluster(metadata, config, reach, clock)
    assert url is not None
    there = remote_of(url, token_file, plain_text=plain_text)
    assert token_file is not None  # remote_of has read it
    return watch_from(there, Reach(token_file, plain_text), clock)


async def _poll(
    watching: AbstractAsyncContextManager[tuple[ClusterWatch, Asker]],
) -> ClusterStatus:
    async with watching as (watch, _):
        watch.poll()
        await watch.finish()
        if any(row.admin and row.report.version == APACHE for row in watch.rows()):
            await asyncio.sleep(_RATES_S)
            watch.poll()
            await watch.finish()
        return ClusterStatus(watch.rows(), watch.problem)


COLUMNS = (
    *("bookie", "state", "limbo", "short", "full", "adds/s", "reads/s", "p99 ms", "bytes/s"),
    *("jobs", "deleted", "checked", "version"),
)


def cells(row: BookieRow) -> tuple[object, ...]:
    """The row as text; None is not known."""
    report = row.report
    return (
        row.bookie,
        state_text(row),
        report.limbo,
        report.short,
        None if report.fill is None else f"{report.fill:.0%}",
        None if report.adds is None else f"{report.adds:,.0f}",
        None if report.reads is None else f"{report.reads:,.0f}",
        None if report.add_p99_us is None else f"{report.add_p99_us / 1000:.1f}",
        None if report.bytes is None else size(int(report.bytes)),
        None if report.jobs is None else ", ".join(report.jobs) or "0",
        report.deleted,
        checked(report, "%m-%d %H:%M"),
        report.version,
    )


def state_text(row: BookieRow) -> str:
    """A sign and a word, and for how long it has not answered."""
    silent = f" {row.silent_s:.0f} s" if (row.silent_s or 0) >= 1 else ""
    return f"[{_SIGNS[row.verdict]}] {row.state}{silent}"


def checked(report: Report, form: str = "%Y-%m-%d %H:%M") -> str | None:
    """When the last complete check of its copies was, in UTC."""
    if report.checked_ms is None:
        return None
    if not report.checked_ms:
        return "never"
    return datetime.fromtimestamp(report.checked_ms / 1000, UTC).strftime(form)
