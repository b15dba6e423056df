"""A process of the bookie as every panel shows it: its state, its resource usage, its number of restarts."""

from __future__ import annotations

from bkbox.api.admin.status import Process, Status
from bkbox_tui.formatting import size, span
from bkbox_tui.table import Row

COLUMNS = ("process", "up", "cpu", "memory", "restarts", "pid")
"""Few and narrow: a worker is named by the path of its disk. A figure that the document lacks is a dash."""


def name_of(process: Process, status: Status) -> str:
    """The name of a process: its role, with more where there are several of it."""
    if process.role == "worker":
        return f"{process.role} {process.name}"
    several = sum(each.role == process.role for each in status.processes) > 1
    return process.name if several else process.role


def row(process: Process, status: Status) -> Row:
    """The row of a process, keyed by its name."""
    name = name_of(process, status)
    return name, (name, *_figures(process, status))


def line(process: Process | None, status: Status) -> str:
    """The same as one line of text."""
    if process is None:
        return "none"
    up, *others = _figures(process, status)
    is_time = process.running and process.started_ms is not None
    named = zip(COLUMNS[2:], others, strict=True)
    return ", ".join([f"up {up}" if is_time else up, *(f"{name} {value}" for name, value in named)])


def percentage(process: Process | None) -> str:
    """CPU usage in percent of one processor."""
    percent = None if process is None else process.cpu_percent
    return "-" if percent is None else f"{percent:.0f}%"


def _figures(process: Process, status: Status) -> tuple[str, ...]:
    return (
        _up(process, status),
        percentage(process),
        "-" if process.memory_bytes is None else size(process.memory_bytes),
        f"[!] {process.restarts}" if process.restarts else "0",
        str(process.pid),
    )


def _up(process: Process, status: Status) -> str:
    if not process.running:
        return "[X] ended"
    if process.stalled_s:
        return f"[X] stalled {process.stalled_s:.0f} s"
    if process.started_ms is None:
        return "running"
    return span(max(0, status.taken_ms - process.started_ms) / 1_000)
