"""Widgets of the panels, apart from tables (table.py): the bar at the top, text, a line of rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Label, Sparkline, Static

from bkbox_tui.formatting import Level


@dataclass(frozen=True, slots=True)
class Top:
    """The content of the bar at the top."""

    target: str
    connection: str
    level: Level
    age_s: float | None
    flags: tuple[str, ...]


class TopBar(Static):
    """Target, connection, age of the snapshot, and the conditions that must not be overlooked."""

    DEFAULT_CSS = """
    TopBar { dock: top; height: 1; background: $panel; color: $foreground; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.said = ""

    def show(self, top: Top) -> None:
        age = "no data yet" if top.age_s is None else f"{top.age_s:.0f} s old"
        parts = [f"[{top.level.sign}] {top.target}", top.connection, age, *top.flags]
        said = "  ".join(parts)
        if said != self.said:
            self.said = said
            self.update(Text(said, style="bold", no_wrap=True, overflow="ellipsis"))


class TextLabel(Static):
    """Plain text that is drawn again when it changes, and changes the layout only when it needs more lines."""

    def __init__(self, *, id: str, classes: str = "") -> None:
        super().__init__("", id=id, classes=classes, markup=False)
        self._said = ""
        self._shape: tuple[int, int] = (0, 0)

    def say(self, text: str) -> None:
        if text == self._said:
            return
        width = max(1, self.size.width)
        shape = (
            sum(-(-len(line) // width) or 1 for line in text.split("\n")) if text else 0,
            width,
        )
        self.update(text, layout=shape != self._shape)
        self._said, self._shape = text, shape


class RateLine(Horizontal):
    """A name, a sparkline of the last minutes, and the current figure."""

    DEFAULT_CSS = """
    RateLine { height: 1; }
    RateLine Label { width: 14; }
    RateLine Sparkline { width: 1fr; height: 1; }
    RateLine .now { width: 16; text-align: right; }
    """

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self._title = title

    def compose(self) -> ComposeResult:
        yield Label(self._title)
        yield Sparkline([])
        yield Label("", classes="now", markup=False)

    def show(self, points: Sequence[float], now: str) -> None:
        # For a single point the widget would draw a full bar, which looks like the worst value.
        self.query_one(Sparkline).data = list(points) if len(points) > 1 else []
        self.query_one(".now", Label).update(now)
