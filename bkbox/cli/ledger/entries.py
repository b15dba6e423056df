"""``bkbox ledger write`` and ``read``: a ledger's entries from standard input and to standard output.

An entry that ``write`` makes from a line keeps its line end, so that ``read`` returns the very
bytes that ``write`` took.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.cli.ledger.create_ledger import create_ledger
from bkbox.cli.lib.entry_input import batches, input_options
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import (
    NewLedger,
    dry_run_option,
    ledger_argument,
    metadata_option,
    password_option,
    quorum_options,
)
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints
from bkbox.client import LedgerWriter, connect
from bkbox.wire.metadata.loss import loss_warnings


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The entries that were written to a new ledger."""

    ledger_id: int
    entries: int
    bytes: int
    closed: bool


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """One entry, as a line of its own; the payload in base64."""

    ledger_id: int
    entry_id: int
    lac: int
    length: int
    payload: str


@click.command()
@metadata_option
@quorum_options
@password_option
@input_options("an entry")
@click.option("--keep-open", is_flag=True, help="Do not close the ledger at the end.")
@click.option(
    "--durable",
    is_flag=True,
    help="Close it only once every entry is on the disks of an ack quorum of bookies.",
)
@dry_run_option
@output_option
@prints(WriteReport)
def write(
    metadata: str,
    new: NewLedger,
    password: bytes | None,
    files: tuple[Path, ...],
    chunk: int | None,
    keep_open: bool,
    durable: bool,
    dry_run: bool,
    output: Format,
) -> None:
    """Write standard input, or files, to a new ledger and print its id.

    Each line becomes an entry, line end included, or each chunk with --chunk. What was acknowledged
    stays written if the command is interrupted. With --durable the ledger is left open where it is
    not certain that every entry is on disk; "bkbox ledger recover" closes it.

    \b
    Example:
      journalctl -f | bkbox ledger write --metadata sqlite:cluster.db -e 3 -w 3 -a 2
      bkbox ledger write --metadata sqlite:cluster.db --file dump.bin --chunk 65536
    """

    if keep_open and durable:
        raise click.UsageError("--durable says how to close, and --keep-open not to")

    async def go() -> WriteReport | None:
        async with connect(metadata) as client:
            writer = await create_ledger(client, new, password, dry_run=dry_run)
            if writer is None:
                return None
            message(f"writing ledger {writer.ledger_id}")
            async with _left_open(writer) if keep_open or durable else writer:
                async for batch in batches(files, chunk):
                    await writer.append_many(batch)
                if durable:
                    await writer.close(durable=True)
            return WriteReport(
                ledger_id=writer.ledger_id,
                entries=writer.last_add_confirmed + 1,
                bytes=writer.length,
                closed=not keep_open,
            )

    result = asyncio.run(go())
    if result is None:
        return
    if output != "table":
        print_document(asdict(result), output)
    else:
        click.echo(result.ledger_id)
        message(f"{counted(result.entries, 'entry')}, {counted(result.bytes, 'byte')}")


@click.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@password_option
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, help="First entry [default: 0]."
)
@click.option(
    "--to", "last", type=click.IntRange(min=0), help="Last entry [default: the last one]."
)
@click.option(
    "--strict",
    is_flag=True,
    help="End with exit code 8 where the ledger was ended with loss accepted.",
)
@output_option
@click.pass_context
@prints(ReadEntry)
def read(
    ctx: click.Context,
    ledger_id: LedgerId,
    metadata: str,
    password: bytes | None,
    first: int,
    last: int | None,
    strict: bool,
    output: Format,
) -> None:
    """Write a ledger's entries to standard output, one after the other as they are.

    Reads an open ledger up to what its writer has confirmed, and does not disturb the writer. With
    -o json or yaml each entry is one line with its ids and its payload in base64. Without a password given
    the one in the metadata store is used. Of a ledger that an operator has ended with loss accepted, standard
    error says what is lost.

    \b
    Example:
      bkbox ledger read 7 --metadata sqlite:cluster.db > copy
      bkbox ledger read 7 --metadata sqlite:cluster.db --from 10 --to 19 -o json
    """

    async def go() -> list[str]:
        stdout = sys.stdout.buffer
        async with connect(metadata) as client:
            reader = await client.open_ledger(ledger_id, password=password, recovery=False)
            warnings = loss_warnings(reader.metadata)
            for each in warnings:  # first: a hole may end the read
                message(f"warning: {each}")
            async for entry in reader.read(first, last):
                if output != "table":
                    document = ReadEntry(
                        ledger_id=entry.ledger_id,
                        entry_id=entry.entry_id,
                        lac=entry.lac,
                        length=entry.length,
                        payload=base64.b64encode(entry.payload).decode(),
                    )
                    mark = b"--- " if output == "yaml" else b""  # separates documents
                    stdout.write(mark + json.dumps(asdict(document)).encode() + b"\n")
                else:
                    stdout.write(entry.payload)
            stdout.flush()
            return warnings

    if asyncio.run(go()) and strict:
        ctx.exit(ExitCode.LOSS)


@asynccontextmanager
async def _left_open(writer: LedgerWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await writer.abort()
