"""``bkbox ledger …``: work with ledgers from the command line."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict, dataclass

import click

from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.cli.ledger.create_ledger import create_ledger
from bkbox.cli.ledger.end import end
from bkbox.cli.ledger.entries import read, write
from bkbox.cli.ledger.format_ledger import (
    Ledger,
    LostLedger,
    Summary,
    print_ledger,
    print_lost,
    summary,
)
from bkbox.cli.ledger.repair import explain, recover
from bkbox.cli.lib.options import (
    NewLedger,
    confirm,
    dry_run_option,
    ledger_argument,
    metadata_option,
    password_option,
    quorum_options,
    yes_option,
)
from bkbox.cli.lib.output import (
    Format,
    message,
    outcome_option,
    output_option,
    print_document,
    print_table,
    prints,
)
from bkbox.client import connect
from bkbox.errors import NoSuchLedgerError
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState


@click.group(no_args_is_help=True)
def ledger() -> None:
    """Create, list, show, read, write, recover, explain, end and delete ledgers.

    \b
    Example:
      bkbox ledger list --metadata sqlite:cluster.db
    """


for _command in (read, write, recover, explain, end):
    ledger.add_command(_command)


@ledger.command("list")
@metadata_option
@click.option(
    "--lost",
    is_flag=True,
    help="Only ledgers that were ended with loss accepted, and what each of them lost.",
)
@output_option
@prints(list[Summary], list[LostLedger])
def list_ledgers(metadata: str, lost: bool, output: Format) -> None:
    """List all ledgers of the cluster.

    \b
    Example:
      bkbox ledger list --metadata sqlite:cluster.db
      bkbox ledger list --lost --metadata sqlite:cluster.db
    """

    async def go() -> list[LedgerMetadata]:
        async with connect(metadata) as client:
            found = []
            async for number in client.ledgers():
                with suppress(NoSuchLedgerError):  # deleted meanwhile
                    found.append(await client.metadata(number))
            return found

    found = asyncio.run(go())
    if lost:
        print_lost(found, output)
    elif output != "table":
        print_document([asdict(summary(each)) for each in found], output)
    else:
        print_table(
            ["ledger", "state", "E", "WQ", "AQ", "last entry", "length"],
            [
                (
                    each.ledger_id,
                    each.state.name,
                    each.ensemble_size,
                    each.write_quorum,
                    each.ack_quorum,
                    each.last_entry if each.state is LedgerState.CLOSED else None,
                    each.length if each.state is LedgerState.CLOSED else None,
                )
                for each in found
            ],
        )


@ledger.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@output_option
@prints(Ledger)
def show(ledger_id: LedgerId, metadata: str, output: Format) -> None:
    """Show the metadata of one ledger, its fragments and their bookies.

    \b
    Example:
      bkbox ledger show 7 --metadata sqlite:cluster.db
    """

    async def go() -> LedgerMetadata:
        async with connect(metadata) as client:
            return await client.metadata(ledger_id)

    print_ledger(asyncio.run(go()), output)


@dataclass(frozen=True, slots=True)
class CreatedLedger:
    """A new ledger."""

    ledger_id: int


@ledger.command()
@metadata_option
@quorum_options
@password_option
@dry_run_option
@output_option
@prints(CreatedLedger)
def create(
    metadata: str,
    new: NewLedger,
    password: bytes | None,
    dry_run: bool,
    output: Format,
) -> None:
    """Create an empty ledger, leave it open, and print its id.

    A ledger takes entries from the one writer that created it: to write some, use "bkbox ledger
    write", which creates its own.

    \b
    Example:
      bkbox ledger create --metadata sqlite:cluster.db -e 3 -w 3 -a 2
    """

    async def go() -> LedgerId | None:
        async with connect(metadata) as client:
            writer = await create_ledger(client, new, password, dry_run=dry_run)
            if writer is None:
                return None
            await writer.abort()
            return writer.ledger_id

    number = asyncio.run(go())
    if number is None:
        return
    if output != "table":
        print_document(asdict(CreatedLedger(number)), output)
    else:
        click.echo(number)


@ledger.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@dry_run_option
@yes_option
@outcome_option
def delete(ledger_id: LedgerId, metadata: str, dry_run: bool, yes: bool) -> None:
    """Delete a ledger: its metadata at once, its entries when the bookies empty their trash.

    No client can open it from then on. Bookies put its entries into the trash at their next collection
    (gc_interval_s) and remove them for good gc_trash_s later. See "bkbox gc".

    \b
    Example:
      bkbox ledger delete 7 --metadata sqlite:cluster.db
    """

    async def go() -> None:
        async with connect(metadata) as client:
            found = await client.metadata(ledger_id)
            if dry_run:
                message(
                    f"would delete ledger {ledger_id} ({found.state.name}, {counted(found.length, 'byte')} on "
                    f"{counted(len(found.bookies()), 'bookie')}); nothing was changed"
                )
                return
            confirm(f"Delete ledger {ledger_id} ({found.state.name})?", yes=yes)
            await client.delete_ledger(ledger_id)
        message(f"deleted ledger {ledger_id}")

    asyncio.run(go())
