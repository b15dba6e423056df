"""The interface of panels towards the app."""

from __future__ import annotations

from textual.containers import VerticalScroll

from bkbox_tui.sources import Source
from bkbox_tui.view import View


class Panel(VerticalScroll):
    """A panel draws from the view when the app calls ``show``, which it does for the visible panel only."""

    DEFAULT_CSS = """
    Panel { padding: 0 1; }
    Panel .title { text-style: bold; color: $accent; margin-top: 1; }
    Panel .quiet { color: $text-muted; }
    """

    can_focus = False

    def show(self, view: View) -> None:
        """Draws the newest snapshot."""
        raise NotImplementedError

    async def look(self, source: Source) -> None:
        """Requests content that is in no snapshot; called when the panel becomes visible, and by 'Look now'."""

    def clear(self) -> bool:
        """Ends what leaves out some of the content; False if nothing did."""
        return False
