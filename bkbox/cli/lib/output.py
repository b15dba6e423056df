"""Output of commands: data on standard output (tables, JSON or YAML), messages on standard error.

At a terminal tables are drawn in boxes; elsewhere the same columns are printed as plain text, uncut and without
decoration.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from bkbox.base.commandline import bookie_command, shortened
from bkbox.base.logs.control import in_json, in_lines, in_one_line
from bkbox.base.text import quoted
from bkbox.config.schema import Config
from bkbox.errors import (
    BookieNotRunningError,
    BookieUnresponsiveError,
    MetadataUnavailableError,
)
from bkbox.jobs.job import Job, to_json

if TYPE_CHECKING:
    from bkbox.api.admin.status import Latency, Stage

Format = Literal["table", "json", "yaml"]
Row = Sequence[object]

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """``-o table|json|yaml``, passed to the command as ``output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="How to print the result.",
    )(command)


def prints(*shapes: Any) -> Callable[[F], F]:
    """Declares the documents that a command prints with -o json: one of these types, as ``bkbox schema`` shows them."""

    def mark(command: F) -> F:
        command.shapes = shapes  # type: ignore[attr-defined]
        return command

    return mark


@dataclass(frozen=True, slots=True)
class Outcome:
    """The messages of a command that changes something, a line each. ``dry_run``: nothing was changed."""

    messages: tuple[str, ...]
    dry_run: bool


_recorded: ContextVar[list[str] | None] = ContextVar("messages", default=None)


def outcome_option(command: F) -> F:
    """``-o`` for a command without a result other than success."""
    return output_option(prints(Outcome)(outcome(command)))  # type: ignore[return-value]


def outcome(command: Callable[..., None]) -> Callable[..., None]:
    """The same with ``output``: its messages are printed as a document, too, once it is done."""

    @functools.wraps(command)
    def recording(*args: Any, output: Format, **kwargs: Any) -> None:
        messages: list[str] = []
        token = _recorded.set(messages)
        try:
            command(*args, **kwargs)
        finally:
            _recorded.reset(token)
        if output != "table":
            print_document(asdict(Outcome(tuple(messages), bool(kwargs.get("dry_run")))), output)

    return recording


_PASSING = (BookieNotRunningError, BookieUnresponsiveError, MetadataUnavailableError)


def watch_option(command: F) -> F:
    """``--watch [SECONDS]``: repeats the command until Ctrl-C."""

    @functools.wraps(command)
    def again(*args: Any, watch: float | None, **kwargs: Any) -> Any:
        if watch is None:
            return command(*args, **kwargs)
        while True:
            if sys.stdout.isatty() and kwargs.get("output") == "table":
                click.clear()
            elif kwargs.get("output") == "yaml":
                click.echo("---")
            try:
                command(*args, **kwargs)
            except _PASSING as error:
                message(f"{error}")  # the bookie may come back while the command watches
            except click.exceptions.Exit:
                pass  # the exit code of a single repetition
            sys.stdout.flush()
            time.sleep(watch)

    return click.option(
        "--watch",
        type=click.FloatRange(min=0.1),
        is_flag=False,
        flag_value=2.0,
        metavar="[SECONDS]",
        help="Do it again every so many seconds (2), until Ctrl-C.",
    )(again)  # type: ignore[return-value]


def message(text: str) -> None:
    """Prints a message that is not part of the result."""
    text = shortened(text)
    click.echo(in_lines(text), err=True)
    messages = _recorded.get()
    if messages is not None:
        messages.append(text)


def print_document(value: object, output: Format, *, one_of_many: bool = False) -> None:
    """Prints a value that ``json.dumps`` takes as one document of JSON or YAML; ``one_of_many``: as a line of JSON, or
    a YAML document with its mark before it."""
    text = json.dumps(value, indent=None if one_of_many else 2, ensure_ascii=False)
    if output == "yaml":
        # Converted by way of JSON, so that both are the same, whatever tuples and enumerations the value has.
        text = _yaml(json.loads(text)).rstrip("\n")
        text = f"---\n{text}" if one_of_many else text
    click.echo(in_json(text))


def _yaml(value: object) -> str:
    """Formats as YAML. Strings with terminal control characters are double-quoted, so that these are escaped."""
    import yaml  # takes longer to load than the rest of a command

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, found: str) -> yaml.ScalarNode:
        style = None if in_json(found) == found else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", found, style)

    Dumper.add_representer(str, text)
    made = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    assert isinstance(made, str)
    return made


def print_table(columns: Sequence[str], rows: Sequence[Row], *, title: str = "") -> None:
    """Prints a table; at a terminal in boxes, elsewhere plain."""
    cells = [[in_one_line(_text(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells, title)
    else:
        _print_text(columns, cells, title)


def print_stages(stages: Sequence[tuple[str, Stage]], title: str) -> None:
    """Prints the stages of the adds of disks, by the disk's name; nothing if there are none."""
    _print_latencies([(disk, each.stage, each) for disk, each in stages], "stage", "adds", title)


def print_operations(operations: Sequence[tuple[str, Latency]], title: str) -> None:
    """Prints the same of whole operations."""
    rows = [(disk, each.operation, each) for disk, each in operations]
    _print_latencies(rows, "operation", "entries", title)


def _print_latencies(
    found: Sequence[tuple[str, str, Stage | Latency]], what: str, counted: str, title: str
) -> None:
    rows = [
        (
            *((disk,) if disk else ()),
            name,
            each.count,
            *(f"{us / 1000:.2f}" for us in (each.p50_us, each.p99_us, each.p999_us, each.max_us)),
        )
        for disk, name, each in found
    ]
    disks = ["disk"] if any(disk for disk, _, _ in found) else []
    headings = [*disks, what, counted, "p50 ms", "p99 ms", "p99.9 ms", "max ms"]
    print_table(headings, rows, title=title)


def print_started(job: Job, config: Config, output: Format) -> None:
    """Prints that a job was started."""
    if output != "table":
        print_document(to_json(job), output)
    else:
        click.echo(
            f"job {job.id} ({job.kind}) was started: {bookie_command('job', 'watch', job.id)}"
        )


def print_fields(pairs: Sequence[tuple[str, object]], *, title: str = "") -> None:
    """Prints the fields of one thing, a line each."""
    if title:
        click.echo(f"{title}:")
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{name.ljust(width)}  {in_lines(_text(value))}".rstrip())


def size(count: int) -> str:
    """Formats a number of bytes: 1536 is '1.5 KiB'."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _text(cell: object) -> str:
    """Formats a value for a table: never the repr of an object."""
    match cell:
        case None:
            return "-"
        case bool():
            return "yes" if cell else "no"
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(_text, cell)) or "-"
        case Mapping():
            return ", ".join(f"{name} = {_text(value)}" for name, value in cell.items()) or "-"
        case Enum():
            return str(cell.value)
        case str():
            return shortened(cell)
        case int() | float() | PurePath():
            return str(cell)
    return quoted(cell)


def _print_rich(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")  # a long id is folded, never cut
    for row in cells:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _print_text(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    if title:
        click.echo(f"{title}:")
    lines = [list(columns), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(text.rstrip())
