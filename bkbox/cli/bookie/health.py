"""``bkbox health``: tells if a bookie is whole again; the gate between two steps of a rolling upgrade."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass

import click

from bkbox import metadata as stores
from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.health import stalls
from bkbox.api.admin.status import Status
from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.words import counted
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import duration_s
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints
from bkbox.cli.lib.target import Target, target_option
from bkbox.config.schema import Config
from bkbox.errors import BookieNotRunningError, MetadataError, NoSuchLedgerError
from bkbox.metadata.base import MetadataStore

_LOOK_EVERY_S = 1.0
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the bookie is whole, and what it waits for where it is not."""

    healthy: bool
    waits_for: tuple[str, ...]


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
    limbo, and no ledger that names it lacks replicas. Exit code 0: it is; 1: it is not; 3: it does not run.

    With --bookie the cluster is asked by the bookie, which knows whether any ledger lacks replicas, and not which
    bookies those name: then none may.

    \b
    Example:
      bkbox health --config bookie.toml
      bkbox health --config bookie.toml --exit-when-healthy --timeout 10m
      bkbox health --bookie https://10.0.0.5:8080 --token-file token --exit-when-healthy
    """
    deadline = time.monotonic() + timeout
    told: list[str] = []
    running = True
    while True:
        try:
            reasons, running = _look(target), True
        except BookieNotRunningError as error:
            reasons, running = [str(error)], False
        if not reasons or not exit_when_healthy or time.monotonic() >= deadline:
            break
        if reasons != told:
            told = reasons
            message(f"waits: {'; '.join(reasons)}")
        time.sleep(_LOOK_EVERY_S)
    if output != "table":
        print_document(asdict(Health(not reasons, tuple(reasons))), output)
    else:
        for reason in reasons or ["healthy"]:
            click.echo(reason)
    if reasons:
        ctx.exit(ExitCode.FAILED if running else ExitCode.NOT_RUNNING)


def _look(target: Target) -> list[str]:
    """The reasons why the bookie is not whole. Raises BookieNotRunningError."""
    status = fetch_status(target.address)
    reasons = bookie_reasons(status)
    if target.config is None:
        return [*reasons, *_cluster_reasons(status)]
    try:
        lacking = asyncio.run(_lacking(target.config))
    except MetadataError as error:
        return [*reasons, f"the metadata store does not say whether ledgers lack replicas: {error}"]
    if lacking is not None:
        reasons.append(
            f"ledger {lacking} lacks replicas and names this bookie; there may be more: see `bkbox autorecovery list`"
        )
    return reasons


def _cluster_reasons(status: Status) -> list[str]:
    """Reasons from all ledgers of the cluster, by the bookie's last view of the cluster."""
    said = status.autorecovery
    if said.under_replicated is None or said.problem:
        why = said.problem or "it has not looked yet"
        return [f"the bookie does not say whether ledgers lack replicas: {why}"]
    if said.under_replicated:
        return [
            f"{counted(said.under_replicated, 'ledger', 'lack')} replicas in the cluster: see `bkbox autorecovery list`"
        ]
    return []


def bookie_reasons(status: Status) -> list[str]:
    """Reasons why a bookie is not whole, by its own status; empty if it is."""
    reasons = []
    if status.state != "running":
        reasons.append(f"the bookie is {status.state}: {status.boot.phase}")
    reasons += stalls(status)
    reasons += [
        f"{process.role} {process.name} is being started again"
        for process in status.processes
        if not process.running and process.role != "worker"
    ]
    stalled = {process.disk for process in status.processes if process.stalled_s}
    reasons += [
        f"disk {disk.path} is {disk.state}: {disk.reason}"
        for disk in status.disks
        if disk.state != "in service" and disk.disk not in stalled
    ]
    if status.limbo.ledgers:
        stuck = f", {len(status.limbo.blockers)} of them stuck" if status.limbo.blockers else ""
        reasons.append(f"{counted(status.limbo.ledgers, 'ledger', 'are')} in limbo{stuck}")
    if not status.writable and status.state == "running":
        reasons.append(
            f"it takes no writes: {', '.join(status.read_only_reasons) or 'no disk does'}"
        )
    return reasons


async def _lacking(config: Config) -> LedgerId | None:
    """A ledger that lacks replicas and names this bookie."""
    bookie = BookieId(config.bookie_id)
    async with await stores.connect(config.metadata, _WAIT_S) as store:
        async for ledger in store.under_replication.ledgers():
            if await _names(store, ledger, bookie):
                return ledger
    return None


async def _names(store: MetadataStore, ledger: LedgerId, bookie: BookieId) -> bool:
    mark = await store.under_replication.find(ledger)
    if mark is None:
        return False
    try:
        named = (await store.read_ledger(ledger)).value.bookies()
    except NoSuchLedgerError:
        return False
    return bookie in named or bookie in mark.replicas
