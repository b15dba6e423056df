"""``bkbox top``: size, age, owner and distribution of all ledgers of a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from bkbox import metadata as stores
from bkbox.audit.job import Chunk
from bkbox.audit.judgement import ranges_of
from bkbox.audit.metadata_scan import Facts, gather
from bkbox.audit.run import cut
from bkbox.base.text import counted
from bkbox.cli.data.audit import OpenedTarget
from bkbox.cli.lib.engines import engine_options
from bkbox.cli.lib.options import metadata_option
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
    size,
)
from bkbox.cli.lib.progress_bar import ProgressBar

_CHUNK_LEDGERS = 2_000
_REPORTS = ("size", "age", "owner", "skew")


@dataclass(frozen=True)
class Report:
    """All reports: ``states`` counts ledgers by state, ``skew`` is the fullest bookie in proportion to the one in the
    middle; the rows are those of bkbox/audit/rows.py and facts.py; ``unreadable``: ledgers whose metadata are."""

    ledgers: int
    states: dict[str, int]
    largest: list[dict[str, Any]]
    oldest: list[dict[str, Any]]
    owners: list[dict[str, Any]]
    bookies: list[dict[str, Any]]
    skew: dict[str, float]
    unreadable: list[int]


@click.command()
@metadata_option
@click.option(
    "--by",
    type=click.Choice([*_REPORTS, "all"]),
    default="all",
    show_default=True,
    help="Which report.",
)
@click.option(
    "-n",
    "--number",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Rows of each.",
)
@engine_options
@output_option
@prints(Report)
def top(metadata: str, by: str, number: int, engine: OpenedTarget, output: Format) -> None:
    """Show the largest and the oldest ledgers, how much each owner has, and how unevenly bookies are loaded.

    Reads the metadata of every ledger and nothing else. An owner is the custom metadata 'owner' or 'application' of a
    ledger; sizes are those of closed ledgers.

    \b
    Example:
      bkbox top --metadata zk://zk1:2181/ledgers --by owner
      bkbox top --metadata zk://zk1:2181/ledgers -n 50 -o json
    """
    chunks = asyncio.run(_chunks(metadata))
    with ProgressBar() as progress, engine() as chosen:
        found = gather(chosen, metadata, chunks, number, progress)
    if output != "table":
        print_document(asdict(_report(found, number)), output)
        return
    _print(found, by, number)
    if found.unreadable:
        named = ", ".join(map(str, found.unreadable[:20]))
        message(
            f"the metadata of {counted(len(found.unreadable), 'ledger')} cannot be read: {named}"
        )


async def _chunks(uri: str) -> list[Chunk]:
    async with await stores.connect(uri) as store:
        runs = [run async for page in store.ledger_ranges() for run in ranges_of(page)]
    return cut(runs, None, _CHUNK_LEDGERS)[0]


def _report(found: Facts, number: int) -> Report:
    def rows(some: Sequence[Any]) -> list[dict[str, Any]]:
        return [row._asdict() for row in some[:number]]

    return Report(
        found.ledgers,
        found.states,
        rows(found.largest),
        rows(found.oldest),
        rows(found.owners),
        rows(found.bookies),
        found.skew(),
        found.unreadable,
    )


def _print(found: Facts, by: str, number: int) -> None:
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items()))
    print_fields([("ledgers", found.ledgers), ("states", states)])
    shown = _REPORTS if by == "all" else (by,)
    if "size" in shown:
        print_table(
            ["ledger", "size", "entries", "owner"],
            [
                (row.ledger_id, size(row.bytes or 0), row.entries, row.owner)
                for row in found.largest
            ],
            title="largest",
        )
    if "age" in shown:
        print_table(
            ["ledger", "created (UTC)", "state", "owner"],
            [(row.ledger_id, _time(row.ctime_ms), row.state, row.owner) for row in found.oldest],
            title="oldest",
        )
    if "owner" in shown:
        print_table(
            ["owner", "ledgers", "open", "entries", "size", "in all copies"],
            [
                (
                    row.owner,
                    row.ledgers,
                    row.open_ledgers,
                    row.entries,
                    size(row.bytes),
                    size(row.stored_bytes),
                )
                for row in found.owners[:number]
            ],
            title="by owner",
        )
    if "skew" in shown:
        print_table(
            ["bookie", "ledgers", "copies", "size"],
            [
                (row.bookie, row.ledgers, row.copies, size(row.bytes))
                for row in found.bookies[:number]
            ],
            title="by bookie, the fullest first",
        )
        for what, times in found.skew().items():
            message(f"the fullest bookie has {times} times the {what} of the one in the middle")


def _time(ctime_ms: int | None) -> str | None:
    if ctime_ms is None:
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ctime_ms / 1000))
