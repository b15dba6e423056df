"""What commands print: data on standard output (tables or JSON), messages on standard error.

Tables are drawn for people at a terminal; where standard output is something else the same columns
come out as plain text, uncut and without decoration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import click

from bkbox.admin.status import Stage

Format = Literal["table", "json"]
Row = Sequence[object]

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """``-o table|json``, passed to the command as ``output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="How to print the result.",
    )(command)


def message(text: str) -> None:
    """Tell the person something that is not part of the result."""
    click.echo(text, err=True)


def print_json(value: object) -> None:
    """One JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Row], *, title: str = "") -> None:
    """A table; at a terminal in boxes, elsewhere plain."""
    cells = [[_text(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells, title)
    else:
        _print_plain(columns, cells, title)


def print_stages(stages: Sequence[tuple[str, Stage]], title: str) -> None:
    """Stages of the adds of disks, by the disk's name; none where it is empty."""
    rows = [
        (
            *((disk,) if disk else ()),
            stage.stage,
            stage.count,
            *(
                f"{us / 1000:.2f}"
                for us in (stage.p50_us, stage.p99_us, stage.p999_us, stage.max_us)
            ),
        )
        for disk, stage in stages
    ]
    disks = ["disk"] if any(disk for disk, _ in stages) else []
    headings = [*disks, "stage", "adds", "p50 ms", "p99 ms", "p99.9 ms", "max ms"]
    print_table(headings, rows, title=title)


def print_fields(pairs: Sequence[tuple[str, object]], *, title: str = "") -> None:
    """One thing's fields, a line each."""
    if title:
        click.echo(f"{title}:")
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{name.ljust(width)}  {_text(value)}".rstrip())


def size(count: int) -> str:
    """Bytes for people: 1536 is '1.5 KiB'."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, (list, tuple)):
        return ", ".join(map(str, cell)) or "-"
    return str(cell)


def _print_rich(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")  # an id that is too long is broken, never cut
    for row in cells:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    if title:
        click.echo(f"{title}:")
    lines = [list(columns), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(text.rstrip())
