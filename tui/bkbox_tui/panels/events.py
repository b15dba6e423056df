"""Changes since the screen was opened, the newest last."""

from __future__ import annotations

from textual.app import ComposeResult

from bkbox_tui.events import Event, Severity
from bkbox_tui.panels.base import Panel
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel

_ROWS_MAX = 200
_SIGNS = {Severity.INFO: "[ ] info", Severity.WARNING: "[!] warning", Severity.ERROR: "[X] error"}


class Events(Panel):
    """A table of events; filtered by severity."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._least = Severity.INFO
        self._events: list[Event] = []

    def compose(self) -> ComposeResult:
        yield TextLabel(id="events-title", classes="title")
        columns = ["time (UTC)", "severity", "what"]
        yield Table(columns, id="all-events", fills=True, tail=True)
        yield TextLabel(id="event-details", classes="box", title="Event")

    def show(self, view: View) -> None:
        self._events = [item for item in view.events if item.severity >= self._least][-_ROWS_MAX:]
        beyond = f", the newest {_ROWS_MAX}" if len(self._events) == _ROWS_MAX else ""
        title = (
            f"{len(self._events)} events as bad as '{self._least.name.lower()}' or worse{beyond}"
        )
        self.entitle("#events-title", "#all-events", title)
        rows = [
            (f"{item.ms} {item.text}", (item.at, _SIGNS[item.severity], item.text))
            for item in self._events
        ]
        self.query_one("#all-events", Table).show(list(dict(rows).items()))

    def on_table_row_selected(self, _event: object) -> None:
        chosen = self.query_one("#all-events", Table).selected
        texts = [item.text for item in self._events if f"{item.ms} {item.text}" == chosen]
        self.query_one("#event-details", TextLabel).set_content(texts[0] if texts else "")

    def clear(self) -> bool:
        was, self._least = self._least, Severity.INFO
        return was is not Severity.INFO

    def next_severity(self) -> None:
        """Raises the least severity shown; after the highest, all events are shown again."""
        self._least = Severity((self._least + 1) % len(Severity))
