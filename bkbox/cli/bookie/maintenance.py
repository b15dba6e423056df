"""``bkbox maintenance …``: maintenance windows, in which a bookie that is down is not repaired."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from datetime import datetime

import click

from bkbox import metadata as stores
from bkbox.base.ids import BookieId
from bkbox.cli.lib.options import config_option, dry_run_option, duration_s
from bkbox.cli.lib.output import (
    Format,
    message,
    outcome_option,
    output_option,
    print_document,
    print_table,
    prints,
    watch_option,
)
from bkbox.config.schema import Config
from bkbox.metadata.maintenance import MAINTENANCE_S_MAX, MaintenanceWindow, begin, end

_WAIT_S = 10.0


@click.group(no_args_is_help=True)
def maintenance() -> None:
    """Ask the cluster not to repair a bookie's ledgers while it is down, for an upgrade of its host for example.

    It ends by itself when its time is over, whether the bookie is back or not.

    \b
    Example:
      bkbox maintenance on --for 30m --config bookie.toml
    """


@maintenance.command(no_args_is_help=True)
@config_option
@click.option(
    "--for",
    "seconds",
    type=duration_s,
    required=True,
    metavar="TIME",
    help="How long at most: 90s, 30m, 2h.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@outcome_option
def on(config: Config, seconds: int, dry_run: bool) -> None:
    """Begin, or change for how long.

    Auditors of bkbox do not take the bookie for lost until it is over. In ZooKeeper Java's auditors may watch the
    same cluster, which know no bookie that rests: for them the delay before the repair of a lost bookie is raised
    for the whole cluster, and put back at the end. They begin at once all the same where several
    bookies are lost together: take one down after the other.

    \b
    Example:
      bkbox maintenance on --for 30m --config bookie.toml
    """
    if not 0 < seconds <= MAINTENANCE_S_MAX:
        raise click.BadParameter(
            f"it may last {MAINTENANCE_S_MAX // 3600} h at most", param_hint="--for"
        )
    bookie = BookieId(config.bookie_id)
    if dry_run:
        message(f"would let {bookie} rest for {seconds} s; nothing was changed")
        return

    async def go() -> MaintenanceWindow:
        async with await stores.connect(config.metadata, _WAIT_S) as store:
            return await begin(store.maintenance_windows, bookie, seconds, _now_ms())

    window = asyncio.run(go())
    message(f"{bookie} is not repaired until {_moment(window)}")
    if window.delay_s is not None and window.delay_s != window.delay_before_s:
        message(
            f"Java's auditors wait {window.delay_s} s for any lost bookie until then, not {window.delay_before_s} s"
        )


@maintenance.command()
@config_option
@dry_run_option
@outcome_option
def off(config: Config, dry_run: bool) -> None:
    """End it now.

    \b
    Example:
      bkbox maintenance off --config bookie.toml
    """
    bookie = BookieId(config.bookie_id)
    if dry_run:
        message(f"would end the rest of {bookie}; nothing was changed")
        return

    async def go() -> bool:
        async with await stores.connect(config.metadata, _WAIT_S) as store:
            return await end(store.maintenance_windows, bookie, _now_ms())

    if asyncio.run(go()):
        message(f"{bookie} is repaired again where it lacks anything")
    else:
        message(f"nothing to do: {bookie} does not rest")


@dataclass(frozen=True, slots=True)
class BookieMaintenance:
    """A bookie that rests: until when, in ms since 1970, and how long Java's auditors wait for a lost one meanwhile."""

    bookie: str
    until_ms: int
    java_delay_s: int | None


@maintenance.command()
@config_option
@watch_option
@output_option
@prints(list[BookieMaintenance])
def status(config: Config, output: Format) -> None:
    """Show which bookies of the cluster rest, and until when.

    \b
    Example:
      bkbox maintenance status --config bookie.toml
    """

    async def go() -> dict[BookieId, MaintenanceWindow]:
        async with await stores.connect(config.metadata, _WAIT_S) as store:
            return await store.maintenance_windows.all()

    now_ms = _now_ms()
    found = {
        bookie: window for bookie, window in asyncio.run(go()).items() if now_ms < window.until_ms
    }
    if output != "table":
        print_document(
            [
                asdict(BookieMaintenance(bookie, window.until_ms, window.delay_s))
                for bookie, window in sorted(found.items())
            ],
            output,
        )
        return
    print_table(
        ["bookie", "until", "seconds left", "Java's auditors wait"],
        [
            (bookie, _moment(window), (window.until_ms - now_ms) // 1000, window.delay_s)
            for bookie, window in sorted(found.items())
        ],
    )


def _moment(window: MaintenanceWindow) -> str:
    return f"{datetime.fromtimestamp(window.until_ms / 1000):%Y-%m-%d %H:%M:%S}"  # noqa: DTZ006 local


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
