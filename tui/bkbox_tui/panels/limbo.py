"""Ledgers in limbo: progress of the repair, and what keeps the rest from being repaired; and ledgers that were ended
with loss accepted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.css.query import NoMatches

from bkbox.api.admin.limbo import LimboLedger
from bkbox.api.admin.status import Limbo as LimboStatus
from bkbox.api.admin.status import Losses
from bkbox.base.commandline import cluster_command
from bkbox.base.text import counted
from bkbox.errors import BkboxError
from bkbox_tui.charts import bar
from bkbox_tui.formatting import amount, size, span
from bkbox_tui.panels.listing import Listing
from bkbox_tui.sources import Bookie, Source
from bkbox_tui.table import NOTHING, Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel

_BAR = 30
_COLUMNS = ("ledger", "state", "disk", "why", "what to do")
_STATES = ("[X] stuck", "[~] limbo", "[!] ended")
"""In the order in which they need an operator."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A ledger of the list."""

    ledger: int
    state: str
    path: str
    reason: str
    what_to_do: str

    @property
    def cells(self) -> tuple[str, ...]:
        parts = (self.path, self.reason, self.what_to_do)
        return (str(self.ledger), self.state, *(each or NOTHING for each in parts))


class Limbo(Listing):
    """Progress, and the ledgers themselves, with the reason for those that are stuck, and the loss of those that were
    ended; sorted and filtered here.

    All ledgers are requested only while the panel is visible, as they may be many. A recording has only the stuck ones.
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(("state", *(name for name in _COLUMNS if name != "state")), id=id)
        self._source: Source | None = None
        self._limbo = LimboStatus()
        self._losses = Losses()
        self._listed: list[LimboLedger] = []
        self._known: dict[str, _Row] = {}
        self._drawn: list[LimboLedger] | None = None
        self._made_of: tuple[object, ...] | None = None
        self._listed_for: tuple[int, int] | None = None
        self._asking = False

    def compose(self) -> ComposeResult:
        yield TextLabel(id="limbo-progress", classes="box first", title="Repair")
        yield TextLabel(id="limbo-title", classes="title")
        yield from self.filter_line()
        yield Table(_COLUMNS, id="blockers", fills=True, right={"ledger"})
        yield TextLabel(id="limbo-details", classes="box", title="Ledger")

    def show(self, view: View) -> None:
        if view.source is not self._source:
            self._source, self._listed, self._listed_for = view.source, [], None
        snapshot = view.snapshot
        status = snapshot.status if snapshot is not None else None
        self._limbo = status.limbo if status is not None else LimboStatus()
        self._losses = status.losses if status is not None else Losses()
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
        self.query_one("#limbo-progress", TextLabel).set_content(progress)
        counts = limbo.ledgers, limbo.done
        if isinstance(view.source, Bookie) and counts != self._listed_for and not self._asking:
            self._listed_for = counts
            self.run_worker(self.load(view.source))  # draws the result
        else:
            self.draw()

    async def load(self, source: Source) -> None:
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

    def _ledgers(self) -> list[_Row]:
        """The ledgers in limbo as far as known, the stuck ones, and those that were ended with loss accepted."""
        ended = {
            item.ledger: _Row(item.ledger, _STATES[2], "", "; ".join(item.records), "")
            for item in self._losses.listed
        }
        listed = {item.ledger: item for item in self._listed} if self._limbo.ledgers else {}
        limbo = {
            item.ledger: _Row(item.ledger, _STATES[1], item.path, item.reason, item.what_to_do)
            for item in listed.values()
        }
        for item in self._limbo.blockers:
            path = listed[item.ledger].path if item.ledger in listed else ""
            limbo[item.ledger] = _Row(item.ledger, _STATES[0], path, item.reason, item.what_to_do)
        return list((ended | limbo).values())

    def draw(self) -> None:
        made_of = self._limbo, self._losses, self.order, self.text
        if self._listed is self._drawn and made_of == self._made_of:
            return
        self._drawn, self._made_of = self._listed, made_of
        known = self._ledgers()
        self._known = {str(item.ledger): item for item in known}
        rows = [item for item in known if self.text in " ".join(item.cells).lower()]
        column = _COLUMNS.index(self.order)
        rows.sort(key=lambda item: item.ledger)
        if self.order == "state":
            rows.sort(key=lambda item: _STATES.index(item.state))
        elif self.order != "ledger":
            rows.sort(key=lambda item: (item.cells[column] == NOTHING, item.cells[column]))
        parts = [f"{amount(self._limbo.stuck)} stuck"]
        parts += [f"{amount(self._losses.ledgers)} ended with loss"] if self._losses.ledgers else []
        lost = self._losses.entries
        parts += [f"{counted(lost, 'entry')} known to be lost"] if lost else []
        parts += [f"{amount(len(rows))} shown"] if len(rows) < len(known) else []
        more = self._limbo.ledgers + (self._losses.ledgers or 0) - len(known)
        parts += [f"{amount(more)} more are not listed"] if more > 0 and self._listed else []
        title = ", ".join([*parts, f"by {self.order}"]) if known else "no ledger"
        self.entitle("#limbo-title", "#blockers", title)
        self.query_one("#blockers", Table).show([(str(item.ledger), item.cells) for item in rows])
        self._details()

    @property
    def selected(self) -> int | None:
        """The ledger under the cursor."""
        chosen = self.query_one("#blockers", Table).selected
        return None if chosen is None else int(chosen)

    def records_of(self, ledger: int) -> tuple[str, ...]:
        """Its records of loss, as far as the bookie has told them."""
        found = (item.records for item in self._losses.listed if item.ledger == ledger)
        return next(found, ())

    def on_table_row_selected(self, _event: object) -> None:
        self._details()

    def _details(self) -> None:
        item = self._known.get(self.query_one("#blockers", Table).selected or "")
        text = ""
        if item is not None:
            reason = item.reason or "nothing stands in the way of its repair"
            nothing = "nothing: it is closed" if item.state == _STATES[2] else "wait"
            text = (
                f"ledger {item.ledger}: {reason}\nwhat to do: {item.what_to_do or nothing}\n"
                f"all about it: enter{self._command(item.ledger)}"
            )
        self.query_one("#limbo-details", TextLabel).set_content(text)

    def _command(self, ledger: int) -> str:
        source = self._source
        if not isinstance(source, Bookie) or source.config is None:
            return ""
        return f", or {cluster_command('ledger', 'explain', ledger)}"
