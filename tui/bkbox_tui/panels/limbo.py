"""Ledgers in limbo: progress of the repair, and what keeps the rest from being repaired."""

from __future__ import annotations

from contextlib import suppress

from textual.app import ComposeResult
from textual.css.query import NoMatches

from bkbox.api.admin.limbo import LimboLedger
from bkbox.api.admin.status import Limbo as LimboStatus
from bkbox.errors import BkboxError
from bkbox_tui.charts import bar
from bkbox_tui.formatting import amount, size, span
from bkbox_tui.panels.listing import Listing
from bkbox_tui.sources import Bookie, Source
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel

_BAR = 30
_COLUMNS = ("ledger", "disk", "why it stays in limbo", "what to do")


class Limbo(Listing):
    """Progress, and the ledgers themselves, with the reason for those that are stuck; sorted and filtered here.

    All ledgers are requested only while the panel is visible, as they may be many. A recording has only the stuck ones.
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(_COLUMNS, id=id)
        self._source: Source | None = None
        self._limbo = LimboStatus()
        self._listed: list[LimboLedger] = []
        self._known: list[LimboLedger] = []
        self._drawn: list[LimboLedger] | None = None
        self._made_of: tuple[LimboStatus, str, str] | None = None
        self._asked: tuple[int, int] | None = None
        self._asking = False

    def compose(self) -> ComposeResult:
        yield TextLabel(id="limbo-progress")
        yield TextLabel(id="limbo-title", classes="title")
        yield from self.filter_line()
        yield Table(_COLUMNS, id="blockers")
        yield TextLabel(id="limbo-details")

    def show(self, view: View) -> None:
        if view.source is not self._source:
            self._source, self._listed, self._asked = view.source, [], None
        snapshot = view.snapshot
        status = snapshot.status if snapshot is not None else None
        self._limbo = status.limbo if status is not None else LimboStatus()
        limbo = self._limbo
        known = limbo.ledgers + limbo.done
        progress = "no ledger is in limbo"
        if status is None:
            progress = "the bookie is not running"
        elif limbo.ledgers:
            share = limbo.done / known
            left = (
                f"{amount(limbo.ledgers)} left of {amount(known)}, time left: {span(limbo.eta_s)}"
            )
            progress = f"{bar(share, _BAR)} {share:.0%}  {left}"
        if known:
            progress += (
                f"\nchecked {amount(limbo.entries_checked)} entries, missing {amount(limbo.entries_missing)}, "
                f"copied {amount(limbo.entries_copied)} ({size(limbo.bytes_copied)})"
            )
        self.query_one("#limbo-progress", TextLabel).say(progress)
        asked = limbo.ledgers, limbo.done
        if isinstance(view.source, Bookie) and asked != self._asked and not self._asking:
            self._asked = asked
            self.run_worker(self.look(view.source))  # draws the result
        else:
            self.draw()

    async def look(self, source: Source) -> None:
        if not isinstance(source, Bookie) or self._asking:
            return
        self._asking = True
        try:
            found = await source.limbo()
            if source is self._source or self._source is None:
                self._listed = found
        except BkboxError:
            self._listed = []  # an older bookie, or none: the status has the stuck ledgers
        finally:
            self._asking = False
        with suppress(NoMatches):  # the screen is being removed
            self.draw()

    def _ledgers(self) -> list[LimboLedger]:
        """The ledgers in limbo as far as known, and the stuck ones."""
        stuck = {item.ledger: item for item in self._limbo.blockers}
        found = {item.ledger: item for item in self._listed} if self._limbo.ledgers else {}
        for ledger, blocker in stuck.items():
            path = found[ledger].path if ledger in found else ""
            found[ledger] = LimboLedger(ledger, path, blocker.reason, blocker.what_to_do)
        return list(found.values())

    def draw(self) -> None:
        made_of = self._limbo, self.order, self.text
        if self._listed is self._drawn and made_of == self._made_of:
            return
        self._drawn, self._made_of = self._listed, made_of
        known = self._known = self._ledgers()
        rows = [item for item in known if self.text in " ".join(_cells(item)).lower()]
        column = _COLUMNS.index(self.order)
        rows.sort(key=lambda item: item.ledger if column == 0 else (_cells(item)[column] or "~"))
        stuck = f"stuck: {amount(sum(bool(item.reason) for item in known))}, "
        shown = "" if len(rows) == len(known) else f"{amount(len(rows))} shown, "
        more = self._limbo.ledgers - len(known)
        beyond = f", {amount(more)} more are not shown" if more > 0 and self._listed else ""
        title = f"{stuck}{shown}by {_COLUMNS[column]}{beyond}"
        self.query_one("#limbo-title", TextLabel).say(title if known else "")
        self.query_one("#blockers", Table).show([(str(item.ledger), _cells(item)) for item in rows])
        self._details()

    @property
    def selected(self) -> int | None:
        """The ledger under the cursor."""
        chosen = self.query_one("#blockers", Table).selected
        return None if chosen is None else int(chosen)

    def on_table_row_selected(self, _event: object) -> None:
        self._details()

    def _details(self) -> None:
        chosen = self.query_one("#blockers", Table).selected
        found = [item for item in self._known if str(item.ledger) == chosen]
        text = ""
        if found:
            item = found[0]
            reason = item.reason or "nothing stands in the way of its repair"
            text = (
                f"\nledger {item.ledger}: {reason}\nwhat to do: {item.what_to_do or 'wait'}\n"
                f"all about it: enter{self._command(item.ledger)}"
            )
        self.query_one("#limbo-details", TextLabel).say(text)

    def _command(self, ledger: int) -> str:
        source = self._source
        if not isinstance(source, Bookie) or source.config is None:
            return ""
        return f", or bkbox ledger explain {ledger} {source.options}"


def _cells(item: LimboLedger) -> tuple[str, str, str, str]:
    return str(item.ledger), item.path, item.reason, item.what_to_do
