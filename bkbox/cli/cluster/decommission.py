"""``bkbox decommission BOOKIE``: removes a bookie from the cluster for good."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.api.admin import client
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.commandline import bookie_command
from bkbox.base.ids import BookieId, bookie_id
from bkbox.base.text import UNLIMITED, counted
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import (
    bytes_per_second,
    config_choice,
    configuration_of,
    confirm,
    metadata_choice,
    metadata_of,
    yes_option,
)
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
)
from bkbox.client.options import ClientOptions
from bkbox.config import metadata_uri
from bkbox.jobs.job import Job, JobKind, JobState
from bkbox.repair.decommission import Decommission, DecommissionScan, still_writable
from bkbox.repair.job_run import JobRun
from bkbox.repair.replication.replication_worker import ReplicationSettings
from bkbox.repair.replication.standalone import (
    Alone,
    host_name,
    in_cluster,
    stop_on_signals,
    wall_ms,
)

_POLL_EVERY_S = 1.0
_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """A ledger that cannot do without the bookie, and why."""

    ledger: int
    entries: int
    must_close: bool
    copies: int
    problem: str


@dataclass(frozen=True, slots=True)
class DecommissionResult:
    """The plan of a bookie's decommission. ``to_be_closed``: ledgers that are open, unless their writers replace
    it; ``problems``: ledgers that cannot do without it.
    """

    bookie: str
    mode: str
    has_cookie: bool
    ledgers: int
    copies: int
    to_be_closed: tuple[int, ...]
    problems: tuple[Problem, ...]


@click.command(no_args_is_help=True)
@click.argument("bookie")
@metadata_choice(f"Do it here, in this cluster: {metadata_uri.FORMS}.")
@config_choice("Have the running bookie of this configuration do it, as a job.")
@click.option("--dry-run", is_flag=True, help="Say what would be copied and what forbids it.")
@click.option("--delete-cookie", is_flag=True, help="Delete its cookie at the end.")
@click.option(
    "--rate",
    default=UNLIMITED,
    show_default=True,
    metavar="RATE",
    help="With --metadata: copy no faster.",
)
@click.option("--spark", is_flag=True, help="With --metadata: have Spark make the copies.")
@click.option("--master", metavar="URL", help="With --spark: where it runs [default: local[*]].")
@yes_option
@output_option
@prints(DecommissionResult)
@click.pass_context
def decommission(
    ctx: click.Context,
    bookie: str,
    metadata: str | None,
    config_file: Path | None,
    dry_run: bool,
    delete_cookie: bool,
    rate: str,
    spark: bool,
    master: str | None,
    yes: bool,
    output: Format,
) -> None:
    """Take a bookie out of the cluster for good: copy all that it has to others.

    Every ledger that names BOOKIE is copied elsewhere, the riskiest first, until no ledger names it. It may be
    running or gone. The bookie of --config itself is made read-only first, and takes entries again if the job is
    cancelled; another one that is writable is refused: make it read-only at its own host.
    Refused, with the ledgers, where one has its last copy on a bookie that is gone, or where too few other bookies are
    there. Open ledgers are left to their writers for a while, then fenced and closed.

    With --spark the copies are made by its tasks, for bookies with millions of ledgers; --rate is then that of a task.
    With --delete-cookie its cookie goes at the end, unless it still runs: without one the cluster does not know it.
    Interrupted, it goes on where it was when it is given again. Exit code 4: refused.

    \b
    Example:
      bkbox decommission 10.0.0.7:3181 --metadata zk://zk1:2181/ledgers --dry-run
      bkbox decommission 10.0.0.7:3181 --config bookie.toml --delete-cookie
    """
    name = bookie_id(bookie)
    if spark and metadata is None:
        raise click.UsageError("--spark is for --metadata: a job of a bookie runs in that bookie")
    if master is not None and not spark:
        raise click.UsageError("--master is for --spark")
    socket, own = None, False
    if metadata is not None:
        metadata = metadata_of(metadata, config_file)
    else:
        config = configuration_of(config_file)
        metadata, socket = config.metadata, admin_socket_path(config)
        own = config.bookie_id == name
    survey = asyncio.run(_survey(metadata, name))
    _print(survey, output)
    if survey.refusal:
        for line in survey.refusal.splitlines():
            message(line)
        ctx.exit(ExitCode.REFUSED)
    if survey.mode == "writable" and not own:
        message(still_writable(name))
        if not dry_run:
            ctx.exit(ExitCode.REFUSED)
    if dry_run:
        return
    first = f"Make {name} read-only, and copy" if own else "Copy"
    confirm(f"{first} {counted(len(survey.ledgers), 'ledger')} away from {name}?", yes=yes)
    if socket is not None:
        ctx.exit(_as_job(socket, name, delete_cookie=delete_cookie))
    if spark:
        _on_spark(metadata, name, bytes_per_second(rate), master, survey)
    asyncio.run(_here(metadata, name, bytes_per_second(rate), delete_cookie=delete_cookie))
    message(f"no ledger names bookie {name} any more")


# ---- as a job of a bookie ---------------------------------------------------------------------------


def _as_job(socket: Path, bookie: BookieId, *, delete_cookie: bool) -> ExitCode:
    arguments = {"bookie": str(bookie)} | ({"delete_cookie": "true"} if delete_cookie else {})
    job = client.start_job(socket, JobKind.DECOMMISSION, arguments)
    message(
        f"job {job.id}; it goes on if this command ends: {bookie_command('job', 'watch', job.id)}"
    )
    printed = ""
    while not job.state.ended:
        time.sleep(_POLL_EVERY_S)
        job = client.job(socket, job.id)
        line = _line(job)
        if line != printed:
            printed = line
            message(line)
    for each in job.blockers:
        message(f"ledger {each.ledger}: {each.reason}; {each.what_to_do}")
    if job.state is JobState.DONE:
        message(f"no ledger names bookie {bookie} any more")
        return ExitCode.OK
    message(f"error: {job.error or job.state.value}")
    return ExitCode.FAILED


def _line(job: Job) -> str:
    percent = "" if job.percent is None else f"{job.percent:.0f} %, "
    done = f"{counted(job.done.ledgers, 'ledger')}, {counted(job.done.entries, 'copy')}"
    return f"{job.state.value}: {percent}{done}; {job.step}"


# ---- on Spark ---------------------------------------------------------------------------------------


def _on_spark(
    metadata: str, bookie: BookieId, rate: int, master: str | None, survey: DecommissionScan
) -> None:
    """Spark makes the copies; the rest of them, and the end, are done in this process."""
    from bkbox.audit.decommission import DecommissionJob
    from bkbox.audit.judgement import ranges_of
    from bkbox.audit.run import cut
    from bkbox.cli.lib.engines import opened
    from bkbox.cli.lib.progress_bar import ProgressBar

    ids = sorted(each.ledger for each in survey.ledgers)
    chunks, _ = cut(ranges_of(ids), None)
    with ProgressBar() as progress, opened("spark", master, 1) as engine:
        progress.stage("copying", len(ids))
        for outcomes in engine.map(DecommissionJob(metadata, bookie, rate), chunks):
            progress.add_progress(len(outcomes), sum(each.size for each in outcomes))


# ---- in this process --------------------------------------------------------------------------------


def _made(alone: Alone, work: JobRun, bookie: BookieId) -> Decommission:
    return Decommission(
        work,
        alone.store,
        alone.client,
        bookie,
        ReplicationSettings(),
        me=None,
        host=host_name(),
        rng=alone.rng,
        wall_ms=wall_ms,
        monotonic_s=time.monotonic,
    )


async def _survey(metadata: str, bookie: BookieId) -> DecommissionScan:
    found: list[DecommissionScan] = []

    async def go(alone: Alone) -> None:
        found.append(await _made(alone, alone.work(0), bookie).scan())

    await in_cluster(metadata, ClientOptions(), go)
    return found[0]


async def _here(metadata: str, bookie: BookieId, rate: int, *, delete_cookie: bool) -> None:
    async def go(alone: Alone) -> None:
        work = alone.work(rate)
        stop_on_signals(work)
        telling = asyncio.ensure_future(_tell(work))
        try:
            await _made(alone, work, bookie).run(delete_cookie=delete_cookie)
        finally:
            telling.cancel()
            for each in work.report()["blockers"]:
                message(f"ledger {each['ledger']}: {each['reason']}; {each['what_to_do']}")

    await in_cluster(metadata, ClientOptions(), go)


async def _tell(work: JobRun) -> None:
    printed = ""
    while True:
        await asyncio.sleep(_POLL_EVERY_S)
        values = work.report()
        done = values["done"]
        line = f"{counted(done['ledgers'], 'ledger')}, {counted(done['entries'], 'copy')}; {values['step']}"
        if line != printed:
            printed = line
            message(line)


# ---- the plan ---------------------------------------------------------------------------------------


def _print(survey: DecommissionScan, output: Format) -> None:
    closing = [each.ledger for each in survey.ledgers if each.must_close]
    copies = sum(each.entries for each in survey.ledgers)
    if output != "table":
        problems = tuple(Problem(**asdict(each)) for each in survey.problems)
        found = DecommissionResult(
            survey.bookie,
            survey.mode,
            survey.has_cookie,
            len(survey.ledgers),
            copies,
            tuple(closing),
            problems,
        )
        print_document(asdict(found), output)
        return
    print_fields(
        [
            ("bookie", survey.bookie),
            ("mode", survey.mode),
            ("cookie", survey.has_cookie),
            ("ledgers that name it", len(survey.ledgers)),
            ("copies to make", copies),
            ("open, closed if their writers keep it", closing[:_SHOWN]),
        ]
    )
    if survey.problems:
        print_table(
            ["ledger", "why it cannot do without"],
            [(each.ledger, each.problem) for each in survey.problems[:_SHOWN]],
            title="problems",
        )
