"""The cluster: every bookie at once, asked while the panel is visible."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.message import Message

from bkbox.api.admin.client import Address
from bkbox.api.cluster.rows import ORDERS, BookieRow, selected, summary
from bkbox.cli.cluster.status import COLUMNS, cells, checked, state_text
from bkbox.errors import BkboxError
from bkbox_tui.formatting import micros, size, span
from bkbox_tui.panels.listing import Listing
from bkbox_tui.sources import Bookie, Source
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel

if TYPE_CHECKING:
    from bkbox.api.cluster.asking import Asker
    from bkbox.api.cluster.watch import ClusterWatch

_GATHER_S = 0.1
"""Bookies that answer within this time are drawn together."""
_RECORDED = "a recording does not have this"
_LEFT = {"bookie", "state", "jobs", "checked", "version"}


class Cluster(Listing):
    """A table of the bookies, and all that is known of the one under the cursor. The cluster is that of ``source``,
    whichever bookie is open."""

    class Answered(Message):
        """Bookies have answered: ``draw`` has something new."""

    def __init__(self, source: Source, *, id: str) -> None:
        super().__init__(("state", *(name for name in ORDERS if name != "state")), id=id)
        self._source = source
        self._stack = AsyncExitStack()
        self._watch: ClusterWatch | None = None
        self._asker: Asker | None = None
        self._opening = asyncio.Lock()
        self._problem = ""
        self._has_news = False
        self._rows: dict[str, BookieRow] = {}
        self._announcements: list[dict[str, str]] | str = ""

    def compose(self) -> ComposeResult:
        yield TextLabel(id="cluster-summary", classes="box first", title="Cluster")
        yield from self.filter_line()
        yield Table(COLUMNS, id="members", title="Bookies", fills=True, right=set(COLUMNS) - _LEFT)
        yield TextLabel(id="member-details", classes="box", title="Bookie")
        yield TextLabel(id="announced", classes="box quiet", title="Network")

    async def on_unmount(self) -> None:
        with suppress(BkboxError):
            await self._stack.aclose()

    def show(self, view: View) -> None:
        """Nothing: its clock is its own, as the open bookie may hang."""

    async def load(self, source: Source) -> None:
        if not isinstance(self._source, Bookie):
            self._problem = _RECORDED
            self.draw()
            return
        await self._open(self._source)
        try:
            self._announcements = await self._source.announced()
        except BkboxError as error:
            self._announcements = f"announcements on this network are not known: {error}"
        self.draw()

    async def _open(self, source: Bookie) -> None:
        async with self._opening:
            if self._watch is None:
                try:
                    watching = await self._stack.enter_async_context(source.cluster())
                except BkboxError as error:
                    self._problem = f"[?] the bookies of the cluster are not known: {error}"
                else:
                    self._watch, self._asker = watching
                    self._watch.on_answer = self._note_answer
                    self._problem = ""
        self.tick()

    def tick(self) -> None:
        """Asks all bookies again, and draws their reports."""
        if self._watch is not None:
            self._watch.poll()
        self.draw()

    def _note_answer(self) -> None:
        if not self._has_news:
            self._has_news = True
            self.set_timer(_GATHER_S, self._tell)

    def _tell(self) -> None:
        self._has_news = False
        self.post_message(self.Answered())

    def draw(self) -> None:
        every = [] if self._watch is None else self._watch.rows()
        shown = selected(every, self.order, self.text)
        self._rows = {row.bookie: row for row in shown}
        me = self._source.bookie_id if isinstance(self._source, Bookie) else ""
        rows = [(row.bookie, _cells(row, me)) for row in shown]
        parts = [summary(every), f"by {self.order}"] if every else []
        parts += [f"{len(shown)} shown"] if len(shown) < len(every) else []
        problem = self._problem or (self._watch.problem if self._watch is not None else "")
        parts += [f"[!] {problem}" if every else problem] if problem else []
        with suppress(NoMatches):  # the screen is being removed
            self.query_one("#cluster-summary", TextLabel).set_content("; ".join(parts))
            self.query_one("#members", Table).show(rows)
            self._details()
            announced = _announced(self._announcements, {row.bookie for row in every})
            self.query_one("#announced", TextLabel).set_content(announced)

    def on_table_row_selected(self, _event: object) -> None:
        self._details()

    @property
    def selected(self) -> BookieRow | None:
        """The bookie under the cursor."""
        return self._rows.get(self.query_one("#members", Table).selected or "")

    def address_of(self, row: BookieRow) -> Address | None:
        """The address that the bookie's status came from; None without one."""
        return None if self._asker is None else self._asker.reached.get(row.bookie)

    def _details(self) -> None:
        row = self.selected
        self.query_one("#member-details", TextLabel).set_content(
            "" if row is None else details(row)
        )


def _cells(row: BookieRow, me: str) -> tuple[str, ...]:
    """Without zeros where zero is as it should be, so that the columns of limbo, jobs and deleted ledgers come with
    what is in them."""
    found = dict(
        zip(COLUMNS, ("-" if cell is None else str(cell) for cell in cells(row)), strict=True)
    )
    for column in ("limbo", "short", "jobs", "deleted"):
        found[column] = "-" if found[column] == "0" else found[column]
    found["bookie"] += " *" if row.bookie == me else ""
    return tuple(found.values())


def details(row: BookieRow) -> str:
    """All that is known of a bookie."""
    report = row.report
    lines = [f"{row.bookie}: {state_text(row)}"]
    lines += [f"- {problem}" for problem in row.problems]
    if row.silent_s is not None:
        lines.append(f"no answer for {span(row.silent_s)}; registered as {row.mode}")
    if report.total_bytes and report.free_bytes is not None:
        of = (
            ""
            if report.disks is None
            else f"; {report.disks_in_service} of {report.disks} disks in service"
        )
        lines.append(f"space     {size(report.free_bytes)} free of {size(report.total_bytes)}{of}")
    if report.adds is not None:
        p99 = (("add", report.add_p99_us), ("read", report.read_p99_us))
        parts = ", ".join(f"{name} {micros(us)}" for name, us in p99 if us is not None)
        written = f"{size(report.bytes or 0)}/s written"
        lines.append(
            f"traffic   {report.adds:,.0f} adds/s, {report.reads or 0:,.0f} reads/s, {written}"
            + (f"; p99: {parts}" if parts else "")
        )
    if report.limbo is not None:
        stuck = f", {report.stuck} stuck" if report.stuck else ""
        lines.append(f"limbo     {report.limbo:,} ledgers{stuck}")
        utc = " UTC" if report.checked_ms else ""
        short = "not known how many" if report.short is None else f"{report.short:,}"
        lines.append(f"copies    {short} short; last complete check: {checked(report)}{utc}")
    if report.deleted or report.garbage_bytes:
        garbage = "" if report.garbage_bytes is None else f"; {size(report.garbage_bytes)} garbage"
        lines.append(f"deleted   {report.deleted or 0:,} ledgers in the trash{garbage}")
    if report.jobs:
        lines.append(f"jobs      {', '.join(report.jobs)}")
    where = (
        ("rack", row.rack),
        ("version", report.version),
        ("address", row.address),
        ("admin API", row.admin),
    )
    lines.append("; ".join(f"{name} {value}" for name, value in where if value))
    return "\n".join(lines)


def _announced(found: list[dict[str, str]] | str, members: set[str]) -> str:
    """Lists bookies that announce themselves on the network; a text says why they are not known. An announcement is
    first contact, not proof of anything."""
    if isinstance(found, str):
        return found
    if not found:
        return "no bookie announces itself on this network"
    lines = ["announced on this network:"]
    for each in found:
        where = "in the list" if each["id"] in members else f"of the cluster {each['instance']}"
        lines.append(f"- {each['id']}, {where}, bkbox {each['version']}, admin {each['admin']}")
    return "\n".join(lines)
