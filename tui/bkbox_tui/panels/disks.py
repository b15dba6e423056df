"""The disks, and all details of the one under the cursor."""

from __future__ import annotations

from textual.app import ComposeResult

from bkbox.api.admin.status import DiskStatus, Status
from bkbox_tui.formatting import amount, bar, micros, size
from bkbox_tui.panels.base import Panel
from bkbox_tui.processes import line, percentage
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel


class Disks(Panel):
    """A table, and the details of one row."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._status: Status | None = None
        self._disks: dict[str, DiskStatus] = {}

    def compose(self) -> ComposeResult:
        yield Table(
            ["disk", "state", "used", "free", "cpu", "ledgers", "limbo", "read-only"],
            id="all-disks",
        )
        yield TextLabel(id="disk-title", classes="title")
        yield TextLabel(id="disk-details")
        yield Table(["stage", "adds", "p50", "p99", "p99.9", "longest"], id="stages")

    def show(self, view: View) -> None:
        snapshot = view.snapshot
        self._status = status = snapshot.status if snapshot is not None else None
        self._disks = {disk.disk: disk for disk in status.disks} if status is not None else {}
        self.query_one("#all-disks", Table).show(
            [
                (
                    disk.disk,
                    (
                        disk.path,
                        disk.state,
                        bar(
                            1 - disk.free_bytes / disk.total_bytes if disk.total_bytes else None, 8
                        ),
                        size(disk.free_bytes),
                        percentage(disk.worker),
                        amount(disk.ledgers),
                        amount(disk.limbo_ledgers),
                        ", ".join(disk.read_only) or "no",
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
                f"room: {size(disk.free_bytes)} free of {size(disk.total_bytes)}\n"
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
        self.query_one("#disk-title", TextLabel).say(title)
        self.query_one("#disk-details", TextLabel).say(text)
        self.query_one("#stages", Table).show(stages)
