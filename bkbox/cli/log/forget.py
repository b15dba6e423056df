"""``bkbox log forget``: continues a log without a ledger that was deleted by hand."""

from __future__ import annotations

import asyncio

import click

from bkbox.base.ids import LedgerId
from bkbox.cli.lib.options import (
    confirm,
    dry_run_option,
    ledger_argument,
    metadata_option,
    yes_option,
)
from bkbox.cli.lib.output import message, outcome_option
from bkbox.cli.log.write import log_argument
from bkbox.client import connect
from bkbox.client.log import Log, LostLedger
from bkbox.errors import NoSuchLedgerError


@click.command(no_args_is_help=True)
@log_argument
@ledger_argument
@metadata_option
@dry_run_option
@yes_option
@outcome_option
def forget(name: str, ledger_id: LedgerId, metadata: str, dry_run: bool, yes: bool) -> None:
    """Take a ledger that was deleted by hand out of a log.

    Readers and would-be writers of the log say that the ledger is missing, and go no further. Afterwards they go on
    with the next ledger; a reader that asks for a position in the lost one is told so. A ledger that exists
    is never taken out.

    \b
    Example:
      bkbox log forget orders 7 --metadata sqlite:cluster.db --dry-run
      bkbox log forget orders 7 --metadata sqlite:cluster.db
    """

    async def go() -> None:
        async with connect(metadata) as client:
            log = Log(client, name)
            missing = {lost.ledger_id: lost for lost in await log.lost()}
            lost = missing.get(ledger_id)
            if lost is None:
                others = ", ".join(map(str, missing)) or "none"
                raise NoSuchLedgerError(
                    f"ledger {ledger_id} is not one that log {name} misses (missing: {others}): nothing was changed"
                )
            message(_text(name, lost))
            if dry_run:
                message("nothing was changed")
                return
            confirm(f"Take ledger {ledger_id} out of log {name}?", yes=yes)
            await log.forget(ledger_id)
        message(f"log {name} goes on without ledger {ledger_id}")

    asyncio.run(go())


def _text(name: str, lost: LostLedger) -> str:
    upto = f"to before {lost.end}" if lost.end is not None else "on, to the end"
    text = f"log {name} is without its records from {lost.start} {upto}: they can no longer be read"
    if lost.ends_writer:
        text += (
            "; its writer, if there is one, has to be stopped first: what it writes to that ledger is "
            "lost as well, and it is ended when it goes on to another one"
        )
    return text
