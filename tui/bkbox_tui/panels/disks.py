"""The disks, and all details of the one under the cursor."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.events import Resize

from bkbox.api.admin.status import DiskStatus, Status
from bkbox_tui.cards import disk_level, disk_trends
from bkbox_tui.charts import bar
from bkbox_tui.formatting import amount, micros, size
from bkbox_tui.history import History
from bkbox_tui.panels.base import Panel
from bkbox_tui.processes import line, percentage
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import Card, TextLabel

_LOAD_COLUMNS = ("ledgers", "cpu")


class Disks(Panel):
    """A table, and the details of one row."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._status: Status | None = None
        self._history = History()
        self._disks: dict[str, DiskStatus] = {}

    def compose(self) -> ComposeResult:
        yield Table(
            [
                "disk",
                "state",
                "full",
                "free",
                "busy",
                "adds/s",
                "reads/s",
                "written/s",
                "limbo",
                "read-only",
                *_LOAD_COLUMNS,
            ],
            id="all-disks",
            title="Disks",
            right={"free", "busy", "adds/s", "reads/s", "written/s", "ledgers", "limbo", "cpu"},
        )
        yield TextLabel(id="disk-title", classes="title")
        yield TextLabel(id="disk-details", classes="box first")
        stages = ["stage", "adds", "p50", "p99", "p99.9", "longest"]
        yield Table(stages, id="stages", title="Where the time of adds goes", right=set(stages[1:]))
        yield Card("The last minutes", id="disk-trends", classes="box fills")

    def show(self, view: View) -> None:
        snapshot = view.snapshot
        self._history = view.history
        self._status = status = snapshot.status if snapshot is not None else None
        self._disks = {disk.disk: disk for disk in status.disks} if status is not None else {}
        self.query_one("#all-disks", Table).show(
            [
                (
                    disk.disk,
                    (
                        disk.path,
                        f"[{disk_level(disk).sign}] {disk.state}",
                        _full(disk),
                        size(disk.free_bytes),
                        _share(view.history.busy.get(disk.disk)),
                        amount(disk.rates.adds),
                        amount(disk.rates.reads),
                        f"{size(disk.rates.bytes)}/s",
                        amount(disk.limbo_ledgers) if disk.limbo_ledgers else "-",
                        ", ".join(disk.read_only) or "-",
                        amount(disk.ledgers),
                        percentage(disk.worker),
                    ),
                )
                for disk in self._disks.values()
            ]
        )
        self._details()

    def on_table_row_selected(self, _event: object) -> None:
        self._details()

    def _details(self) -> None:
        disk = self._disks.get(self.query_one("#all-disks", Table).selected or "")
        title, text, stages = "", "the bookie is not running" if not self._disks else "", []
        if disk is not None and self._status is not None:
            title = f"{disk.path}  {disk.disk}"
            replay = disk.replay
            text = (
                f"space: {size(disk.free_bytes)} free of {size(disk.total_bytes)}{_device(disk)}\n"
                f"worker: {line(disk.worker, self._status)}\n"
                f"last start: {disk.crash_class}: {disk.reason}\n"
                f"replayed: {amount(replay.records)} records, {amount(replay.entries)} entries, {size(replay.bytes)}; "
                f"cut {size(replay.cut_bytes)}; damaged ranges: {replay.damaged}"
            )
            stages = [
                (
                    stage.stage,
                    (
                        stage.stage,
                        amount(stage.count),
                        *map(micros, (stage.p50_us, stage.p99_us, stage.p999_us, stage.max_us)),
                    ),
                )
                for stage in disk.stages
                if stage.count
            ]
        self.entitle("#disk-title", "#disk-details", title)
        self.query_one("#disk-details", TextLabel).set_content(text)
        self.query_one("#stages", Table).show(stages)
        trends = self.query_one("#disk-trends", Card)
        history = self._history.disks.get("" if disk is None else disk.disk)
        trends.display = history is not None
        if history is not None:
            trends.set_content(disk_trends(history, trends.inner, trends.size.height))

    def on_resize(self, _event: Resize) -> None:
        self.call_after_refresh(self._details)


def _full(disk: DiskStatus) -> str:
    share = 1 - disk.free_bytes / disk.total_bytes if disk.total_bytes else None
    return f"{bar(share, 8)} {_share(share)}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _device(disk: DiskStatus) -> str:
    device = disk.device
    return "" if device is None else f", on {device.name} ({device.filesystem})"
