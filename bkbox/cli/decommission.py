"""``bkbox decommission BOOKIE``: take a bookie out of the cluster for good."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import asdict
from pathlib import Path

import click

from bkbox import config as configuration
from bkbox import metadatauri
from bkbox.admin import client
from bkbox.admin.paths import admin_socket_path
from bkbox.cli.exits import ExitCode
from bkbox.cli.options import FILE, bytes_per_second, confirm, yes_option
from bkbox.cli.output import Format, message, output_option, print_fields, print_json, print_table
from bkbox.client.options import ClientOptions
from bkbox.ids import BookieId, bookie_id
from bkbox.jobs.job import Job, JobKind, JobState
from bkbox.repair.alone import Alone, host_name, in_cluster, stop_on_signals, wall_ms
from bkbox.repair.decommission import Decommission, Survey
from bkbox.repair.replication import ReplicationSettings
from bkbox.repair.running import RunningJob

_LOOK_EVERY_S = 1.0
_SHOWN = 50


@click.command(no_args_is_help=True)
@click.argument("bookie")
@click.option(
    "--metadata", metavar="URI", help=f"Do it here, in this cluster: {metadatauri.FORMS}."
)
@click.option(
    "--config",
    "config_file",
    type=FILE,
    metavar="FILE",
    help="Have the running bookie of this configuration do it, as a job.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be copied and what forbids it.")
@click.option("--delete-cookie", is_flag=True, help="Delete its cookie at the end.")
@click.option(
    "--rate", default="none", metavar="RATE", help="With --metadata: copy so much a second at most."
)
@yes_option
@output_option
@click.pass_context
def decommission(
    ctx: click.Context,
    bookie: str,
    metadata: str | None,
    config_file: Path | None,
    dry_run: bool,
    delete_cookie: bool,
    rate: str,
    yes: bool,
    output: Format,
) -> None:
    """Take a bookie out of the cluster for good: copy all that it has to others.

    Every ledger that names BOOKIE is copied elsewhere, the riskiest first, until no ledger names it. It may be
    running, read-only or gone; while it takes new ledgers this does not end, so make it read-only or stop it.
    Refused, with the ledgers, where one has its last copy on a bookie that is gone, or where too few other bookies are
    there. Open ledgers are left to their writers for a while, then fenced and closed.

    With --delete-cookie its cookie goes at the end, unless it still runs: without one the cluster does not know it.
    Interrupted, it goes on where it was when it is given again. Exit code 4: refused.

    \b
    Example:
      bkbox decommission 10.0.0.7:3181 --metadata zk://zk1:2181/ledgers --dry-run
      bkbox decommission 10.0.0.7:3181 --config bookie.toml --delete-cookie
    """
    name = bookie_id(bookie)
    if (metadata is None) == (config_file is None):
        raise click.UsageError("give either --metadata or --config")
    socket = None
    if config_file is not None:
        config = configuration.load(config_file, os.environ)
        metadata, socket = config.metadata, admin_socket_path(config)
    assert metadata is not None
    survey = asyncio.run(_survey(metadata, name))
    _print(survey, output)
    if survey.refusal:
        for line in survey.refusal.splitlines():
            message(line)
        ctx.exit(ExitCode.REFUSED)
    if dry_run:
        return
    if survey.mode == "writable":
        message(
            f"bookie {name} takes new ledgers: stop it or make it read-only, or this may not end"
        )
    confirm(f"Copy {len(survey.ledgers)} ledgers away from {name}?", yes=yes)
    if socket is not None:
        ctx.exit(_as_job(socket, name, delete_cookie=delete_cookie))
    asyncio.run(_here(metadata, name, bytes_per_second(rate), delete_cookie=delete_cookie))
    message(f"no ledger names bookie {name} any more")


# ---- as a job of a bookie ---------------------------------------------------------------------------


def _as_job(socket: Path, bookie: BookieId, *, delete_cookie: bool) -> ExitCode:
    arguments = {"bookie": str(bookie)} | ({"delete_cookie": "yes"} if delete_cookie else {})
    job = client.start_job(socket, JobKind.DECOMMISSION, arguments)
    message(f"job {job.id}; it goes on if this command ends: bkbox job watch {job.id}")
    told = ""
    while not job.state.ended:
        time.sleep(_LOOK_EVERY_S)
        job = client.job(socket, job.id)
        line = _line(job)
        if line != told:
            told = line
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
    return f"{job.state.value}: {percent}{job.done.ledgers} ledgers, {job.done.entries} copies; {job.step}"


# ---- here -------------------------------------------------------------------------------------------


def _made(alone: Alone, work: RunningJob, bookie: BookieId) -> Decommission:
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


async def _survey(metadata: str, bookie: BookieId) -> Survey:
    found: list[Survey] = []

    async def go(alone: Alone) -> None:
        found.append(await _made(alone, alone.work(0), bookie).survey())

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


async def _tell(work: RunningJob) -> None:
    told = ""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        values = work.report()
        done = values["done"]
        line = f"{done['ledgers']} ledgers, {done['entries']} copies; {values['step']}"
        if line != told:
            told = line
            message(line)


# ---- what is to be done -----------------------------------------------------------------------------


def _print(survey: Survey, output: Format) -> None:
    closing = [each.ledger for each in survey.ledgers if each.must_close]
    copies = sum(each.entries for each in survey.ledgers)
    if output == "json":
        print_json(
            {
                "bookie": survey.bookie,
                "mode": survey.mode,
                "has_cookie": survey.has_cookie,
                "ledgers": len(survey.ledgers),
                "copies": copies,
                "to_be_closed": closing,
                "problems": [asdict(each) for each in survey.problems],
            }
        )
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
