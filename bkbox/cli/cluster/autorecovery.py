"""``bkbox autorecovery …``: restores the copies that lost bookies had, and shows the progress."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox import metadata as stores
from bkbox.api.admin import client as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base import logs
from bkbox.base.commandline import cluster_command
from bkbox.base.ids import BookieId, LedgerId, bookie_id
from bkbox.base.text import UNLIMITED
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import (
    bytes_per_second,
    config_choice,
    configuration_of,
    duration_s,
    ledgers_argument,
    metadata_choice,
    metadata_of,
    metadata_option,
)
from bkbox.cli.lib.output import (
    Format,
    message,
    outcome_option,
    output_option,
    print_document,
    print_fields,
    print_started,
    print_table,
    prints,
    watch_option,
)
from bkbox.client.options import ClientOptions
from bkbox.config import metadata_uri
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.jobs.job import JobKind
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.underreplication import FULL_CHECK_REQUESTED
from bkbox.protocol.audit import live_copies
from bkbox.wire.metadata.underreplication import UnderreplicatedLedger

_WAIT_S = 10.0
_SHOWN_EVERY_S = 0.5


@click.group(no_args_is_help=True)
def autorecovery() -> None:
    """Bring back the copies that lost bookies had, and see how that goes.

    An auditor, elected among all that take part, marks the ledgers that lost copies; workers copy them to other
    bookies. Bookies take part with autorecovery_enabled = true, as jobs of their own; "run" does it without a bookie.
    In ZooKeeper BookKeeper's own auditors and workers share the work.

    \b
    Example:
      bkbox autorecovery status --metadata zk://zk1.example.com:2181/ledgers
    """


@autorecovery.command()
@metadata_option
@click.option("--name", metavar="ID", help="Name in the election [default: host:autorecovery].")
@click.option(
    "--lost-bookie-delay",
    "delay_s",
    type=duration_s,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Wait so long for a single lost bookie, unless the cluster says otherwise.",
)
@click.option(
    "--open-ledger-grace",
    "grace_s",
    type=duration_s,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="Give writers so long to replace a lost bookie before they are fenced.",
)
@click.option(
    "--full-check-every",
    "full_check_s",
    type=duration_s,
    default="168h",
    show_default=True,
    metavar="TIME",
    help="Check all entries of all ledgers so often; 0s for never.",
)
@click.option(
    "--ledgers-at-once",
    type=click.IntRange(1, 1024),
    default=4,
    show_default=True,
    help="Ledgers that are copied at the same time.",
)
@click.option(
    "--rate",
    default=UNLIMITED,
    show_default=True,
    metavar="RATE",
    help="Copy at most so much a second, as 50MiB/s.",
)
@click.option(
    "--topology-script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Program that tells the racks of hosts.",
)
@click.option("--rack-map", metavar="MAP", help="Racks from a JSON map: a file, or znode:PATH.")
def run(
    metadata: str,
    name: str | None,
    delay_s: int,
    grace_s: int,
    full_check_s: int,
    ledgers_at_once: int,
    rate: str,
    topology_script: Path | None,
    rack_map: str | None,
) -> None:
    """Run an auditor and a replication worker in the foreground until they are told to stop.

    Prints one line, "ready NAME", on standard output; the log goes to standard error. SIGTERM or SIGINT (Ctrl-C) stops
    them in order.

    \b
    Example:
      bkbox autorecovery run --metadata zk://zk1.example.com:2181/ledgers --rate 50MiB/s
    """
    from bkbox.repair.replication import standalone
    from bkbox.repair.replication.auditor import AuditorSettings
    from bkbox.repair.replication.replication_worker import ReplicationSettings

    logs.begin("autorecovery", logs.LogSettings())
    called = str(bookie_id(name or f"{standalone.host_name()}:autorecovery"))
    limit = bytes_per_second(rate)
    options = ClientOptions(
        topology_script=str(topology_script) if topology_script else None, rack_map=rack_map
    )

    async def go(found: standalone.Alone) -> None:
        await standalone.autorecovery(
            found,
            called,
            AuditorSettings(delay_s, full_check_s=full_check_s),
            ReplicationSettings(ledgers_at_once, grace_s),
            limit,
            lambda: click.echo(f"ready {called}"),
        )

    asyncio.run(standalone.in_cluster(metadata, options, go))


# ---- status -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """``recovery_delay_s`` and ``last_full_check_ms``: None where it is not set, or never."""

    enabled: bool
    auditor: str | None
    under_replicated: int
    at_work: int
    recovery_delay_s: int | None
    last_full_check_ms: int | None


@autorecovery.command()
@metadata_option
@watch_option
@output_option
@prints(State)
def status(metadata: str, output: Format) -> None:
    """Show whether re-replication is enabled, which bookie is the auditor, and how much is left.

    \b
    Example:
      bkbox autorecovery status --metadata sqlite:cluster.db
    """

    async def go() -> State:
        async with await stores.connect(metadata, _WAIT_S) as store:
            tree = store.under_replication
            delay = await tree.recovery_delay()
            return State(
                await tree.enabled(),
                await tree.auditor(),
                await tree.count(),
                len(await tree.locked()),
                None if delay is None else delay.seconds,
                await tree.last_full_check_ms(),
            )

    found = asyncio.run(go())
    if output != "table":
        print_document(asdict(found), output)
        return
    checked = found.last_full_check_ms
    print_fields(
        [
            ("enabled", found.enabled),
            ("auditor", found.auditor),
            ("ledgers that lack copies", found.under_replicated),
            ("being worked on", found.at_work),
            ("delay for a lost bookie", _seconds(found.recovery_delay_s)),
            ("last full check", f"{_age(checked)} ago" if checked else "never"),
        ]
    )


@autorecovery.command()
@metadata_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@outcome_option
def enable(metadata: str, dry_run: bool) -> None:
    """Let auditors and workers of the whole cluster work, those of Java too.

    \b
    Example:
      bkbox autorecovery enable --metadata sqlite:cluster.db
    """
    _switch(metadata, enabled=True, dry_run=dry_run)


@autorecovery.command()
@metadata_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@outcome_option
def disable(metadata: str, dry_run: bool) -> None:
    """Pause auditors and workers of the whole cluster, until "enable".

    What is being copied is finished. For a single bookie that is down for a while there is "bkbox maintenance".

    \b
    Example:
      bkbox autorecovery disable --metadata sqlite:cluster.db
    """
    _switch(metadata, enabled=False, dry_run=dry_run)


def _switch(metadata: str, *, enabled: bool, dry_run: bool) -> None:
    async def go() -> bool:
        async with await stores.connect(metadata, _WAIT_S) as store:
            before = await store.under_replication.enabled()
            if before is not enabled and not dry_run:
                await store.under_replication.set_enabled(enabled)
            return before

    word = "enabled" if enabled else "disabled"
    if asyncio.run(go()) is enabled:
        message(f"re-replication is {word} already")
    elif dry_run:
        message(f"re-replication would be {word}; nothing was changed")
    else:
        message(f"re-replication is {word}")


# ---- check ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check of what bookies have. ``copies_short``: entries that bookies lack, of ``marked`` ledgers, which are
    marked for re-replication now; ``lists_missing``: how often a bookie did not say what it has of a ledger.
    """

    ledgers: int
    copies_short: int
    marked: int
    lists_missing: int


@autorecovery.command()
@ledgers_argument
@metadata_choice(f"Of this cluster: {metadata_uri.FORMS}.")
@config_choice("Have the running bookie of this configuration compare its own copies, as a job.")
@click.option("--bookie", metavar="ID", help="With --now: what this bookie lacks alone.")
@click.option("--now", is_flag=True, help="With --metadata: here, and not by the auditor.")
@click.option("--dry-run", is_flag=True, help="Mark, copy and ask for nothing; with --now, count.")
@output_option
@prints(CheckResult)
@click.pass_context
def check(
    ctx: click.Context,
    ledgers: tuple[LedgerId, ...],
    metadata: str | None,
    config_file: Path | None,
    bookie: str | None,
    now: bool,
    dry_run: bool,
    output: Format,
) -> None:
    """Look for missing copies: compare what bookies have with what the metadata credits them with.

    With --metadata the cluster's auditor is asked to look for lost bookies and to check every ledger at once (what
    "bookkeeper shell triggeraudit" does). With --now this command checks the ledgers given, or all, and shows how far
    it has come; what lacks copies is marked, and replication workers bring it back. Exit code 1: copies are short.

    With --config the bookie compares its own copies, and copies what is missing to itself. It does that without being
    asked after every absence.

    \b
    Example:
      bkbox autorecovery check --metadata sqlite:cluster.db
      bkbox autorecovery check 4711 4712 --metadata sqlite:cluster.db --now
      bkbox autorecovery check --bookie 10.0.0.5:3181 --metadata sqlite:cluster.db --now
      bkbox autorecovery check --config bookie.toml
    """
    if metadata is not None:
        metadata = metadata_of(metadata, config_file)
    else:
        if now or bookie is not None:
            raise click.UsageError("--now and --bookie go with --metadata")
        config = configuration_of(config_file)
        arguments = {"ledgers": ",".join(map(str, ledgers))} if ledgers else {"all": "true"}
        if dry_run:
            message(f"bookie {config.bookie_id} would be asked to compare its copies")
            return
        print_started(
            admin.start_job(admin_socket_path(config), JobKind.CHECK, arguments), config, output
        )
        return
    if now:
        only = None if bookie is None else bookie_id(bookie)
        found = _checked(metadata, ledgers, only, output, dry_run=dry_run)
        if found.copies_short:
            ctx.exit(ExitCode.FAILED)
        return
    if ledgers or bookie is not None:
        raise click.UsageError("LEDGER and --bookie go with --now: the auditor checks everything")
    asyncio.run(_ask_auditor(metadata, dry_run=dry_run))


async def _ask_auditor(metadata: str, *, dry_run: bool) -> None:
    async with await stores.connect(metadata, _WAIT_S) as store:
        tree = store.under_replication
        auditor = await tree.auditor()
        if dry_run:
            message(f"the auditor, {auditor}, would be asked to check every ledger")
            return
        delay = await tree.recovery_delay()
        await tree.set_last_full_check_ms(FULL_CHECK_REQUESTED)
        if delay is not None:
            await tree.set_recovery_delay_s(
                delay.seconds
            )  # written again, it asks for a look at once
    message(
        f"the auditor, {auditor}, checks every ledger now: {cluster_command('autorecovery', 'status')}"
        if auditor
        else "there is no auditor: the next one checks every ledger first; --now does it here"
    )


def _checked(
    metadata: str,
    ledgers: tuple[LedgerId, ...],
    only: BookieId | None,
    output: Format,
    *,
    dry_run: bool,
) -> CheckResult:
    from bkbox.cli.lib.progress_bar import ProgressBar
    from bkbox.repair.job_run import JobRun
    from bkbox.repair.replication import standalone
    from bkbox.repair.replication.auditor import Auditor, AuditorSettings

    results: list[CheckResult] = []

    async def show(work: JobRun, progress: ProgressBar) -> None:
        shown = 0
        while True:
            await asyncio.sleep(_SHOWN_EVERY_S)
            done = work.report()["done"]["ledgers"]
            progress.add_progress(done - shown, 0)
            shown = done

    async def go(found: standalone.Alone) -> None:
        work = found.work(0)
        standalone.stop_on_signals(work)
        auditor = Auditor(
            work,
            found.store,
            found.client,
            AuditorSettings(),
            name=standalone.host_name(),
            rng=found.rng,
            wall_ms=standalone.wall_ms,
            monotonic_s=time.monotonic,
        )
        with ProgressBar() as progress:
            progress.stage("comparing", len(ledgers) or None)
            showing = asyncio.ensure_future(show(work, progress))
            try:
                marked = await auditor.check_all_ledgers(ledgers, only, dry_run=dry_run)
            finally:
                showing.cancel()
        report = work.report()
        for each in report["blockers"]:
            message(f"ledger {each['ledger']}: {each['reason']}; {each['what_to_do']}")
        counts = report["counts"]
        short, missing = counts.get("copies_short", 0), counts.get("lists_missing", 0)
        marked = 0 if dry_run else marked
        results.append(CheckResult(report["done"]["ledgers"], short, marked, missing))

    asyncio.run(standalone.in_cluster(metadata, ClientOptions(), go))
    (found,) = results
    if output != "table":
        print_document(asdict(found), output)
    else:
        print_fields(
            [
                ("ledgers checked", found.ledgers),
                ("copies short", found.copies_short),
                ("ledgers marked", found.marked),
                ("times that a bookie did not say what it has", found.lists_missing),
            ]
        )
    return found


# ---- list -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MarkedLedger:
    """A ledger that is marked. ``live_copies``: of the write set that has fewest; None if the ledger was deleted.
    ``worker``: the holder of its lock."""

    ledger: int
    missing: list[str]
    marked_ms: int | None
    live_copies: int | None
    write_quorum: int | None
    worker: str | None
    why: str


@autorecovery.command("list")
@metadata_option
@click.option("--missing", metavar="BOOKIE", help="Only ledgers whose mark names this bookie.")
@output_option
@prints(list[MarkedLedger])
def list_marked(metadata: str, missing: str | None, output: Format) -> None:
    """List the ledgers that lack copies: which bookies they miss, since when, why, and which worker holds each.

    \b
    Example:
      bkbox autorecovery list --metadata sqlite:cluster.db
    """

    async def go() -> list[MarkedLedger]:
        async with await stores.connect(metadata, _WAIT_S) as store:
            registered = frozenset(await store.bookies())
            found = []
            async for ledger in store.under_replication.ledgers():
                each = await _marked(store, ledger, registered)
                if each is not None and (missing is None or missing in each.missing):
                    found.append(each)
            return found

    if missing is not None:
        missing = bookie_id(missing)
    found = asyncio.run(go())
    if output != "table":
        print_document([asdict(each) for each in found], output)
        return
    print_table(
        ["ledger", "missing on", "marked for", "copies alive", "of", "worker", "why"],
        [
            (
                each.ledger,
                each.missing,
                None if each.marked_ms is None else _age(each.marked_ms),
                each.live_copies,
                each.write_quorum,
                each.worker,
                each.why,
            )
            for each in found
        ],
    )


async def _marked(
    store: MetadataStore, ledger: LedgerId, registered: frozenset[BookieId]
) -> MarkedLedger | None:
    try:
        mark = await store.under_replication.find(ledger)
    except MetadataError as error:
        return MarkedLedger(ledger, [], None, None, None, None, str(error))
    if mark is None:  # repaired meanwhile
        return None
    copies = quorum = None
    try:
        found = (await store.read_ledger(ledger)).value
    except NoSuchLedgerError:
        why = "the ledger was deleted"
    except MetadataError as error:
        why = str(error)
    else:
        unavailable = found.bookies() - registered
        copies, quorum = live_copies(found, unavailable), found.write_quorum
        why = _why(mark, unavailable)
    worker = await store.under_replication.holder(ledger)
    return MarkedLedger(ledger, list(mark.replicas), mark.ctime_ms, copies, quorum, worker, why)


def _why(mark: UnderreplicatedLedger, unavailable: frozenset[BookieId]) -> str:
    if not mark.replicas:
        return "Java's auditor asks for another placement"
    down = sorted(unavailable)
    if down:
        return f"not registered: {', '.join(down)}"
    return "its bookies are registered: entries are missing, or a bookie is back"


def _seconds(value: int | None) -> str | None:
    return None if value is None else f"{value} s"


def _age(since_ms: int) -> str:
    seconds = max(0, time.time_ns() // 1_000_000 - since_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
