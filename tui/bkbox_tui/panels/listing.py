"""A panel with a table that is sorted and filtered."""

from __future__ import annotations

from abc import abstractmethod

from textual.app import ComposeResult
from textual.widgets import Input

from bkbox_tui.panels.base import Panel
from bkbox_tui.table import Table


class Listing(Panel):
    """``orders``: names of the orders, the first is the one at the beginning. A subclass draws with ``draw``, by
    ``order`` and ``text``."""

    def __init__(self, orders: tuple[str, ...], *, id: str) -> None:
        super().__init__(id=id)
        self._orders = orders
        self._order = 0
        self.text = ""
        """Only rows with this text are shown; in lower case."""

    def filter_line(self) -> ComposeResult:
        """The line of the filter, hidden."""
        line = Input(placeholder="only rows that contain …", compact=True)
        line.display = False
        yield line

    @property
    def order(self) -> str:
        return self._orders[self._order]

    @abstractmethod
    def draw(self) -> None:
        """Draws the rows anew."""

    def sort(self) -> None:
        """Sorts by the next order."""
        self._order = (self._order + 1) % len(self._orders)
        self.draw()

    def filter(self) -> None:
        """Shows the line of the filter."""
        line = self.query_one(Input)
        line.display = True
        line.focus()

    def clear(self) -> bool:
        line = self.query_one(Input)
        was = line.display or bool(self.text)
        line.value = ""
        line.display = False
        self.query_one(Table).focus()
        return was

    def on_input_changed(self, event: Input.Changed) -> None:
        self.text = event.value.lower()
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = bool(event.value)
        self.query_one(Table).focus()
