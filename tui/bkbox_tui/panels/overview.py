"""The first panel: is it safe, what is it doing, how long, what do I do next; then what it does, and with what."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.events import Resize

from bkbox_tui import cards
from bkbox_tui.panels.base import Panel
from bkbox_tui.view import View
from bkbox_tui.widgets import Card

_BORDERS = 8
"""Lines that the borders of the four rows take."""


class Overview(Panel):
    """Cards whose heights depend on the size of the screen and the number of disks alone, so that nothing moves."""

    DEFAULT_CSS = """
    Overview { padding: 0; }
    Overview Horizontal { height: auto; }
    Overview Vertical { width: 3fr; height: auto; }
    Overview #traffic { width: 5fr; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._view: View | None = None

    def compose(self) -> ComposeResult:
        yield Card("Safe?", id="verdict")
        with Horizontal():
            with Vertical():
                yield Card("Limbo and jobs", id="repair")
                yield Card("Events", id="events-lines")
            yield Card("Adds and reads", id="traffic")
        yield Card("Disks", id="disk-lines")
        yield Card("Processes", id="process-lines")

    def show(self, view: View) -> None:
        self._view = view
        snapshot, history, answers = view.snapshot, view.history, view.answers
        status = snapshot.status if snapshot is not None else None
        disks = len(status.disks if status is not None else snapshot.files if snapshot else ())
        heights = dict(zip(_CARDS, heights_of(self.size.height, disks), strict=True))
        heights["traffic"] = heights["repair"]
        heights["repair"], heights["events-lines"] = _halves(heights["traffic"])
        found = {card.id or "": card for card in self.query(Card)}
        if found.keys() != heights.keys():  # they are just being removed
            return
        for name, card in found.items():
            card.tall(heights[name])
        safe, repair, traffic = found["verdict"], found["repair"], found["traffic"]
        events = found["events-lines"]
        events.display = bool(heights["events-lines"])
        disk_lines, process_lines = found["disk-lines"], found["process-lines"]
        safe.level(answers.level)
        safe.set_content(cards.verdict(answers, safe.inner, heights["verdict"]))
        repair.set_content(cards.repair(snapshot, history, repair.inner, heights["repair"]))
        events.set_content(cards.events(view.events, events.inner, heights["events-lines"]))
        traffic.set_content(cards.traffic(history, traffic.inner, heights["traffic"]))
        disk_lines.set_content(
            cards.disks(snapshot, history, disk_lines.inner, heights["disk-lines"])
        )
        process_lines.set_content(
            cards.processes(status, process_lines.inner, heights["process-lines"])
        )

    def on_resize(self, _event: Resize) -> None:
        if self._view is not None:
            self.call_after_refresh(self.show, self._view)


_SHARED_FROM = 16
"""Lines from which on the card of the repair shares its place with that of the events."""


def _halves(height: int) -> tuple[int, int]:
    """Lines inside the cards of the repair and of the events; 0: it is left out."""
    if height < _SHARED_FROM:
        return height, 0
    events = (height - 2) // 2
    return height - 2 - events, events


_CARDS = ("verdict", "repair", "disk-lines", "process-lines")


def heights_of(height: int, disks: int) -> tuple[int, int, int, int]:
    """Lines inside the cards of the verdict, repair and traffic, disks, and processes; together with their borders no
    more than ``height``, from 20 on."""
    space = max(12, height - _BORDERS)
    verdict, processes = (4 if space < 22 else 8), 2
    remaining = space - verdict - processes
    shown = max(1, min(disks, remaining - 4))
    return verdict, min(36, remaining - shown), shown, processes
