"""Panels with content that is in no snapshot: it is requested when they become visible."""

from __future__ import annotations

from contextlib import suppress

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.widgets import Static

from bkbox.api.admin.cluster_members import DOWN, READ_ONLY, WRITABLE
from bkbox.errors import BkboxError
from bkbox_tui.formatting import size
from bkbox_tui.panels.base import Panel
from bkbox_tui.processes import COLUMNS, row
from bkbox_tui.sources import Bookie, CookieView, Peer, Source
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

    def __init__(self, source: Source, *, id: str) -> None:
        super().__init__(id=id)
        self._source = source
        self._differences: tuple[tuple[str, str, str, str], ...] = ()

    def compose(self) -> ComposeResult:
        yield TextLabel(id="cookie-verdict")
        yield Table(["where", "field", "is", "should be"], id="differences")
        yield TextLabel(id="difference")
        yield TextLabel(id="cookie-advice")

    def show(self, view: View) -> None:
        """Nothing: cookies do not change by the second; see ``look``."""

    async def look(self) -> None:
        verdict, advice, rows = _NOT_RECORDED, "", []
        if isinstance(self._source, Bookie):
            try:
                found = await self._source.cookies()
            except BkboxError as error:
                found = CookieView(None, problem=str(error))
            verdict = _VERDICTS[found.ok] + (f": {found.problem}" if found.problem else "")
            advice = "" if found.ok or not found.advice else f"\nwhat to do: {found.advice}"
            self._differences = found.differences
            rows = [
                (str(number), (where, field, there, expected))
                for number, (where, field, expected, there) in enumerate(found.differences)
            ]
        self.query_one("#cookie-verdict", TextLabel).say(verdict)
        self.query_one("#differences", Table).show(rows)
        self.query_one("#cookie-advice", TextLabel).say(advice)
        self._details()

    def on_table_row_selected(self, _event: object) -> None:
        self._details()

    def _details(self) -> None:
        """The row under the cursor in full: paths are long, and the table cuts them."""
        chosen = self.query_one("#differences", Table).selected
        text = ""
        if chosen is not None and int(chosen) < len(self._differences):
            where, field, expected, there = self._differences[int(chosen)]
            text = f"\n{where}: {field}\nis         {there}\nshould be  {expected}"
        self.query_one("#difference", TextLabel).say(text)


class Cluster(Panel):
    """The bookies of the cluster."""

    def __init__(self, source: Source, *, id: str) -> None:
        super().__init__(id=id)
        self._source = source

    def compose(self) -> ComposeResult:
        yield TextLabel(id="cluster-summary")
        yield Table(["bookie", "mode", "rack", "version", "free", "address", "admin"], id="members")
        yield TextLabel(id="announced")

    def show(self, view: View) -> None:
        """Nothing: bookies come and go rarely; see ``look``."""

    async def look(self) -> None:
        summary, rows = _NOT_RECORDED, []
        if isinstance(self._source, Bookie):
            try:
                peers = await self._source.peers()
            except BkboxError as error:
                summary = f"[?] the members are not known: {error}"
            else:
                modes = [peer.member.mode for peer in peers]
                summary = ", ".join(f"{modes.count(mode)} {mode}" for mode in _MODES)
                me = self._source.bookie_id
                rows = [(peer.member.id, _of_peer(peer, me)) for peer in peers]
        self.query_one("#cluster-summary", TextLabel).say(summary)
        self.query_one("#members", Table).show(rows)
        if isinstance(self._source, Bookie):
            said = await _announced(self._source, {key for key, _ in rows})
            with suppress(NoMatches):  # the screen is being removed
                self.query_one("#announced", TextLabel).say(said)


async def _announced(source: Bookie, members: set[str]) -> str:
    """Lists bookies that announce themselves on the network. An announcement is first contact, not proof of
    anything."""
    try:
        found = await source.announced()
    except BkboxError as error:
        return f"\nwho announces itself here is not known: {error}"
    if not found:
        return "\nnobody announces itself on this network"
    lines = ["\nannounced on this network:"]
    for each in found:
        where = "in the list" if each["id"] in members else f"of the cluster {each['instance']}"
        lines.append(f"- {each['id']}, {where}, bkbox {each['version']}, admin {each['admin']}")
    return "\n".join(lines)


_MODES = (WRITABLE, READ_ONLY, DOWN)


def _of_peer(peer: Peer, me: str) -> tuple[str, ...]:
    member = peer.member
    return (
        f"{member.id} (this one)" if member.id == me else member.id,
        member.mode,
        member.rack or "-",
        member.version or "-",
        "-" if peer.free_bytes is None else size(peer.free_bytes),
        member.address or "-",
        member.admin or "-",
    )


class Diagnostics(Panel):
    """Processes, and the configuration with the source of each value."""

    def __init__(self, source: Source, *, id: str) -> None:
        super().__init__(id=id)
        self._source = source

    def compose(self) -> ComposeResult:
        yield TextLabel(id="about")
        yield Static("Processes", classes="title")
        yield Table(COLUMNS, id="processes")
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
            rows = [row(process, status) for process in status.processes]
        self.query_one("#about", TextLabel).say(about)
        self.query_one("#processes", Table).show(rows)

    async def look(self) -> None:
        if isinstance(self._source, Bookie):
            with suppress(BkboxError):  # a missing response is shown above already
                found = await self._source.configuration()
                self.query_one("#configuration", Table).show([(row[0], row) for row in found])
