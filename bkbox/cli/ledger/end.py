"""``bkbox ledger end``: closes ledgers that recovery cannot close, once the operator has accepted the loss."""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
import sys
from contextlib import redirect_stdout

import click

from bkbox.base.commandline import cluster_command
from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.cli.ledger.format_ledger import Ledger, print_ledger
from bkbox.cli.ledger.repair import bookie, pairs, print_responses, responses
from bkbox.cli.ledger.stuck import StuckReport, end_stuck, print_report, print_stuck, report_of
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import (
    dry_run_option,
    metadata_option,
    optional_ledger_argument,
    password_option,
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
from bkbox.client import connect
from bkbox.client.ledger.force_close import ForceCloseResult
from bkbox.client.ledger.ledger_inspection import LedgerInspection
from bkbox.errors import NothingToEndError
from bkbox.protocol.force_close_plan import ForceClosePlan, text_of
from bkbox.repair.limbo.stuck import stuck_ledgers
from bkbox.repair.replication.standalone import host_name, wall_ms
from bkbox.wire.metadata.loss import losses_of, unknown_beyond

_SHOWN_HOLES = 5


@click.command()
@optional_ledger_argument
@metadata_option
@password_option
@click.option(
    "--stuck",
    is_flag=True,
    help="All ledgers that cannot be recovered because too many of their bookies are in limbo.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="You know that what is not found is lost for good. Needed without --dry-run.",
)
@click.option(
    "--plug",
    is_flag=True,
    help="Put no-op entries where no bookie has one, and keep what is behind.",
)
@dry_run_option
@yes_option
@output_option
@click.pass_context
@prints(Ledger, StuckReport, dict[str, object])
def end(
    ctx: click.Context,
    ledger_id: LedgerId | None,
    metadata: str,
    password: bytes | None,
    stuck: bool,
    accept_loss: bool,
    plug: bool,
    dry_run: bool,
    yes: bool,
    output: Format,
) -> None:
    """End a ledger that recovery cannot close, at the last entry that is found.

    Shows what would be lost and what each bookie answered, and asks for the ledger's id before it changes
    anything. Recovery is tried once more first. With --plug entry ids that no bookie has, which readers
    could never come past, get entries without a payload; this is done in a closed ledger, too. What
    was given up is kept in the ledger's metadata. Bookies then take it out of limbo by themselves.

    With --stuck it lists and explains every ledger of the cluster that waits for bookies in limbo, as
    a power cut of all hosts leaves them, asks for their number, ends them one after the other, and
    prints one record of what may be lost. A ledger for which a bookie that is away may still answer is
    left alone. Exit code 7: not all could be ended.

    \b
    Example:
      bkbox ledger end 7 --accept-loss --dry-run --metadata sqlite:cluster.db
      bkbox ledger end 7 --accept-loss --metadata sqlite:cluster.db
      bkbox ledger end --stuck --dry-run --metadata sqlite:cluster.db
      bkbox ledger end --stuck --accept-loss --metadata sqlite:cluster.db -o json > lost.json
    """
    if not accept_loss and not dry_run:
        raise click.UsageError("without --dry-run it needs --accept-loss")
    if stuck != (ledger_id is None):
        raise click.UsageError("give either a ledger or --stuck")

    async def one(ledger: LedgerId) -> None:
        async with connect(metadata) as client:
            ender = await client.force_close(ledger, password, plug=plug)
            plan, inspection = await ender.plan()
            if dry_run and output != "table":
                print_document(_ending(plan, inspection), output)
                return
            with redirect_stdout(sys.stdout if dry_run else sys.stderr):
                _print_ending(plan, inspection)
            if plan.nothing_to_do:
                raise NothingToEndError(plan.nothing_to_do)
            if dry_run:
                return
            if not yes and click.prompt("The ledger's id, to do it", err=True) != str(ledger):
                raise click.Abort
            done = await ender.end(plan, wall_ms(), _operator())
        _print_ended(plan, done, output)

    async def many() -> bool:
        """True if all were closed."""
        async with connect(metadata) as client:
            found = await stuck_ledgers(client, plug=plug)
            at_ms, by, run = wall_ms(), _operator(), secrets.token_hex(8)
            if dry_run and output != "table":
                print_report(report_of(found, at_ms, by, run=""), output)
                return True
            with redirect_stdout(sys.stdout if dry_run else sys.stderr):
                print_stuck(found)
            if dry_run or not found.stuck:
                return True
            question = f"The number of ledgers ({len(found.stuck)}), to end them"
            if not yes and click.prompt(question, err=True) != str(len(found.stuck)):
                raise click.Abort
            report = await end_stuck(found, at_ms, by, run)
        print_report(report, output)
        return not report.not_ended

    if ledger_id is not None:
        asyncio.run(one(ledger_id))
    elif not asyncio.run(many()):
        ctx.exit(ExitCode.TRY_AGAIN)


def _operator() -> str:
    """User and host, for the record of loss."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = f"uid {os.getuid()}"
    return f"{user}@{host_name()}"


def _ending(plan: ForceClosePlan, inspection: LedgerInspection) -> dict[str, object]:
    return {
        "ledger_id": plan.metadata.ledger_id,
        "state": plan.metadata.state.name,
        "nothing_to_do": plan.nothing_to_do or None,
        "last_add_confirmed": plan.diagnosis.lac,
        "end": plan.end,
        "acknowledged_and_lost": pairs(plan.acknowledged),
        "perhaps_acknowledged_and_lost": pairs(plan.maybe_acknowledged),
        "found_and_dropped": pairs(plan.dropped),
        "unknown_after": plan.unknown_after,
        "plugged" if plan.plug else "unreadable": pairs(plan.holes),
        "bookies": [bookie(report) for report in inspection.reports.values()],
        "answers": responses(inspection, _unresolved_entries(plan)),
    }


def _print_ending(plan: ForceClosePlan, inspection: LedgerInspection) -> None:
    holes = "ids that get no-op entries" if plan.plug else "ids that stay unreadable"
    unknown = None
    if plan.unknown_after is not None:
        silent = [str(r.bookie) for r in inspection.reports.values() if not r.alive or r.limbo]
        cannot_tell = f"; {', '.join(silent)} cannot tell" if silent else ""
        unknown = f"{unknown_beyond(plan.unknown_after)}{cannot_tell}"
    print_fields(
        [
            ("ledger", plan.metadata.ledger_id),
            ("state", plan.metadata.state.name),
            ("last add confirmed", plan.diagnosis.lac),
            ("would end at entry", plan.end),
            ("acknowledged and lost", text_of(plan.acknowledged) or None),
            ("perhaps acknowledged, and lost", text_of(plan.maybe_acknowledged) or None),
            ("found, and behind the end", text_of(plan.dropped) or None),
            (holes, text_of(plan.holes) or None),
            ("may be lost as well", unknown),
        ]
    )
    click.echo()
    rows = [tuple(bookie(report).values()) for report in inspection.reports.values()]
    columns = ["bookie", "alive", "answers", "limbo", "fenced", "entries", "last entry", "LAC"]
    print_table(columns, rows, title="bookies")
    print_responses(inspection, _unresolved_entries(plan))


def _unresolved_entries(plan: ForceClosePlan) -> list[int]:
    """The first ids of each range that is given up, and the id at which the ledger ends."""
    given_up = (*plan.holes, *plan.acknowledged, *plan.maybe_acknowledged, *plan.dropped)
    first = [each.start for each in given_up]
    at = [plan.end + 1] if plan.closes else []
    return sorted({*first[:_SHOWN_HOLES], *at})


def _print_ended(plan: ForceClosePlan, done: ForceCloseResult, output: Format) -> None:
    if done.thin:
        message(
            f"{counted(done.thin, 'entry', 'were')} written on fewer bookies than the ack quorum"
        )
    if done.unfenced:
        message(f"not reached, and so not fenced: {', '.join(done.unfenced)}")
    if done.record is None and not losses_of(done.metadata):
        message("recovery has closed it: nothing was given up")
        if plan.holes:
            number = done.metadata.ledger_id
            explained = cluster_command("ledger", "explain", number)
            message(f"found nowhere: entries {text_of(plan.holes)}; {explained}")
    elif done.record is None:
        message("another caller has ended it meanwhile")
    print_ledger(done.metadata, output)
