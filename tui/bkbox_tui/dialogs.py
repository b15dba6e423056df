"""Dialogs over the panels: the keys, a question, a text that takes a while to load."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from bkbox_tui.keys import Key, shown


class HelpScreen(ModalScreen[None]):
    """The keys that are active on the panel below."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll { width: 72; max-width: 95%; max-height: 90%; height: auto; border: round $accent;
        background: $surface; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", "Close")]

    def __init__(self, title: str, about: str, keys: list[Key]) -> None:
        super().__init__()
        self._title, self._about, self._keys = title, about, keys

    def compose(self) -> ComposeResult:
        table = Table.grid(padding=(0, 2))
        for key in self._keys:
            table.add_row(shown(key.key), key.label, key.help)
        with VerticalScroll():
            yield Static(f"{self._title}: {self._about}\n", markup=False)
            yield Static(table)
            yield Static("\nescape closes this; ctrl+p finds everything by name", markup=False)


class Page(ModalScreen[None]):
    """A text to read, shown when it has been loaded."""

    DEFAULT_CSS = """
    Page { align: center middle; }
    Page VerticalScroll { width: 100; max-width: 95%; max-height: 90%; height: auto; border: round $accent;
        background: $surface; padding: 0 1; }
    Page .title { text-style: bold; color: $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Close")]

    def __init__(self, title: str, before: str) -> None:
        """``before``: the text shown until then."""
        super().__init__()
        self._title = title
        self._shown = Static(before, markup=False)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._title, classes="title", markup=False)
            yield self._shown
            yield Static("\nescape closes this", markup=False)

    def set_content(self, text: str) -> None:
        self._shown.update(text)


class Question(ModalScreen[str | None]):
    """Asks for one line of text; None if it was cancelled. ``must_be``: the text that has to be typed, letter by
    letter."""

    DEFAULT_CSS = """
    Question { align: center middle; }
    Question Vertical { width: 64; max-width: 95%; height: auto; border: round $accent; background: $surface;
        padding: 0 1; }
    Question #problem { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]

    def __init__(self, text: str, *, must_be: str | None = None) -> None:
        super().__init__()
        self._text, self._must_be = text, must_be

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(self._text, markup=False)
            yield Input(compact=True)
            yield Label("", id="problem", markup=False)
            yield Label("enter: do it    escape: leave it", classes="quiet")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self._must_be is not None and event.value.strip() != self._must_be:
            self.query_one("#problem", Label).update(
                f"that is not {self._must_be}: nothing was done"
            )
            return
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)
