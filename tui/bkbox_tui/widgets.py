"""Widgets of the panels, apart from tables (table.py): the bar at the top, text, cards."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text
from textual.content import Content
from textual.widgets import Static

from bkbox_tui.cards import Line
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
        self.shown = ""

    def show(self, top: Top) -> None:
        age = "no data yet" if top.age_s is None else f"{top.age_s:.0f} s old"
        parts = [f"[{top.level.sign}] {top.target}", top.connection, age, *top.flags]
        shown = "  ".join(parts)
        if shown != self.shown:
            self.shown = shown
            self.update(Text(shown, style="bold", no_wrap=True, overflow="ellipsis"))


class TextLabel(Static):
    """Plain text that is drawn again when it changes, and changes the layout only when it needs more lines. A box
    without text is not there."""

    def __init__(self, *, id: str, classes: str = "", title: str = "") -> None:
        super().__init__("", id=id, classes=classes, markup=False)
        self.border_title = title
        if self.has_class("box"):
            self.display = False
        self._content = ""
        self._shape: tuple[int, int] = (0, 0)

    def set_content(self, text: str) -> None:
        if text == self._content:
            return
        width = max(1, self.size.width)
        shape = (
            sum(-(-len(line) // width) or 1 for line in text.split("\n")) if text else 0,
            width,
        )
        self.update(text, layout=shape != self._shape)
        if self.has_class("box"):
            self.display = bool(text)
        self._content, self._shape = text, shape


class Card(Static):
    """A border with a title, and lines in it that never change its size; the border has the colour of its level."""

    DEFAULT_CSS = """
    Card { border: round $foreground 35%; border-title-color: $accent; border-title-style: bold; padding: 0 1;
        height: auto; }
    Card.success { border: round $success 70%; }
    Card.primary { border: round $primary; }
    Card.warning { border: round $warning; }
    Card.error { border: round $error; }
    Card:ansi { border: round ansi_default; border-title-color: ansi_default; }
    """

    def __init__(self, title: str, *, id: str, classes: str = "") -> None:
        super().__init__("", id=id, classes=classes, markup=False)
        self.border_title = title
        self._title = title
        self._content: list[Line] | None = None
        self._tall = 0

    @property
    def inner(self) -> int:
        """Characters of a line."""
        return max(10, self.size.width)

    def tall(self, lines: int) -> None:
        """Gives it this many lines inside."""
        if lines != self._tall:
            self._tall = lines
            self.styles.height = lines + 2

    def level(self, level: Level) -> None:
        self.set_classes(level.style)
        self.border_title = f"{self._title} \\[{level.sign}]"

    def set_content(self, lines: list[Line]) -> None:
        if lines != self._content:
            self._content = lines
            parts = [_styled(part) for line in lines for part in (*line, ("\n", ""))]
            self.update(Content.assemble(*parts), layout=False)


_STYLES = {
    "muted": "$text-muted",
    "strong": "bold",
    "accent": "$accent",
    "primary": "$text-primary",
}


def _styled(part: tuple[str, str]) -> tuple[str, str]:
    text, style = part
    return text, _STYLES.get(style, f"$text-{style}") if style else ""
