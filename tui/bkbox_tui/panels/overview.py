"""The first panel: is it safe, what is it doing, how long, what do I do next."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from bkbox.api.admin.status import Process, Status
from bkbox_tui.formatting import amount, bar, micros, size
from bkbox_tui.history import recent_p99_us
from bkbox_tui.panels.base import Panel
from bkbox_tui.processes import COLUMNS, row
from bkbox_tui.snapshot import DiskFiles
from bkbox_tui.table import Row, Table
from bkbox_tui.view import View
from bkbox_tui.widgets import RateLine, TextLabel

_BAR = 10
_STEPS_MAX = 12


class Overview(Panel):
    """The four answers, the rate of adds, a line for each disk, and one for each process except healthy workers."""

    DEFAULT_CSS = """
    Overview #safe.success { color: $text-success; }
    Overview #safe.warning { color: $text-warning; }
    Overview #safe.error { color: $text-error; text-style: bold; }
    Overview #answers { height: auto; }
    Overview #disks { margin-top: 1; max-height: 25%; }
    """

    def compose(self) -> ComposeResult:
        yield TextLabel(id="safe")
        yield TextLabel(id="answers")
        yield RateLine("adds/s", id="adds")
        yield RateLine("p99 of adds", id="p99")
        yield TextLabel(id="latency", classes="quiet")
        yield Table(["disk", "state", "used", "free", "ledgers", "limbo"], id="disks")
        yield Table(COLUMNS, id="processes")
        yield Static("What to do next", classes="title")
        yield TextLabel(id="next")

    def show(self, view: View) -> None:
        answers = view.answers
        safe = self.query_one("#safe", TextLabel)
        safe.set_classes(answers.level.style)
        safe.say(f"safe?      [{answers.level.sign}] {answers.safe}")
        self.query_one("#answers", TextLabel).say(
            f"doing?     {answers.doing}\nhow long?  {answers.how_long}"
        )
        self.query_one("#next", TextLabel).say(_steps(answers.next_steps))
        points = view.history.adds_per_s
        self.query_one("#adds", RateLine).show(points, f"{amount(points[-1])}/s" if points else "-")
        times = view.history.p99_us
        self.query_one("#p99", RateLine).show(
            times, micros(times[-1]) if times and times[-1] else "-"
        )
        snapshot = view.snapshot
        status = snapshot.status if snapshot is not None else None
        latency = ""
        rows: list[Row] = []
        processes: list[Row] = []
        if status is not None:
            latency = _latency(status)
            rows = [
                (
                    disk.disk,
                    (
                        disk.path,
                        disk.state,
                        _used(disk.free_bytes, disk.total_bytes),
                        size(disk.free_bytes),
                        amount(disk.ledgers),
                        amount(disk.limbo_ledgers),
                    ),
                )
                for disk in status.disks
            ]
            processes = [row(each, status) for each in status.processes if _is_shown(each)]
        elif snapshot is not None:
            rows = [(item.path, _from_files(item)) for item in snapshot.files]
        self.query_one("#latency", TextLabel).say(latency)
        self.query_one("#disks", Table).show(rows)
        self.query_one("#processes", Table).show(processes)


def _latency(status: Status) -> str:
    """From the request to its response."""
    p99_us = {name: recent_p99_us(status, name) for name in ("add", "read")}
    said = [f"{name} {micros(us)}" for name, us in p99_us.items() if us is not None]
    return f"recent p99 on the slowest disk: {', '.join(said)}" if said else ""


def _is_shown(process: Process) -> bool:
    """True if the process has a line of its own: a worker is in its disk's line, and here only if something is
    wrong."""
    return (
        process.role != "worker"
        or process.restarts > 0
        or not process.running
        or process.stalled_s > 0
    )


def _from_files(item: DiskFiles) -> tuple[str, ...]:
    used = _used(item.free_bytes, item.total_bytes)
    return item.path, item.problem or item.marker, used, size(item.free_bytes), "-", "-"


def _used(free: int, total: int) -> str:
    share = 1 - free / total if total else None
    return bar(share, _BAR) + ("" if share is None else f" {share:.0%}")


def _steps(steps: tuple[tuple[str, str], ...]) -> str:
    if not steps:
        return "nothing"
    lines = []
    for text, hint in steps[:_STEPS_MAX]:
        lines.append(f"- {text}")
        if hint:
            lines.append(f"→ {hint}")
    if len(steps) > _STEPS_MAX:
        lines.append(f"- and {len(steps) - _STEPS_MAX} more; see the panels Limbo and Jobs")
    return "\n".join(lines)
