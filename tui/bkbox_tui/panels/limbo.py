"""Ledgers in limbo: how far repair is, and what keeps the rest from being repaired."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Input, Static

from bkbox.admin.status import Limbo as LimboStatus
from bkbox.jobs.job import Blocker
from bkbox_tui.panels.base import Panel
from bkbox_tui.view import View
from bkbox_tui.widgets import Table
from bkbox_tui.words import amount, bar, size, span

_BAR = 30
_COLUMNS = ("ledger", "why it stays in limbo", "what to do")


class Limbo(Panel):
    """Progress, and the ledgers that are stuck; sorted and filtered here."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._limbo = LimboStatus()
        self._sorted_by = 0
        self._filter = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="limbo-progress", markup=False)
        yield Static("", id="limbo-title", classes="title", markup=False)
        filter_line = Input(placeholder="only rows that contain …", id="limbo-filter", compact=True)
        filter_line.display = False
        yield filter_line
        yield Table(_COLUMNS, id="blockers")
        yield Static("", id="limbo-details", markup=False)

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
            left = f"{amount(limbo.ledgers)} left of {amount(known)}, {span(limbo.eta_s)}"
            progress = f"{bar(share, _BAR)} {share:.0%}  {left}"
        if known:
            progress += (
                f"\nchecked {amount(limbo.entries_checked)} entries, missing {amount(limbo.entries_missing)}, "
                f"copied {amount(limbo.entries_copied)} ({size(limbo.bytes_copied)})"
            )
        self.query_one("#limbo-progress", Static).update(progress)
        self._table()

    def _table(self) -> None:
        rows = [
            item for item in self._limbo.blockers if self._filter in " ".join(_cells(item)).lower()
        ]
        rows.sort(
            key=lambda item: item.ledger if self._sorted_by == 0 else _cells(item)[self._sorted_by]
        )
        shown = "" if len(rows) == len(self._limbo.blockers) else f", {len(rows)} shown"
        title = f"stuck: {len(self._limbo.blockers)}{shown}, by {_COLUMNS[self._sorted_by]}"
        self.query_one("#limbo-title", Static).update(title if self._limbo.blockers else "")
        self.query_one("#blockers", Table).show([(str(item.ledger), _cells(item)) for item in rows])
        self._details()

    def on_data_table_row_highlighted(self, _event: object) -> None:
        self._details()

    def _details(self) -> None:
        chosen = self.query_one("#blockers", Table).selected
        found = [item for item in self._limbo.blockers if str(item.ledger) == chosen]
        text = ""
        if found:
            item = found[0]
            text = (
                f"\nledger {item.ledger}: {item.reason}\nwhat to do: {item.what_to_do}\n"
                f"all about it: bkbox ledger explain {item.ledger}"
            )
        self.query_one("#limbo-details", Static).update(text)

    def sort(self) -> None:
        """By the next column."""
        self._sorted_by = (self._sorted_by + 1) % len(_COLUMNS)
        self._table()

    def filter(self) -> None:
        """Show the line where the text is typed."""
        line = self.query_one("#limbo-filter", Input)
        line.display = True
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter = event.value.lower()
        self._table()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = bool(event.value)
        self.query_one("#blockers", Table).focus()


def _cells(item: Blocker) -> tuple[str, str, str]:
    return str(item.ledger), item.reason, item.what_to_do
