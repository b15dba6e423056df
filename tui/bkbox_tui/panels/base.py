"""What the app knows of a panel."""

from __future__ import annotations

from textual.containers import VerticalScroll

from bkbox_tui.view import View


class Panel(VerticalScroll):
    """Draws from the view when told to; one that is hidden is told nothing."""

    DEFAULT_CSS = """
    Panel { padding: 0 1; }
    Panel .title { text-style: bold; color: $accent; margin-top: 1; }
    Panel .quiet { color: $text-muted; }
    """

    can_focus = False

    def show(self, view: View) -> None:
        """Draw the newest."""
        raise NotImplementedError

    async def look(self) -> None:
        """Ask for what no snapshot has; called when the panel comes into sight, and by 'Look now'."""
