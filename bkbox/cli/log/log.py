"""``bkbox log …``: logs: records in one order over as many ledgers as needed.

A record that ``write`` makes from a line keeps its line end, so that ``read`` returns the very bytes that ``write``
took.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from typing import Any

import click

from bkbox.base.text import counted
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import (
    confirm,
    dry_run_option,
    metadata_option,
    password_option,
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
from bkbox.cli.log.forget import forget
from bkbox.cli.log.write import log_argument, write
from bkbox.client import Client, connect
from bkbox.client.log import (
    Log,
    Position,
    Record,
    logs,
)
from bkbox.errors import (
    InvalidIdError,
    LedgerError,
    MetadataError,
    NoSuchLedgerError,
    NoSuchLogError,
)
from bkbox.wire.metadata.loss import loss_warnings


@click.group(no_args_is_help=True)
def log() -> None:
    """Write, read, follow, truncate, list, mend and delete logs.

    \b
    Example:
      echo hello | bkbox log write orders --metadata sqlite:cluster.db
      bkbox log tail orders --metadata sqlite:cluster.db --follow
    """


log.add_command(write)
log.add_command(forget)


class _PositionType(click.ParamType[Position | str]):
    name = "position"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Position | str:
        text = str(value)
        if text in ("start", "end"):
            return text
        try:
            return Position.parse(text)
        except InvalidIdError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record, as a line of its own; the payload in base64. ``timestamp_ms``: since 1970; ``writer_id``,
    ``sequence``: of an append that may be repeated, else None."""

    position: str
    timestamp_ms: int
    writer_id: str | None
    sequence: int | None
    payload: str


def _records_option(command: Any) -> Any:
    """``-o``, and ``--json`` as a shorthand for one of its values."""

    @functools.wraps(command)
    def chosen(*args: Any, output: Format, as_json: bool, **kwargs: Any) -> Any:
        return command(*args, output="json" if as_json else output, **kwargs)

    as_json = click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
    return output_option(prints(ReadRecord)(as_json(chosen)))


@log.command(no_args_is_help=True)
@log_argument
@metadata_option
@password_option
@click.option(
    "--from",
    "first",
    type=_PositionType(),
    default="start",
    show_default=True,
    help="Position to begin at (LEDGER:ENTRY or LEDGER:ENTRY.RECORD), or start, or end.",
)
@click.option(
    "--to", "end", type=_PositionType(), help="Position to end before [default: the end]."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@click.option(
    "--strict",
    is_flag=True,
    help="End with exit code 8 where a ledger of the log was ended with loss accepted.",
)
@_records_option
@click.pass_context
def read(
    ctx: click.Context,
    name: str,
    metadata: str,
    password: bytes | None,
    first: Position | str,
    end: Position | str | None,
    follow: bool,
    strict: bool,
    output: Format,
) -> None:
    """Write a log's records to standard output, one after the other as they are.

    Reads up to what its writer has confirmed, and does not disturb the writer. With -o json or yaml
    each record is one line with its position, time and payload in base64. Where an operator has ended
    a ledger of the log with loss accepted, or has forgotten one, standard error says so.

    \b
    Example:
      bkbox log read orders --metadata sqlite:cluster.db > copy
      bkbox log read orders --metadata sqlite:cluster.db --from 7:12 --follow -o json
    """
    if follow and end is not None:
        raise click.UsageError("--follow has no end, and --to says one")

    async def go() -> bool:
        """True if something is lost."""
        async with connect(metadata) as client:
            found = Log(client, name, password=password)
            begin = await found.end() if first == "end" else _position(first)
            warnings = await _loss_warnings(client, found)
            for each in warnings:
                message(f"warning: {each}")
            await _print(found.tail(begin) if follow else found.read(begin, _position(end)), output)
            return bool(warnings)

    if asyncio.run(go()) and strict:
        ctx.exit(ExitCode.LOSS)


async def _loss_warnings(client: Client, log: Log) -> list[str]:
    """Warnings about the known losses of a log, by its ledgers' records of loss."""
    try:
        info = await log.info()
    except LedgerError:  # its end is not known; the reader raises the error when it comes there
        return []
    found = [f"ledger {each} of log {log.name} was lost" for each in info.lost]
    for ledger in info.ledgers:
        with suppress(NoSuchLedgerError):  # the reader raises it
            found += loss_warnings(await client.metadata(ledger))
    return found


@log.command(no_args_is_help=True)
@log_argument
@metadata_option
@password_option
@click.option(
    "-n",
    "--records",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="So many of the last records.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@_records_option
def tail(
    name: str, metadata: str, password: bytes | None, count: int, follow: bool, output: Format
) -> None:
    """Write a log's last records to standard output, and with --follow those that come, over all its ledgers.

    With -o json or yaml each record is one line with its position, time and payload in base64.

    \b
    Example:
      bkbox log tail orders --metadata sqlite:cluster.db -n 100
      bkbox log tail orders --metadata sqlite:cluster.db -f -o json
    """

    async def go() -> None:
        async with connect(metadata) as client:
            found = Log(client, name, password=password)
            records = await found.last(count)
            for record in records:
                _put(record, output)
            sys.stdout.buffer.flush()
            if follow:
                begin = records[-1].position.after if records else await found.end()
                await _print(found.tail(begin), output)

    asyncio.run(go())


async def _print(records: AsyncGenerator[Record, None], output: Format) -> None:
    """Prints records without delay for the reader of a pipe: records available at once are flushed together."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    flush: asyncio.Handle | None = None
    has_enough = False

    def flushed() -> None:
        nonlocal flush, has_enough
        flush = None
        try:
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            has_enough = True
            assert task is not None
            task.cancel()

    try:
        async with aclosing(records):
            async for record in records:
                _put(record, output)
                flush = flush or loop.call_soon(flushed)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        has_enough = True
    except asyncio.CancelledError:
        if not has_enough:
            raise
    if has_enough:  # the reader closed the pipe: the rest of the output is discarded
        if flush is not None:
            flush.cancel()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _put(record: Record, output: Format) -> None:
    stdout = sys.stdout.buffer
    if output == "table":
        stdout.write(record.payload)
        return
    document = ReadRecord(
        position=str(record.position),
        timestamp_ms=record.timestamp_ms,
        writer_id=record.writer_id or None,
        sequence=record.sequence if record.writer_id else None,
        payload=base64.b64encode(record.payload).decode(),
    )
    mark = b"--- " if output == "yaml" else b""  # separates documents
    stdout.write(mark + json.dumps(asdict(document)).encode() + b"\n")


def _position(text: Position | str | None) -> Position | None:
    return text if isinstance(text, Position) else None


@log.command(no_args_is_help=True)
@log_argument
@metadata_option
@click.option(
    "--before",
    type=_PositionType(),
    required=True,
    help="Position of the first record that stays, or end.",
)
@dry_run_option
@yes_option
@outcome_option
def truncate(name: str, metadata: str, before: Position | str, dry_run: bool, yes: bool) -> None:
    """Forget the records of a log before a position, and delete the ledgers that hold nothing else.

    \b
    Example:
      bkbox log truncate orders --metadata sqlite:cluster.db --before 7:0
    """

    async def go() -> None:
        async with connect(metadata) as client:
            found = Log(client, name)
            info = await found.info()
            position = info.end if before == "end" else _position(before) or info.start
            if dry_run:
                message(
                    f"log {name} would begin at {position}, not {info.start}; nothing was changed"
                )
                return
            confirm(f"Forget the records of log {name} before {position}?", yes=yes)
            left = await found.truncate(position)
        message(f"log {name} begins at {left.start} and has {counted(len(left.ledgers), 'ledger')}")

    asyncio.run(go())


@dataclass(frozen=True, slots=True)
class LogSummary:
    """A log in a line. ``epoch``: how often a writer has opened it; ``end``: behind the last record confirmed;
    ``lost``: ledgers that an operator has given up; ``problem``: why the rest is not known."""

    name: str
    epoch: int | None = None
    ledgers: tuple[int, ...] = ()
    start: str | None = None
    end: str | None = None
    lost: tuple[int, ...] = ()
    problem: str | None = None


@log.command("list")
@metadata_option
@output_option
@prints(list[LogSummary])
def list_logs(metadata: str, output: Format) -> None:
    """List all logs of the cluster; exit code 1 where one cannot be read now.

    \b
    Example:
      bkbox log list --metadata sqlite:cluster.db
    """

    async def go() -> list[LogSummary]:
        async with connect(metadata) as client:
            summaries = [await _summary(Log(client, name)) for name in await logs(client)]
            return [each for each in summaries if each is not None]

    found = asyncio.run(go())
    if output != "table":
        print_document([asdict(each) for each in found], output)
    else:
        print_table(
            ["log", "epoch", "ledgers", "start", "end"],
            [
                (each.name, each.epoch, len(each.ledgers), each.start, each.end)
                for each in found
                if each.problem is None
            ],
        )
    troubled = [each for each in found if each.problem is not None]
    for each in troubled:
        message(f"log {each.name}: {each.problem}")
    if troubled:
        sys.exit(ExitCode.FAILED)


async def _summary(log: Log) -> LogSummary | None:
    try:
        info = await log.info()
    except NoSuchLogError:
        return None  # it was deleted meanwhile
    except (LedgerError, MetadataError) as error:
        return LogSummary(log.name, problem=str(error))
    return LogSummary(log.name, info.epoch, info.ledgers, str(info.start), str(info.end), info.lost)


@log.command(no_args_is_help=True)
@log_argument
@metadata_option
@dry_run_option
@yes_option
@outcome_option
def delete(name: str, metadata: str, dry_run: bool, yes: bool) -> None:
    """Delete a log with all its ledgers, each as "bkbox ledger delete" does.

    \b
    Example:
      bkbox log delete orders --metadata sqlite:cluster.db
    """

    async def go() -> None:
        async with connect(metadata) as client:
            found = Log(client, name)
            info = await found.info()
            if dry_run:
                message(
                    f"would delete log {name} and its {counted(len(info.ledgers), 'ledger')}; nothing was changed"
                )
                return
            confirm(f"Delete log {name} and its {counted(len(info.ledgers), 'ledger')}?", yes=yes)
            await found.delete()
        message(f"deleted log {name}")

    asyncio.run(go())
