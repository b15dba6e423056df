"""What panels are made of: the bar at the top, tables that change in place, a line of rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import DataTable, Label, Sparkline, Static

from bkbox_tui.words import Level

Row = tuple[str, tuple[str, ...]]
"""A key that stays with the row, and its cells."""

_CELL_MAX = 80


@dataclass(frozen=True, slots=True)
class Top:
    """What the bar at the top says."""

    target: str
    connection: str
    level: Level
    age_s: float | None
    flags: tuple[str, ...]


class TopBar(Static):
    """Target, connection, age of what is shown, and the words that nobody may overlook."""

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


class Table(DataTable[str]):
    """Rows by key; what is shown again changes in place, so that cursor and scroll position stay."""

    DEFAULT_CSS = """
    Table { height: auto; max-height: 100%; }
    """

    def __init__(self, columns: Sequence[str], *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self.titles = tuple(columns)
        self._shown: list[Row] = []

    def on_mount(self) -> None:
        for title in self.titles:
            self.add_column(title, key=title)

    def show(self, rows: Sequence[Row]) -> None:
        """Make the table these rows."""
        wanted = [(key, tuple(map(_cell, cells))) for key, cells in rows]
        if [key for key, _ in wanted] == [key for key, _ in self._shown]:
            for (key, new), (_, old) in zip(wanted, self._shown, strict=True):
                for title, cell, before in zip(self.titles, new, old, strict=True):
                    if cell != before:
                        self.update_cell(key, title, cell, update_width=True)
        else:
            at = self.selected
            self.clear()
            for key, cells in wanted:
                self.add_row(*cells, key=key)
            keys = [key for key, _ in wanted]
            if at in keys:
                self.move_cursor(row=keys.index(at))
        self._shown = wanted

    @property
    def selected(self) -> str | None:
        """The key of the row under the cursor."""
        if not 0 <= self.cursor_row < len(self._shown):
            return None
        return self._shown[self.cursor_row][0]


def _cell(text: str) -> str:
    """Short and in one line: what comes from elsewhere may be anything."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    cut = line if len(line) <= _CELL_MAX else line[: _CELL_MAX - 1] + "…"
    return cut.replace("[", r"\[")


class RateLine(Horizontal):
    """A name, a line of the last minutes, and the figure of now."""

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
        self.query_one(Sparkline).data = list(points)
        self.query_one(".now", Label).update(now)
