"""The interface of panels towards the app."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.markup import escape

from bkbox_tui.sources import Source
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel


class Panel(VerticalScroll):
    """A panel draws from the view when the app calls ``show``, which it does for the visible panel only.

    Its parts have the class ``box``: on a terminal of 30 lines and more each has a border with a title, and those with
    the class ``fills`` share the height that is left; on a smaller one borders give way to content.
    """

    DEFAULT_CSS = """
    Panel { padding: 0 1; }
    Panel .title { text-style: bold; color: $accent; margin-top: 1; }
    Panel .box { border-title-color: $accent; border-title-style: bold; }
    Panel .quiet { color: $text-muted; }
    """

    can_focus = False

    def show(self, view: View) -> None:
        """Draws the newest snapshot."""
        raise NotImplementedError

    async def load(self, source: Source) -> None:
        """Requests content that is in no snapshot; called when the panel becomes visible, and by 'Look now'."""

    def entitle(self, title: str, box: str, text: str) -> None:
        """Sets the line above a box, which becomes the title in its border where it has one."""
        self.query_one(title, TextLabel).set_content(text)
        shown, place = escape(text), self.query_one(box)
        if place.border_title != shown:
            place.border_title = shown

    def clear(self) -> bool:
        """Ends what leaves out some of the content; False if nothing did."""
        return False
