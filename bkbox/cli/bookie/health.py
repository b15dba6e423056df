"""``bkbox health``: tells if a bookie is whole again; the gate between two steps of a rolling upgrade."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass

import click

from bkbox.api.admin.client import fetch_status
from bkbox.base.text import moment
from bkbox.checks import replicas
from bkbox.checks.health import not_whole
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import duration_s
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints
from bkbox.cli.lib.target import Target, target_option
from bkbox.errors import BookieNotRunningError, BookieUnresponsiveError

_POLL_EVERY_S = 1.0
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Health:
    """The health of the bookie, and what it waits for if it is not whole. ``copies_checked_ms``: when a check last
    found that it has every copy that it has to hold, 0: never; None: it does not run.
    """

    healthy: bool
    waits_for: tuple[str, ...]
    copies_checked_ms: int | None = None


@click.command()
@target_option
@click.option("--exit-when-healthy", is_flag=True, help="Wait until it is; say what it waits for.")
@click.option(
    "--timeout",
    type=duration_s,
    default="10m",
    show_default=True,
    metavar="TIME",
    help="How long to wait at most: 90s, 10m, 2h.",
)
@output_option
@prints(Health)
@click.pass_context
def health(
    ctx: click.Context, target: Target, exit_when_healthy: bool, timeout: int, output: Format
) -> None:
    """Say whether the bookie is whole: the next one may be taken down.

    It is when it runs and takes writes, all its processes make progress, all its disks are in service, nothing is in
    limbo, it has compared its copies since it was away and none is short, and no ledger that names it lacks
    replicas. Exit code 0: it is; 1: it is not; 3: it does not run.

    With --bookie the cluster is asked by the bookie, which knows whether any ledger lacks replicas, and not which
    bookies those name: then none may.

    \b
    Example:
      bkbox health --config bookie.toml
      bkbox health --config bookie.toml --exit-when-healthy --timeout 10m
      bkbox health --bookie https://10.0.0.5:8080 --token-file token --exit-when-healthy
    """
    deadline = time.monotonic() + timeout
    printed: list[str] = []
    checked_ms: int | None
    while True:
        running = True
        try:
            reasons, checked_ms = _poll(target)
        except (BookieNotRunningError, BookieUnresponsiveError) as error:
            reasons, checked_ms = [str(error)], None
            running = isinstance(error, BookieUnresponsiveError)
        if not reasons or not exit_when_healthy or time.monotonic() >= deadline:
            break
        if reasons != printed:
            printed = reasons
            message(f"waits: {'; '.join(reasons)}")
        time.sleep(_POLL_EVERY_S)
    if output != "table":
        print_document(asdict(Health(not reasons, tuple(reasons), checked_ms)), output)
    else:
        for reason in reasons or ["healthy"]:
            click.echo(reason)
        if checked_ms is not None:
            click.echo(f"last complete check of its copies: {moment(checked_ms)}")
    if reasons:
        ctx.exit(ExitCode.FAILED if running else ExitCode.NOT_RUNNING)


def _poll(target: Target) -> tuple[list[str], int]:
    """The reasons why the bookie is not whole, and when its copies were last complete. Raises BookieNotRunningError,
    BookieUnresponsiveError."""
    status = fetch_status(target.address)
    if target.config is None:
        found = list(replicas.in_cluster(status))
    else:
        found = asyncio.run(replicas.of_bookie(target.config, _WAIT_S))
    return [*not_whole(status), *(each.why for each in found)], status.copies.checked_ms
