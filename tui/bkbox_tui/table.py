"""A table with keyed rows: changed rows are updated in place, and only visible lines are drawn.

Textual's own table keeps an object for each cell and lays everything out when a row comes or goes, which is more than a
frame may cost if a thousand rows change every second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from bkbox_tui.formatting import Level

Row = tuple[str, tuple[str, ...]]
"""A key that stays with the row, and its cells."""

NOTHING = "-"
"""A cell in which nothing stands."""
_LEVELS = {f"[{level.sign}]": level.style for level in Level}
_TEXT_MIN = 12
_CELL_MAX = 80
_HEADER = 1


class Table(ScrollView, can_focus=True):
    """The table. ``cursor_row``: a number from 0; ``selected``: the key of the row there."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--header",
        "table--odd",
        "table--even",
        "table--cursor",
        *(f"table--{level.style}" for level in Level),
    }
    DEFAULT_CSS = """
    Table { height: auto; max-height: 100%; scrollbar-size-horizontal: 0; background: $surface; color: $foreground; }
    Table > .table--header { text-style: bold; background: $panel; color: $foreground; }
    Table:ansi > .table--header { background: ansi_bright_blue; color: ansi_default; }
    Table > .table--success { color: $text-success; }
    Table > .table--primary { color: $text-primary; }
    Table > .table--warning { color: $text-warning; }
    Table > .table--error { color: $text-error; }
    Table > .table--even { background: $surface-lighten-1 50%; }
    Table:dark > .table--even { background: $surface-darken-1 40%; }
    Table > .table--cursor {
        background: $block-cursor-blurred-background;
        color: $block-cursor-blurred-foreground;
        text-style: $block-cursor-blurred-text-style;
    }
    Table:focus > .table--cursor {
        background: $block-cursor-background;
        color: $block-cursor-foreground;
        text-style: $block-cursor-text-style;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "first", "First", show=False),
        Binding("end", "last", "Last", show=False),
    ]

    class RowSelected(Message):
        """Another row is under the cursor."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        id: str,
        title: str = "",
        fills: bool = False,
        tail: bool = False,
        right: Collection[str] = (),
    ) -> None:
        """``fills``: it takes the height that others leave; ``tail``: a cursor in the last row stays in the last row;
        ``right``: columns of figures."""
        super().__init__(id=id, classes="box fills" if fills else "box")
        self.border_title = title
        self.titles = tuple(columns)
        self.tail = tail
        self._right = [title in right for title in columns]
        self.cursor_row = 0
        self._given: list[Row] = []
        self._widths = self._widths_of([])
        self.virtual_size = self._whole()

    # ---- content ------------------------------------------------------------------------------------

    def show(self, rows: Sequence[Row]) -> None:
        """Replaces the rows."""
        given = list(rows)
        if given == self._given:
            return
        at, before, place = self.selected, len(self._given), self.cursor_row
        self._given = given
        widths = zip(self._widths, self._widths_of(given), strict=True)
        self._widths = [max(before, width) if width else 0 for before, width in widths]
        self._resize()
        last = len(given) - 1
        keys = [key for key, _ in given]
        if self.tail and place >= before - 1:
            self._go(last)
        elif at in keys:
            self.cursor_row = keys.index(at)
            if self.scroll_y and self.cursor_row != place:
                self.scroll_to(y=self.scroll_y + self.cursor_row - place, animate=False)
        else:
            self.cursor_row = max(0, min(place, last))
        if self.selected != at:
            self.post_message(self.RowSelected())
        self.refresh()

    @property
    def row_count(self) -> int:
        return len(self._given)

    @property
    def selected(self) -> str | None:
        """The key of the row under the cursor."""
        if not 0 <= self.cursor_row < len(self._given):
            return None
        return self._given[self.cursor_row][0]

    def _widths_of(self, rows: Sequence[Row]) -> list[int]:
        """0 for a column after the first in which nothing stands: it is left out."""
        widths = [0] * len(self.titles)
        for _, cells in rows:
            for column, cell in enumerate(cells):
                width = _width(cell)
                if width > widths[column] and cell != NOTHING:
                    widths[column] = width
        return [
            max(width, cell_len(title)) if width or not (rows and column) else 0
            for column, (width, title) in enumerate(zip(widths, self.titles, strict=True))
        ]

    def _whole(self) -> Size:
        return Size(sum(width + 2 for width in self._widths if width), len(self._given) + _HEADER)

    def _resize(self) -> None:
        """Changes the layout only if the table needs more or less space than before: it scrolls if it has no space for
        all rows."""
        before, now = self.virtual_size, self._whole()
        if now == before:
            return
        height = self.size.height
        if before.height > height and now.height > height:
            self.set_reactive(Widget.virtual_size, now)
            self._scroll_update(now)
        else:
            self.virtual_size = now

    # ---- drawing ------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, left = self.size.width, int(self.scroll_x)
        number = int(self.scroll_y) + y - _HEADER
        if y < _HEADER:
            cells, style = self.titles, self._style("header")
        elif number < len(self._given):
            cells = self._given[number][1]
            kind = "odd" if number % 2 else "even"
            style = self._style("cursor" if number == self.cursor_row else kind)
        else:
            return Strip.blank(width, self.rich_style)
        texts = map(_padded, cells, self._fitting(left + width), self._right)
        line = Strip([each for text in texts if text for each in self._signed(text, style)])
        return line.crop(left, left + width).adjust_cell_length(width, style)

    def _signed(self, text: str, style: Style) -> list[Segment]:
        """A cell; the sign of a level at its beginning has the level's colour, but not on the cursor's own."""
        level = _LEVELS.get(text[1:4])
        if level is None or style == self._style("cursor"):
            return [Segment(text, style)]
        coloured = style + Style(color=self._style(level).color, bold=True)
        return [Segment(text[:4], coloured), Segment(text[4:], style)]

    def _fitting(self, edge: int) -> list[int]:
        """The widths, without figures that the right edge would cut: half a figure is a wrong one; text is cut there,
        and left out where next to nothing of it would be seen."""
        found, at = [], 0
        for wide, right in zip(self._widths, self._right, strict=True):
            fits = at + wide + 2 <= edge or (not right and edge - at >= _TEXT_MIN)
            found.append(min(wide, edge - at - 2) if fits else 0)
            at += wide + 2 if wide and fits else 0
        return found

    def _style(self, part: str) -> Style:
        return self.get_component_rich_style(f"table--{part}")

    # ---- the cursor ---------------------------------------------------------------------------------

    def _go(self, row: int) -> None:
        """Moves the cursor to this row, and scrolls to it."""
        before, self.cursor_row = self.selected, max(0, min(row, len(self._given) - 1))
        top, seen = int(self.scroll_y), self._seen
        if self.cursor_row < top:
            top = self.cursor_row
        elif self.cursor_row >= top + seen:
            top = self.cursor_row - seen + 1
        self.scroll_to(y=top, animate=False)
        # The container, too, may show only a part of the table.
        place = self.virtual_region
        top_line = place.y + self.gutter.top + _HEADER
        line = Region(place.x, top_line + self.cursor_row - top, 1, 1)
        if isinstance(self.parent, Widget):
            self.parent.scroll_to_region(line, animate=False)
        if self.selected != before:
            self.post_message(self.RowSelected())
        self.refresh()

    def _move(self, by: int) -> None:
        """Moves the cursor; at its end scrolls the container, which may have more to show."""
        row = max(0, min(self.cursor_row + by, len(self._given) - 1))
        if row != self.cursor_row:
            self._go(row)
        elif isinstance(self.parent, Widget):
            self.parent.scroll_relative(y=by, animate=False)

    @property
    def _seen(self) -> int:
        """The number of visible rows."""
        return max(1, self.scrollable_content_region.height - _HEADER)

    def action_move(self, by: int) -> None:
        self._move(by)

    def action_page(self, by: int) -> None:
        self._move(by * max(1, self._seen - 1))

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(len(self._given) - 1)

    def on_click(self, event: Click) -> None:
        if event.y >= _HEADER:
            self._go(int(self.scroll_y) + event.y - _HEADER)


def _padded(cell: str, width: int, right: bool) -> str:
    if not width:
        return ""
    text = _cell(cell)
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    space = " " * (width - cell_len(text))
    return f" {space}{text} " if right else f" {text}{space} "


@lru_cache(16_384)
def _width(cell: str) -> int:
    return cell_len(_cell(cell))


def _cell(text: str) -> str:
    """Makes a cell short and one line: text from elsewhere may be anything."""
    if len(text) <= _CELL_MAX and text.isprintable() and "  " not in text:
        return text.strip()
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _CELL_MAX else line[: _CELL_MAX - 1] + "…"
