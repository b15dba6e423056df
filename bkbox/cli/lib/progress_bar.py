"""Progress of a pipeline: a bar at a terminal, elsewhere a line now and then, both on standard error."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from bkbox.base.text import counted
from bkbox.cli.lib.output import message, size

_EVERY_S = 10.0


class ProgressBar:
    """Shows stages, ledgers, bytes and the time left (bkbox/audit/run.py, Progress)."""

    def __init__(self, *, shown: bool = True) -> None:
        self._shown = shown
        self._bar: Any = None
        self._task: Any = None
        self._stage = ""
        self._ledgers = self._size = 0
        self._total: int | None = None
        self._reported_s = self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(*_columns(), console=Console(stderr=True))
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str, ledgers: int | None) -> None:
        self._stage, self._total = name, ledgers
        self._ledgers = self._size = 0
        self._began_s = time.monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=ledgers, bytes="")

    def add_progress(self, ledgers: int, size: int) -> None:
        self._ledgers += ledgers
        self._size += size
        if self._bar is not None:
            self._bar.update(self._task, advance=ledgers, bytes=_bytes(self._size))
        elif self._shown and time.monotonic() - self._reported_s >= _EVERY_S:
            self._reported_s = time.monotonic()
            message(self._line())

    def _line(self) -> str:
        done = counted(self._ledgers, "ledger")
        if self._total is not None:
            done = f"{self._ledgers:,} of {counted(self._total, 'ledger')}"
        line = f"{self._stage}: {done}, {_bytes(self._size)}"
        passed_s = time.monotonic() - self._began_s
        if self._total and self._ledgers:
            left_s = passed_s * (self._total - self._ledgers) / self._ledgers
            line += f", about {left_s:,.0f} s left"
        return line


def _columns() -> list[Any]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[bytes]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]


def _bytes(count: int) -> str:
    return size(count)


class ByteProgress:
    """Shows how many bytes of a conversion are done, and the time left (bkbox/takeover/observer.py)."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._stage = ""
        self._done = self._total = 0
        self._reported_s = self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, name: str) -> None:
        """Steps are not shown."""

    def stage(self, name: str, total_bytes: int) -> None:
        self._stage, self._total, self._done = name, total_bytes, 0
        self._began_s = time.monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=total_bytes)

    def advance(self, count: int) -> None:
        self._done += count
        if self._bar is not None:
            self._bar.update(self._task, advance=count)
        elif time.monotonic() - self._reported_s >= _EVERY_S:
            self._reported_s = time.monotonic()
            line = f"{self._stage}: {size(self._done)} of {size(self._total)}"
            if self._done:
                passed_s = time.monotonic() - self._began_s
                left_s = passed_s * max(self._total - self._done, 0) / self._done
                line += f", about {left_s:,.0f} s left"
            message(line)
