"""Panels whose content is in no snapshot: it is asked for when they come into sight."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from bkbox.config import Config
from bkbox.errors import BkboxError
from bkbox_tui.panels.base import Panel
from bkbox_tui.sources import Bookie, Source
from bkbox_tui.view import View
from bkbox_tui.widgets import Table

_NOT_RECORDED = "a recording does not have this"


class Cookies(Panel):
    """Field by field: what the cookies say, what they should say, and the one command that mends it."""

    def __init__(self, source: Source, *, id: str) -> None:
        super().__init__(id=id)
        self._source = source

    def compose(self) -> ComposeResult:
        yield Static("", id="cookie-verdict", markup=False)
        yield Table(["where", "field", "should be", "is"], id="differences")
        yield Static("", id="cookie-advice", markup=False)

    def show(self, view: View) -> None:
        """Cookies do not change by the second: see ``look``."""

    async def look(self) -> None:
        verdict, advice, rows = _NOT_RECORDED, "", []
        if isinstance(self._source, Bookie):
            try:
                report = await self._source.cookies()
            except BkboxError as error:
                verdict = f"[?] they cannot be compared: {error}"
            else:
                verdict = (
                    "[+] cookies of disks, metadata store and configuration agree"
                    if report.ok
                    else "[X] the bookie will not start with these cookies"
                )
                advice = "" if report.ok else f"\nwhat to do: {report.advice}"
                rows = [
                    (str(number), (item.where, item.field, item.expected, item.found))
                    for number, item in enumerate(report.differences)
                ]
        self.query_one("#cookie-verdict", Static).update(verdict)
        self.query_one("#differences", Table).show(rows)
        self.query_one("#cookie-advice", Static).update(advice)


class Cluster(Panel):
    """Who else there is."""

    def __init__(self, source: Source, *, id: str) -> None:
        super().__init__(id=id)
        self._source = source

    def compose(self) -> ComposeResult:
        yield Static("", id="cluster-summary", markup=False)
        yield Table(["bookie", "address", "mode"], id="members")

    def show(self, view: View) -> None:
        """Bookies come and go rarely: see ``look``."""

    async def look(self) -> None:
        summary, rows = _NOT_RECORDED, []
        if isinstance(self._source, Bookie):
            try:
                members = await self._source.members()
            except BkboxError as error:
                summary = f"[?] the metadata store cannot be asked: {error}"
            else:
                counts = {mode: sum(item.mode == mode for item in members) for mode in _MODES}
                summary = ", ".join(f"{count} {mode}" for mode, count in counts.items())
                me = self._source.bookie_id
                rows = [
                    (
                        item.id,
                        (
                            f"{item.id} (this one)" if item.id == me else item.id,
                            item.address,
                            item.mode,
                        ),
                    )
                    for item in members
                ]
        self.query_one("#cluster-summary", Static).update(summary)
        self.query_one("#members", Table).show(rows)


_MODES = ("writable", "read-only", "down")


class Diagnostics(Panel):
    """Processes, and the configuration with where each value comes from."""

    def __init__(self, config: Config | None, *, id: str) -> None:
        super().__init__(id=id)
        self._config = config

    def compose(self) -> ComposeResult:
        yield Static("", id="about", markup=False)
        yield Static("Processes", classes="title")
        yield Table(["role", "name", "pid", "running", "restarts"], id="processes")
        yield Static("Configuration", classes="title")
        yield Table(["key", "value", "from"], id="configuration")

    def show(self, view: View) -> None:
        status = view.snapshot.status if view.snapshot is not None else None
        about, rows = "the bookie is not running", []
        if status is not None:
            about = (
                f"bkbox {status.version}, kernel {status.kernel}, cluster {status.instance_id}\n"
                f"listens on {status.listen}, acknowledges after {status.ack_after}\n"
                f"last start: {'; '.join(status.boot.reasons) or 'nothing to say'}"
            )
            rows = [
                (
                    f"{item.role} {item.name}",
                    (
                        item.role,
                        item.name,
                        str(item.pid),
                        "yes" if item.running else "no",
                        str(item.restarts),
                    ),
                )
                for item in status.processes
            ]
        self.query_one("#about", Static).update(about)
        self.query_one("#processes", Table).show(rows)
        if self._config is not None:
            provenance = self._config.provenance
            self.query_one("#configuration", Table).show(
                [
                    (key, (key, str(value), str(provenance[key])))
                    for key, value in self._config.values().items()
                ]
            )
