"""``bkbox ledger end``: close a ledger that recovery cannot close, once its operator has seen what is lost."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import redirect_stdout

import click

from bkbox.cli.ledgerrepair import answers, bookie, pairs, print_answers
from bkbox.cli.ledgerviews import Ledger, print_ledger
from bkbox.cli.options import (
    dry_run_option,
    ledger_argument,
    metadata_option,
    password_option,
    yes_option,
)
from bkbox.cli.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
)
from bkbox.client import connect
from bkbox.client.ending import Ended
from bkbox.client.survey import Survey
from bkbox.errors import NothingToEndError
from bkbox.ids import LedgerId
from bkbox.protocol.ending import Ending, text_of

_SHOWN_HOLES = 5


@click.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@password_option
@click.option(
    "--accept-loss",
    is_flag=True,
    required=True,
    help="You know that what is not found is lost for good.",
)
@click.option(
    "--plug", is_flag=True, help="Put no-op entries where nobody has one, and keep what is behind."
)
@dry_run_option
@yes_option
@output_option
@prints(Ledger, dict[str, object])
def end(
    ledger_id: LedgerId,
    metadata: str,
    password: bytes | None,
    accept_loss: bool,
    plug: bool,
    dry_run: bool,
    yes: bool,
    output: Format,
) -> None:
    """End a ledger that recovery cannot close, at the last entry that is found.

    Shows what would be lost and who answered what, and asks for the ledger's id before it changes
    anything. Recovery is tried once more first. With --plug entry ids that nobody has, which readers
    could never come past, get entries without a payload; this is done in a closed ledger, too. What
    was given up is kept in the ledger's metadata. Bookies then take it out of limbo by themselves.

    \b
    Example:
      bkbox ledger end 7 --accept-loss --dry-run --metadata sqlite:cluster.db
      bkbox ledger end 7 --accept-loss --metadata sqlite:cluster.db
    """

    async def go() -> None:
        async with connect(metadata) as client:
            ender = await client.ender(ledger_id, password, plug=plug)
            plan, survey = await ender.plan()
            if dry_run and output != "table":
                print_document(_ending(plan, survey), output)
                return
            with redirect_stdout(sys.stdout if dry_run else sys.stderr):
                _print_ending(plan, survey)
            if plan.nothing_to_do:
                raise NothingToEndError(plan.nothing_to_do)
            if dry_run:
                return
            if not yes and click.prompt("The ledger's id, to do it", err=True) != str(ledger_id):
                raise click.Abort
            done = await ender.end(plan, time.time_ns() // 1_000_000)
        _print_ended(done, output)

    assert accept_loss  # click requires it
    asyncio.run(go())


def _ending(plan: Ending, survey: Survey) -> dict[str, object]:
    return {
        "ledger_id": plan.metadata.ledger_id,
        "state": plan.metadata.state.name,
        "nothing_to_do": plan.nothing_to_do or None,
        "last_add_confirmed": plan.diagnosis.lac,
        "end": plan.end,
        "acknowledged_and_lost": pairs(plan.acknowledged),
        "found_and_dropped": pairs(plan.dropped),
        "plugged" if plan.plug else "unreadable": pairs(plan.holes),
        "bookies": [bookie(report) for report in survey.reports.values()],
        "answers": answers(survey, _doubtful(plan)),
    }


def _print_ending(plan: Ending, survey: Survey) -> None:
    holes = "ids that get no-op entries" if plan.plug else "ids that stay unreadable"
    silent = [str(r.bookie) for r in survey.reports.values() if not r.alive or r.limbo]
    unknown = None
    if plan.closes and silent:
        behind = max(plan.end, plan.diagnosis.lac) + 1
        unknown = f"entries from {behind} on, if {', '.join(silent)} acknowledged any"
    print_fields(
        [
            ("ledger", plan.metadata.ledger_id),
            ("state", plan.metadata.state.name),
            ("last add confirmed", plan.diagnosis.lac),
            ("would end at entry", plan.end),
            ("acknowledged and lost", text_of(plan.acknowledged) or None),
            ("found, and behind the end", text_of(plan.dropped) or None),
            (holes, text_of(plan.holes) or None),
            ("may be lost as well", unknown),
        ]
    )
    click.echo()
    rows = [tuple(bookie(report).values()) for report in survey.reports.values()]
    columns = ["bookie", "alive", "answers", "limbo", "fenced", "entries", "last entry", "LAC"]
    print_table(columns, rows, title="bookies")
    print_answers(survey, _doubtful(plan))


def _doubtful(plan: Ending) -> list[int]:
    """The first ids of what is given up, and the one at which it ends."""
    first = [each.start for each in (*plan.holes, *plan.acknowledged, *plan.dropped)]
    at = [plan.end + 1] if plan.closes else []
    return sorted({*first[:_SHOWN_HOLES], *at})


def _print_ended(done: Ended, output: Format) -> None:
    if done.thin:
        message(f"{done.thin} entries were written on fewer bookies than the ack quorum")
    if done.unfenced:
        message(f"not reached, and so not fenced: {', '.join(done.unfenced)}")
    print_ledger(done.metadata, output)
