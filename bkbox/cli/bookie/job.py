"""``bkbox job …``: lists, shows, watches, throttles, pauses and cancels a bookie's jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime

import click

from bkbox.api.admin import client
from bkbox.base.text import counted, rate_text
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import bytes_per_second
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
    size,
    watch_option,
)
from bkbox.cli.lib.target import Target, target_option
from bkbox.jobs.job import Job, JobAction, JobState, to_json
from bkbox.jobs.registry import Registry

_ENDED_SHOWN = 20
_POLL_EVERY_S = 1.0

_job_argument = click.argument("job_id", metavar="JOB", type=click.IntRange(min=1))
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Say which job it is about, and change nothing."
)


@click.group(no_args_is_help=True)
def job() -> None:
    """See the long work of a bookie, slow it down, pause or cancel it.

    Repair, draining, collection, scrubbing and the like are jobs. They are started by the bookie itself or by their
    own commands.

    \b
    Example:
      bkbox job list --config bookie.toml
    """


def _control_command(command: Callable[..., None]) -> click.Command:
    """A command of ``job`` that changes one job and prints it."""
    for option in (prints(Job), output_option, _dry_run, target_option, _job_argument):
        command = option(command)
    return job.command(no_args_is_help=True)(command)


@job.command("list")
@target_option
@click.option("--all", "everything", is_flag=True, help="All that are remembered.")
@watch_option
@output_option
@prints(list[Job])
def list_jobs(target: Target, everything: bool, output: Format) -> None:
    """List the jobs that go on, and the last ones that have ended.

    \b
    Example:
      bkbox job list --config bookie.toml
      bkbox job list --bookie https://10.0.0.5:8080 --token-file token
    """
    found = client.jobs(target.address)
    if not everything:
        ended = [each for each in found if each.state.ended][-_ENDED_SHOWN:]
        found = [each for each in found if not each.state.ended or each in ended]
    if output != "table":
        print_document([to_json(each) for each in found], output)
    else:
        print_jobs(found)


@job.command(no_args_is_help=True)
@_job_argument
@target_option
@output_option
@prints(Job)
def show(job_id: int, target: Target, output: Format) -> None:
    """Show one job: how far it is, how long it will take, and which ledgers block it.

    \b
    Example:
      bkbox job show 12 --config bookie.toml
    """
    _print(client.job(target.address, job_id), output)


@job.command()
@click.argument("job_id", metavar="[JOB]", type=click.IntRange(min=1), required=False)
@target_option
@output_option
@prints(Job)
@click.pass_context
def watch(ctx: click.Context, job_id: int | None, target: Target, output: Format) -> None:
    """Follow one job, or all that go on, until they have ended; a line, or a document, whenever something changes.

    Exit code 0: done; 1: the job failed or was cancelled.

    \b
    Example:
      bkbox job watch 12 --config bookie.toml
    """
    address = target.address
    followed = {job_id} if job_id is not None else set[int]()
    printed: dict[int, str] = {}
    while True:
        found = [client.job(address, job_id)] if job_id is not None else client.jobs(address)
        if job_id is None:
            followed |= {each.id for each in found if not each.state.ended}
        for each in found:
            line = _line(each)
            if each.id in followed and printed.get(each.id) != line:
                printed[each.id] = line
                if output != "table":
                    print_document(to_json(each), output, one_of_many=True)
                    continue
                click.echo(f"{datetime.now():%H:%M:%S}  {line}")  # noqa: DTZ005 the clock on the wall
        sys.stdout.flush()
        going_on = [each for each in found if each.id in followed and not each.state.ended]
        if not going_on:
            ends = [each.state for each in found if each.id in followed]
            ctx.exit(ExitCode.OK if all(e is JobState.DONE for e in ends) else ExitCode.FAILED)
        time.sleep(_POLL_EVERY_S)


@_control_command
def cancel(job_id: int, target: Target, dry_run: bool, output: Format) -> None:
    """Cancel a job. It ends with nothing half done; see with "bkbox job show" when it has.

    The limbo job cannot be cancelled: pause it instead.

    \b
    Example:
      bkbox job cancel 12 --config bookie.toml
    """
    _control(target, job_id, JobAction.CANCEL, output, dry_run=dry_run)


@_control_command
def pause(job_id: int, target: Target, dry_run: bool, output: Format) -> None:
    """Let a job rest until "bkbox job resume", over restarts of the bookie too.

    \b
    Example:
      bkbox job pause 12 --config bookie.toml
    """
    _control(target, job_id, JobAction.PAUSE, output, dry_run=dry_run)


@_control_command
def resume(job_id: int, target: Target, dry_run: bool, output: Format) -> None:
    """Let a job that was paused go on.

    \b
    Example:
      bkbox job resume 12 --config bookie.toml
    """
    _control(target, job_id, JobAction.RESUME, output, dry_run=dry_run)


@job.command(no_args_is_help=True)
@click.argument("words", metavar="[JOB] RATE", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="All jobs together, until the bookie ends.")
@target_option
@_dry_run
@output_option
@prints(Job)
def rate(
    words: tuple[str, ...], everything: bool, target: Target, dry_run: bool, output: Format
) -> None:
    """Change the speed limit of a job, or of all jobs together, while they run.

    RATE is a number of bytes per second with its unit, as 20MB/s or 20MiB/s; 0 or "unlimited" for no limit. For all
    together it bounds what they take from the disks and what they take from the network, each; "config" puts back what
    the configuration says. A job's own limit lasts as long as the job.

    \b
    Example:
      bkbox job rate 12 50MiB/s --config bookie.toml
      bkbox job rate --all 200MiB/s --config bookie.toml
    """
    address = target.address
    match words:
        case (text,) if everything:
            of_all = None if text == "config" else bytes_per_second(text)
            if dry_run:
                message(f"would change the speed limit of all jobs to {text}; nothing was changed")
                return
            client.pace_jobs(address, of_all)
        case (number, text) if number.isdecimal() and not everything:
            limit = bytes_per_second(text)
            if dry_run:
                _would(
                    client.job(address, int(number)), f"change to {text} the speed limit of", output
                )
                return
            found = client.control_job(address, int(number), JobAction.RATE, bytes_per_second=limit)
            _print(found, output)
            return
        case _:
            raise click.UsageError("give a job and a rate, or --all and a rate")
    said = "what the configuration says" if of_all is None else rate_text(of_all)
    message(f"the speed limit of all jobs together is now {said}")


def _control(
    target: Target, job_id: int, action: JobAction, output: Format, *, dry_run: bool
) -> None:
    address = target.address
    if dry_run:
        jobs = Registry(client.jobs(address))
        jobs.control(job_id, action)  # raises if the bookie would refuse
        _would(jobs.get(job_id), action.value, output)
    else:
        _print(client.control_job(address, job_id, action), output)


def _would(found: Job, action: str, output: Format) -> None:
    message(f"would {action} job {found.id} ({found.kind.value}); nothing was changed")
    _print(found, output)


def print_jobs(jobs: Sequence[Job], *, title: str = "") -> None:
    """Prints a table with a line for each job."""
    print_table(
        ["job", "kind", "of", "state", "%", "done", "rate", "time left", "blocked", "step"],
        [
            (
                each.id,
                each.kind.value,
                _arguments(each),
                _state(each),
                _percent(each),
                _done(each),
                _rate(each),
                _time(each.eta_s),
                each.blocked or None,
                (each.error or each.step).partition("\n")[0],
            )
            for each in jobs
        ],
        title=title,
    )


def _print(found: Job, output: Format) -> None:
    if output != "table":
        print_document(to_json(found), output)
        return
    print_fields(
        [
            ("job", found.id),
            ("kind", found.kind.value),
            ("of", _arguments(found)),
            ("state", _state(found)),
            ("step", found.step),
            ("percent", _percent(found)),
            ("done", _done(found)),
            (
                "expected",
                _amount(found.expected.ledgers, found.expected.entries, found.expected.bytes),
            ),
            ("rate", _rate(found)),
            ("time left", _time(found.eta_s)),
            ("speed limit", rate_text(found.bytes_per_second)),
            *((name.replace("_", " "), count) for name, count in sorted(found.counts.items())),
            ("started by", "the bookie itself" if found.automatic else "an operator"),
            ("created", _moment(found.created_ms)),
            ("started", _moment(found.started_ms)),
            ("ended", _moment(found.ended_ms)),
            ("error", found.error or None),
            ("blocked ledgers", found.blocked),
        ]
    )
    if found.blockers:
        click.echo()
        print_table(
            ["ledger", "why", "what to do"],
            [(each.ledger, each.reason, each.what_to_do) for each in found.blockers],
            title="blocked",
        )


def _line(found: Job) -> str:
    parts = [
        f"job {found.id} {found.kind.value}",
        _state(found),
        f"{_percent(found)}%" if found.percent is not None else "",
        _done(found) or "",
        _rate(found) or "",
        f"{_time(found.eta_s)} left" if found.eta_s is not None else "",
        f"{found.blocked} blocked" if found.blocked else "",
        (found.error or found.step).partition("\n")[0],
    ]
    return "  ".join(part for part in parts if part)


def _state(found: Job) -> str:
    """The state, and a request that has not taken effect yet."""
    if found.asked == "cancel":
        return f"{found.state.value}, being cancelled"
    if found.asked == "pause" and found.state is not JobState.PAUSED:
        return f"{found.state.value}, being paused"
    return found.state.value


def _arguments(found: Job) -> str:
    return " ".join(f"{name}={text}" for name, text in sorted(found.arguments.items()))


def _percent(found: Job) -> str | None:
    return None if found.percent is None else f"{found.percent:.1f}"


def _done(found: Job) -> str | None:
    return _amount(found.done.ledgers or None, found.done.entries or None, found.done.bytes or None)


def _amount(ledgers: int | None, entries: int | None, count: int | None) -> str | None:
    parts = [
        counted(ledgers, "ledger") if ledgers is not None else "",
        counted(entries, "entry") if entries is not None else "",
        size(count) if count is not None else "",
    ]
    return ", ".join(part for part in parts if part) or None


def _rate(found: Job) -> str | None:
    if found.rate.bytes:
        return _per_second(round(found.rate.bytes))
    if found.rate.entries:
        return f"{found.rate.entries:.0f} entries/s"
    return f"{found.rate.ledgers:.1f} ledgers/s" if found.rate.ledgers else None


def _per_second(count: int) -> str | None:
    return f"{size(count)}/s" if count else None


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _moment(wall_ms: int | None) -> str | None:
    if wall_ms is None:
        return None
    return f"{datetime.fromtimestamp(wall_ms / 1000):%Y-%m-%d %H:%M:%S}"  # noqa: DTZ006 local time
