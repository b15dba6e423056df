"""Output of the demo: headings, plain sentences, checked claims, progress, a table.

At a terminal in colour and with moving bars; elsewhere (a pipe, CI, NO_COLOR, --plain) in lines that
any log takes, with a line of progress every now and then. Both have the same text.
"""

from __future__ import annotations

import textwrap
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

WIDTH = 98
_PLAIN_EVERY_S = 1.0

Unit = Literal["bytes", "entries"]
Advance = Callable[[int], None]
"""Callback with the amount that is done so far."""


def amount(count: int) -> str:
    """Formats a number of bytes."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count:,} bytes"


class Output(ABC):
    """The output of the demo. Texts are plain sentences; subclasses decide how they look."""

    shortens: bool
    """True if long lists are shortened, for a person at a terminal."""

    @abstractmethod
    def heading(self, text: str) -> None:
        """Prints the heading of a step."""

    @abstractmethod
    def explain(self, text: str) -> None:
        """Prints what is done and why, or its result."""

    @abstractmethod
    def proved(self, text: str) -> None:
        """Prints a claim that was checked and holds."""

    @abstractmethod
    def failed(self, text: str) -> None:
        """Prints a failure and its location."""

    @abstractmethod
    def quote(self, text: str) -> None:
        """Prints a command, or the output of a process."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Prints one line of data, as it is."""

    @abstractmethod
    def progress(
        self, label: str, total: int, unit: Unit, done: int = 0
    ) -> AbstractContextManager[Advance]:
        """A bar, or lines, that show progress until the block is left. ``done``: the amount at the start."""

    @abstractmethod
    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Prints a table; columns whose cells begin with a digit are numbers."""


class PlainOutput(Output):
    """Lines without decoration."""

    shortens = False

    def heading(self, text: str) -> None:
        click.echo(f"\n== {text} ==")

    def explain(self, text: str) -> None:
        click.echo(textwrap.fill(text, WIDTH, break_on_hyphens=False))

    def proved(self, text: str) -> None:
        click.echo(_hanging("ok: ", text))

    def failed(self, text: str) -> None:
        click.echo(_hanging("FAILED: ", text))

    def quote(self, text: str) -> None:
        for line in text.splitlines():
            click.echo(_hanging("  | ", line))

    def line(self, text: str) -> None:
        click.echo(text)

    @contextmanager
    def progress(self, label: str, total: int, unit: Unit, done: int = 0) -> Iterator[Advance]:
        began = shown = time.monotonic()

        def advance(by_now: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown >= _PLAIN_EVERY_S:
                shown = now
                if unit == "entries":
                    click.echo(f"  {label}: {by_now:,} of {total:,} entries")
                else:
                    rate = amount(int((by_now - done) / (now - began)))
                    click.echo(f"  {label}: {amount(by_now)} of {amount(total)}, {rate}/s")

        yield advance

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [columns, *rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
        for line in lines:
            cells = [
                cell.rjust(width) if _is_number(rows, at) else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            click.echo("  ".join(cells).rstrip())


class TerminalOutput(Output):
    """Colours and bars."""

    shortens = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(WIDTH, console.width)

    def heading(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(f"━━ {text} ", style="bold cyan"), end="")
        self._console.print(
            Text("━" * max(0, self._width - len(text) - 4), style="bold cyan"), no_wrap=True
        )

    def explain(self, text: str) -> None:
        self._print(textwrap.fill(text, self._width, break_on_hyphens=False), "")

    def proved(self, text: str) -> None:
        self._print(_hanging("✓ ", text, self._width), "green")

    def failed(self, text: str) -> None:
        self._print(_hanging("✗ ", text, self._width), "bold red")

    def quote(self, text: str) -> None:
        for line in text.splitlines():
            self._print(_hanging("  │ ", line, self._width), "yellow")

    def line(self, text: str) -> None:
        self._print(text, "dim")

    @contextmanager
    def progress(self, label: str, total: int, unit: Unit, done: int = 0) -> Iterator[Advance]:
        measures: list[ProgressColumn] = (
            [DownloadColumn(), TransferSpeedColumn()]
            if unit == "bytes"
            else [MofNCompleteColumn(), TextColumn("entries")]
        )
        bars = Progress(
            TextColumn("  {task.description}"), BarColumn(30), *measures, console=self._console
        )
        task = bars.add_task(label, total=total, completed=done)
        with bars:
            yield lambda by_now: bars.update(task, completed=by_now)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(width=None, title_justify="left")
        for at, name in enumerate(columns):
            table.add_column(name, justify="right" if _is_number(rows, at) else "left")
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def _print(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)


def _hanging(mark: str, text: str, width: int = WIDTH) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _is_number(rows: Sequence[Sequence[str]], at: int) -> bool:
    return all(row[at][:1].isdigit() or row[at] == "-" for row in rows)
