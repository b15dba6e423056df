"""Panels with content that is in no snapshot: it is requested when they become visible."""

from __future__ import annotations

from contextlib import suppress

from textual.app import ComposeResult
from textual.widgets import Static

from bkbox.errors import BkboxError
from bkbox_tui.panels.base import Panel
from bkbox_tui.processes import COLUMNS, row
from bkbox_tui.sources import Bookie, CookieView, Source
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel

_VERDICTS = {
    True: "[+] cookies of disks, metadata store and configuration agree",
    False: "[X] the bookie will not start with these cookies",
    None: "[?] they cannot be compared",
}
_NOT_RECORDED = "a recording does not have this"


class Cookies(Panel):
    """The cookies, field by field: stored value, expected value, and the one command that repairs them."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._differences: tuple[tuple[str, str, str, str], ...] = ()

    def compose(self) -> ComposeResult:
        yield TextLabel(id="cookie-verdict", classes="box first", title="Cookies")
        columns = ["where", "field", "is", "should be"]
        yield Table(columns, id="differences", title="Differences", fills=True)
        yield TextLabel(id="difference", classes="box", title="Difference")
        yield TextLabel(id="cookie-advice", classes="box", title="What to do")

    def show(self, view: View) -> None:
        """Nothing: cookies do not change by the second; see ``look``."""

    async def load(self, source: Source) -> None:
        verdict, advice, rows = _NOT_RECORDED, "", []
        if isinstance(source, Bookie):
            try:
                found = await source.cookies()
            except BkboxError as error:
                found = CookieView(None, problem=str(error))
            verdict = _VERDICTS[found.ok] + (f": {found.problem}" if found.problem else "")
            advice = "" if found.ok or not found.advice else f"what to do: {found.advice}"
            self._differences = found.differences
            rows = [
                (str(number), (where, field, there, expected))
                for number, (where, field, expected, there) in enumerate(found.differences)
            ]
        self.query_one("#cookie-verdict", TextLabel).set_content(verdict)
        self.query_one("#differences", Table).show(rows)
        self.query_one("#cookie-advice", TextLabel).set_content(advice)
        self._details()

    def on_table_row_selected(self, _event: object) -> None:
        self._details()

    def _details(self) -> None:
        """The row under the cursor in full: paths are long, and the table cuts them."""
        chosen = self.query_one("#differences", Table).selected
        text = ""
        if chosen is not None and int(chosen) < len(self._differences):
            where, field, expected, there = self._differences[int(chosen)]
            text = f"{where}: {field}\nis         {there}\nshould be  {expected}"
        self.query_one("#difference", TextLabel).set_content(text)


class Diagnostics(Panel):
    """Processes, and the configuration with the source of each value."""

    def compose(self) -> ComposeResult:
        yield TextLabel(id="about", classes="box first", title="Bookie")
        yield Static("Processes", classes="title")
        yield Table(COLUMNS, id="processes", title="Processes", right=set(COLUMNS[2:]))
        yield Static("Configuration", classes="title")
        columns = ["key", "value", "from"]
        yield Table(columns, id="configuration", title="Configuration", fills=True)

    def show(self, view: View) -> None:
        status = view.snapshot.status if view.snapshot is not None else None
        about, rows = "the bookie is not running", []
        if status is not None:
            about = (
                f"bkbox {status.version}, kernel {status.kernel}, cluster {status.instance_id}\n"
                f"listens on {status.listen}, acknowledges after {status.ack_after}\n"
                f"last start: {'; '.join(status.boot.reasons) or 'nothing to say'}"
            )
            rows = [row(process, status) for process in status.processes]
        self.query_one("#about", TextLabel).set_content(about)
        self.query_one("#processes", Table).show(rows)

    async def load(self, source: Source) -> None:
        if isinstance(source, Bookie):
            with suppress(BkboxError):  # a missing response is shown above already
                found = await source.configuration()
                self.query_one("#configuration", Table).show([(row[0], row) for row in found])
