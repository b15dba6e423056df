"""``bkbox cookie …``: the cookies, which bind disks, metadata store and configuration to one bookie."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

import click

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import config_option, confirm, dry_run_option, yes_option
from bkbox.cli.lib.output import (
    Format,
    message,
    outcome_option,
    output_option,
    print_document,
    print_table,
    prints,
)
from bkbox.config.schema import Config
from bkbox.errors import OperatorError
from bkbox.storage.disk.lock import DiskLock
from bkbox.supervisor.boot import cookie_repair
from bkbox.supervisor.boot.cookies import CookieReport


@click.group(no_args_is_help=True)
def cookie() -> None:
    """Show, verify and repair what binds disks to a bookie.

    A cookie lies on every disk and in the metadata store. A bookie whose cookies differ does not
    start: a disk that was lost or swapped must not pass for one that holds its data.

    \b
    Example:
      bkbox cookie verify --config bookie.toml
    """


@dataclass(frozen=True, slots=True)
class StoredCookie:
    """A cookie as it is stored; None where there is none. ``where``: a disk, or the metadata store."""

    where: str
    cookie: str | None


@cookie.command()
@config_option
@output_option
@prints(list[StoredCookie])
def show(config: Config, output: Format) -> None:
    """Show the cookies as they are stored.

    \b
    Example:
      bkbox cookie show --config bookie.toml
    """
    report = asyncio.run(cookie_repair.inspect(config))
    of_disks = (StoredCookie(disk.path, disk.text) for disk in report.disks)
    found = [StoredCookie("metadata store", report.metadata), *of_disks]
    if output != "table":
        print_document([asdict(each) for each in found], output)
        return
    for each in found:
        click.echo(f"{each.where}:")
        for line in (each.cookie or "no cookie").splitlines():
            click.echo(f"  {line}")


@cookie.command()
@config_option
@output_option
@prints(CookieReport)
@click.pass_context
def verify(ctx: click.Context, config: Config, output: Format) -> None:
    """Compare the cookies with each other and with the configuration.

    Exit code 0 means that the bookie would start with them, 4 that it would refuse.

    \b
    Example:
      bkbox cookie verify --config bookie.toml
    """
    report = asyncio.run(cookie_repair.inspect(config))
    if output != "table":
        print_document(asdict(report), output)
    else:
        _print_report(report)
    if not report.ok:
        ctx.exit(ExitCode.REFUSED)


@cookie.command()
@config_option
@dry_run_option
@yes_option
@click.option(
    "--accept-older-metadata",
    "older_metadata",
    is_flag=True,
    help="Go on with a metadata store that is an older copy of itself: ledgers that were made since are not in it, and "
    "what is on the disks of these is collected.",
)
@outcome_option
def repair(config: Config, dry_run: bool, yes: bool, older_metadata: bool) -> None:
    """Take changed disks in: stamp the cookies anew and mark what may be missing.

    Says what it will do and asks. Refuses while the bookie runs, and never stamps over a disk of
    another bookie or cluster. What was on a lost disk is copied back from other bookies after the
    next start; until then the bookie does not deny any entry that it may have held. A disk that is an
    older copy of itself is taken in as a lost one.

    \b
    Example:
      bkbox cookie repair --config bookie.toml --dry-run
      bkbox cookie repair --config bookie.toml
    """
    _refuse_while_running(config)

    async def go() -> None:
        plan = await cookie_repair.plan_repair(config, older_metadata=older_metadata)
        if plan.refusal is not None:
            raise OperatorError(plan.refusal)
        if not plan.steps:
            message("nothing to do: the cookies match")
            return
        message("this will:")
        for step in plan.steps:
            message(f"  - {step}")
        if dry_run:
            message("nothing was changed")
            return
        confirm("Go on?", yes=yes)
        await cookie_repair.apply_repair(config, older_metadata=older_metadata)
        message("done")

    asyncio.run(go())


def _refuse_while_running(config: Config) -> None:
    """Checked before the operator is asked to confirm; the repair itself takes the locks again and keeps them."""
    for disk in config.disks:
        if disk.is_dir():
            DiskLock(disk).release()


def _print_report(report: CookieReport) -> None:
    if report.ok:
        click.echo("cookies match")
        return
    print_table(
        ["where", "field", "expected", "found"],
        [(each.where, each.field, each.expected, each.found) for each in report.differences],
        title="differences",
    )
    for disk in report.disks:
        if disk.problem is not None:
            click.echo(f"{disk.path}: {disk.problem}")
            if disk.fix is not None:
                click.echo(f"  mend it with: {disk.fix}")
    message(report.advice)
