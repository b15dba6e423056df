"""Ledgers in limbo: progress of the repair, and what keeps the rest from being repaired."""

from __future__ import annotations

from contextlib import suppress

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.widgets import Input

from bkbox.api.admin.limbo import LimboLedger
from bkbox.api.admin.status import Limbo as LimboStatus
from bkbox.errors import BkboxError
from bkbox_tui.formatting import amount, bar, size, span
from bkbox_tui.panels.base import Panel
from bkbox_tui.sources import Bookie, Source
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel

_BAR = 30
_COLUMNS = ("ledger", "disk", "why it stays in limbo", "what to do")


class Limbo(Panel):
    """Progress, and the ledgers themselves, with the reason for those that are stuck; sorted and filtered here.

    All ledgers are requested only while the panel is visible, as they may be many. A recording has only the stuck ones.
    """

    def __init__(self, source: Source, *, id: str) -> None:
        super().__init__(id=id)
        self._source = source
        self._limbo = LimboStatus()
        self._listed: list[LimboLedger] = []
        self._known: list[LimboLedger] = []
        self._drawn: list[LimboLedger] | None = None
        self._made_of: tuple[LimboStatus, int, str] | None = None
        self._asked: tuple[int, int] | None = None
        self._asking = False
        self._sorted_by = 0
        self._filter = ""

    def compose(self) -> ComposeResult:
        yield TextLabel(id="limbo-progress")
        yield TextLabel(id="limbo-title", classes="title")
        filter_line = Input(placeholder="only rows that contain …", id="limbo-filter", compact=True)
        filter_line.display = False
        yield filter_line
        yield Table(_COLUMNS, id="blockers")
        yield TextLabel(id="limbo-details")

    def show(self, view: View) -> None:
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
        if isinstance(self._source, Bookie) and asked != self._asked and not self._asking:
            self._asked = asked
            self.run_worker(self.look())  # draws the result
        else:
            self._table()

    async def look(self) -> None:
        if not isinstance(self._source, Bookie) or self._asking:
            return
        self._asking = True
        try:
            self._listed = await self._source.limbo()
        except BkboxError:
            self._listed = []  # an older bookie, or none: the status has the stuck ledgers
        finally:
            self._asking = False
        with suppress(NoMatches):  # the screen is being removed
            self._table()

    def _ledgers(self) -> list[LimboLedger]:
        """The ledgers in limbo as far as known, and the stuck ones."""
        stuck = {item.ledger: item for item in self._limbo.blockers}
        found = {item.ledger: item for item in self._listed} if self._limbo.ledgers else {}
        for ledger, blocker in stuck.items():
            path = found[ledger].path if ledger in found else ""
            found[ledger] = LimboLedger(ledger, path, blocker.reason, blocker.what_to_do)
        return list(found.values())

    def _table(self) -> None:
        made_of = self._limbo, self._sorted_by, self._filter
        if self._listed is self._drawn and made_of == self._made_of:
            return
        self._drawn, self._made_of = self._listed, made_of
        known = self._known = self._ledgers()
        rows = [
            item
            for item in known
            if not self._filter or self._filter in " ".join(_cells(item)).lower()
        ]
        column = self._sorted_by
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
                f"all about it: bkbox ledger explain {item.ledger}"
            )
        self.query_one("#limbo-details", TextLabel).say(text)

    def sort(self) -> None:
        """Sorts by the next column."""
        self._sorted_by = (self._sorted_by + 1) % len(_COLUMNS)
        self._table()

    def filter(self) -> None:
        """Shows the input line of the filter."""
        line = self.query_one("#limbo-filter", Input)
        line.display = True
        line.focus()

    def unfilter(self) -> None:
        """Shows all rows again; keys go to the panel."""
        line = self.query_one("#limbo-filter", Input)
        line.value = ""
        line.display = False
        self.query_one("#blockers", Table).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter = event.value.lower()
        self._table()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = bool(event.value)
        self.query_one("#blockers", Table).focus()


def _cells(item: LimboLedger) -> tuple[str, str, str, str]:
    return str(item.ledger), item.path, item.reason, item.what_to_do
