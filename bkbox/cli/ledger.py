"""``bkbox ledger …``: work with ledgers from the command line.

An entry that ``write`` makes from a line keeps its line end, so that ``read`` gives back the very
bytes that ``write`` took.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import click

from bkbox.cli.entries import batches
from bkbox.cli.options import (
    confirm,
    ledger_argument,
    metadata_option,
    password_option,
    yes_option,
)
from bkbox.cli.output import Format, message, output_option, print_fields, print_json, print_table
from bkbox.client import LedgerWriter, connect
from bkbox.errors import NoSuchLedgerError
from bkbox.ids import LedgerId
from bkbox.wire.ledger import DigestType, LedgerMetadata, LedgerState


@click.group(no_args_is_help=True)
def ledger() -> None:
    """Create, list, show, read, write, recover and delete ledgers.

    \b
    Example:
      bkbox ledger list --metadata sqlite:cluster.db
    """


def quorum_options(command: Any) -> Any:
    """``-e``, ``-w``, ``-a`` and ``--digest`` of a ledger to be created."""
    for option in (
        click.option(
            "--digest",
            type=click.Choice([kind.name for kind in DigestType], case_sensitive=False),
            default="CRC32C",
            show_default=True,
            help="How entries are protected.",
        ),
        click.option(
            "-a", "--ack-quorum", type=int, help="Answers before an entry counts [default: w//2+1]."
        ),
        click.option(
            "-w", "--write-quorum", type=int, help="Copies of each entry [default: ensemble]."
        ),
        click.option(
            "-e",
            "--ensemble",
            type=int,
            default=3,
            show_default=True,
            help="Bookies that the ledger is spread over.",
        ),
    ):
        command = option(command)
    return command


@ledger.command("list", no_args_is_help=True)
@metadata_option
@output_option
def list_ledgers(metadata: str, output: Format) -> None:
    """List all ledgers of the cluster.

    \b
    Example:
      bkbox ledger list --metadata sqlite:cluster.db
    """

    async def go() -> list[LedgerMetadata]:
        async with connect(metadata) as client:
            found = []
            async for number in client.ledgers():
                with suppress(NoSuchLedgerError):  # deleted since
                    found.append(await client.metadata(number))
            return found

    found = asyncio.run(go())
    if output == "json":
        print_json([_summary(each) for each in found])
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
def show(ledger_id: LedgerId, metadata: str, output: Format) -> None:
    """Show the metadata of one ledger, its fragments and their bookies.

    \b
    Example:
      bkbox ledger show 7 --metadata sqlite:cluster.db
    """

    async def go() -> LedgerMetadata:
        async with connect(metadata) as client:
            return await client.metadata(ledger_id)

    _print_ledger(asyncio.run(go()), output)


@ledger.command(no_args_is_help=True)
@metadata_option
@quorum_options
@password_option
@output_option
def create(
    metadata: str,
    ensemble: int,
    write_quorum: int | None,
    ack_quorum: int | None,
    digest: str,
    password: bytes | None,
    output: Format,
) -> None:
    """Create an empty ledger, leave it open, and print its id.

    A ledger takes entries from the one writer that created it: to write some, use "bkbox ledger
    write", which creates its own.

    \b
    Example:
      bkbox ledger create --metadata sqlite:cluster.db -e 3 -w 3 -a 2
    """

    async def go() -> LedgerId:
        async with connect(metadata) as client:
            writer = await client.create_ledger(
                ensemble_size=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=DigestType[digest.upper()],
                password=password or b"",
            )
            await writer.abort()
            return writer.ledger_id

    number = asyncio.run(go())
    if output == "json":
        print_json({"ledger_id": number})
    else:
        click.echo(number)


@ledger.command(no_args_is_help=True)
@metadata_option
@quorum_options
@password_option
@click.option(
    "--file",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Read this instead of standard input; repeatable.",
)
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Make an entry of so many bytes instead of each line.",
)
@click.option("--keep-open", is_flag=True, help="Do not close the ledger at the end.")
@output_option
def write(
    metadata: str,
    ensemble: int,
    write_quorum: int | None,
    ack_quorum: int | None,
    digest: str,
    password: bytes | None,
    files: tuple[Path, ...],
    chunk: int | None,
    keep_open: bool,
    output: Format,
) -> None:
    """Write standard input, or files, to a new ledger and print its id.

    Each line becomes an entry, line end included, or each chunk with --chunk. What was acknowledged
    stays written if the command is interrupted.

    \b
    Example:
      journalctl -f | bkbox ledger write --metadata sqlite:cluster.db -e 3 -w 3 -a 2
      bkbox ledger write --metadata sqlite:cluster.db --file dump.bin --chunk 65536
    """

    async def go() -> dict[str, object]:
        async with connect(metadata) as client:
            writer = await client.create_ledger(
                ensemble_size=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=DigestType[digest.upper()],
                password=password or b"",
            )
            message(f"writing ledger {writer.ledger_id}")
            async with _kept_open(writer) if keep_open else writer:
                async for batch in batches(files, chunk):
                    await writer.append_many(batch)
            return {
                "ledger_id": writer.ledger_id,
                "entries": writer.last_add_confirmed + 1,
                "bytes": writer.length,
                "closed": not keep_open,
            }

    result = asyncio.run(go())
    if output == "json":
        print_json(result)
    else:
        click.echo(result["ledger_id"])
        message(f"{result['entries']} entries, {result['bytes']} bytes")


@ledger.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@password_option
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, help="First entry [default: 0]."
)
@click.option(
    "--to", "last", type=click.IntRange(min=0), help="Last entry [default: the last one]."
)
@output_option
def read(
    ledger_id: LedgerId,
    metadata: str,
    password: bytes | None,
    first: int,
    last: int | None,
    output: Format,
) -> None:
    """Write a ledger's entries to standard output, one after the other as they are.

    Reads an open ledger up to what its writer has confirmed, and does not disturb the writer. With
    -o json each entry is one line with its ids and its payload in base64. Without a password given
    the one in the metadata store is used.

    \b
    Example:
      bkbox ledger read 7 --metadata sqlite:cluster.db > copy
      bkbox ledger read 7 --metadata sqlite:cluster.db --from 10 --to 19 -o json
    """

    async def go() -> None:
        stdout = sys.stdout.buffer
        async with connect(metadata) as client:
            reader = await client.open_ledger(ledger_id, password=password, recovery=False)
            async for entry in reader.read(first, last):
                if output == "json":
                    document = {
                        "ledger_id": entry.ledger_id,
                        "entry_id": entry.entry_id,
                        "lac": entry.lac,
                        "length": entry.length,
                        "payload": base64.b64encode(entry.payload).decode(),
                    }
                    stdout.write(json.dumps(document).encode() + b"\n")
                else:
                    stdout.write(entry.payload)
            stdout.flush()

    asyncio.run(go())


@ledger.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@password_option
@output_option
def recover(ledger_id: LedgerId, metadata: str, password: bytes | None, output: Format) -> None:
    """Recover a ledger: fence its writer off, find its last entry, close it.

    Changes nothing in a ledger that is closed. Where too many bookies cannot tell, nothing is
    closed, the exit code is 7, and the command may be repeated.

    \b
    Example:
      bkbox ledger recover 7 --metadata sqlite:cluster.db
    """

    async def go() -> LedgerMetadata:
        async with connect(metadata) as client:
            return await client.recover(ledger_id, password)

    _print_ledger(asyncio.run(go()), output)


@ledger.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@yes_option
def delete(ledger_id: LedgerId, metadata: str, yes: bool) -> None:
    """Delete a ledger; its entries go for good.

    \b
    Example:
      bkbox ledger delete 7 --metadata sqlite:cluster.db
    """

    async def go() -> None:
        async with connect(metadata) as client:
            found = await client.metadata(ledger_id)
            confirm(f"Delete ledger {ledger_id} ({found.state.name})?", yes=yes)
            await client.delete_ledger(ledger_id)
        message(f"deleted ledger {ledger_id}")

    asyncio.run(go())


@asynccontextmanager
async def _kept_open(writer: LedgerWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await writer.abort()


def _summary(found: LedgerMetadata) -> dict[str, object]:
    closed = found.state is LedgerState.CLOSED
    return {
        "ledger_id": found.ledger_id,
        "state": found.state.name,
        "ensemble_size": found.ensemble_size,
        "write_quorum": found.write_quorum,
        "ack_quorum": found.ack_quorum,
        "last_entry": found.last_entry if closed else None,
        "length": found.length if closed else None,
    }


def _print_ledger(found: LedgerMetadata, output: Format) -> None:
    digest = None if found.digest_type is None else found.digest_type.name
    fragments = [(each.first_entry, list(each.ensemble)) for each in found.fragments]
    if output == "json":
        print_json(
            _summary(found)
            | {
                "digest_type": digest,
                "ctime_ms": found.ctime_ms,
                "custom": {key: base64.b64encode(value).decode() for key, value in found.custom},
                "fragments": [
                    {"first_entry": first, "ensemble": ensemble} for first, ensemble in fragments
                ],
            }
        )
        return
    print_fields([*_summary(found).items(), ("digest_type", digest), ("ctime_ms", found.ctime_ms)])
    click.echo()
    print_table(["first entry", "ensemble"], fragments, title="fragments")
