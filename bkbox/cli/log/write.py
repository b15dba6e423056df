"""``bkbox log write``, and the argument that all commands of ``bkbox log`` share."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.base.text import counted
from bkbox.cli.lib.entry_input import batches, input_options
from bkbox.cli.lib.options import NewLedger, metadata_option, password_option, quorum_options
from bkbox.cli.lib.output import Format, message, output_option, print_document, prints
from bkbox.client import connect
from bkbox.client.log import Compression, Log, LogOptions, LogWriter
from bkbox.errors import ConfigError, InvalidIdError
from bkbox.metadata.loglists import log_name


class _NameType(click.ParamType[str]):
    name = "log"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        try:
            return log_name(str(value))
        except InvalidIdError as error:
            self.fail(str(error), param, ctx)


log_argument = click.argument("name", metavar="LOG", type=_NameType())


@dataclass(frozen=True, slots=True)
class LogWriteReport:
    """Records that were appended. ``epoch``: how often a writer has opened the log; ``repeated``: records that it had
    before, None without --writer-id."""

    log: str
    epoch: int
    written: int
    repeated: int | None


@click.command(no_args_is_help=True)
@log_argument
@metadata_option
@quorum_options
@password_option
@input_options("a record")
@click.option(
    "--compression",
    type=click.Choice([kind.name.lower() for kind in Compression]),
    default="none",
    show_default=True,
    help="How entries are compressed.",
)
@click.option(
    "--writer-id",
    metavar="ID",
    help="Number the records under this name, and leave out those that the log has: the command may be repeated.",
)
@output_option
@prints(LogWriteReport)
def write(
    name: str,
    metadata: str,
    new: NewLedger,
    password: bytes | None,
    files: tuple[Path, ...],
    chunk: int | None,
    compression: str,
    writer_id: str | None,
    output: Format,
) -> None:
    """Append standard input, or files, to a log, and make the log if there is none.

    Each line becomes a record, line end included, or each chunk with --chunk. The previous writer can write
    no more. What was acknowledged stays written if the command is interrupted; with --writer-id it may then be run
    again with the same input, and no record is written twice.

    \b
    Example:
      journalctl -f | bkbox log write journal --metadata sqlite:cluster.db
      bkbox log write orders --metadata sqlite:cluster.db --file orders.jsonl --writer-id import-1
    """
    if new.ack_after is not None:
        raise ConfigError(["--ack-after is not there for the ledgers of a log"])
    options = LogOptions(
        ensemble_size=new.ensemble,
        write_quorum=new.write_quorum,
        ack_quorum=new.ack_quorum,
        digest_type=new.digest,
        password=password or b"",
        compression=Compression[compression.upper()],
    )

    async def go() -> LogWriteReport:
        written = repeated = 0
        async with (
            connect(metadata) as client,
            await Log(client, name).open_writer(options) as writer,
        ):
            message(f"writing log {name}, epoch {writer.epoch}")
            async for batch in batches(files, chunk):
                if writer_id is None:
                    await writer.append_many(batch)
                    written += len(batch)
                else:
                    known = await _append_once(writer, writer_id, written + repeated, batch)
                    repeated += known
                    written += len(batch) - known
        return LogWriteReport(name, writer.epoch, written, None if writer_id is None else repeated)

    done = asyncio.run(go())
    left_out = "" if done.repeated is None else f", {done.repeated:,} were there before"
    message(f"{counted(done.written, 'record')}{left_out}")
    if output != "table":
        print_document(asdict(done), output)


async def _append_once(writer: LogWriter, writer_id: str, number: int, batch: list[bytes]) -> int:
    """Appends a batch; returns the number of its records that were there already."""
    last = writer.last_sequence(writer_id)
    known = 0 if last is None else min(max(last + 1 - number, 0), len(batch))
    tasks = [
        asyncio.ensure_future(writer.append_once(payload, writer_id, number + index))
        for index, payload in enumerate(batch)
        if index >= known
    ]
    await asyncio.gather(*tasks)
    return known
