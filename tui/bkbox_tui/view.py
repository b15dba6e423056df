"""The data that panels draw from; updated once a second by the app, read by the visible panel."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bkbox_tui.answers import Answers, answers_of
from bkbox_tui.events import EVENTS_MAX, Event, changes
from bkbox_tui.history import History
from bkbox_tui.snapshot import Snapshot
from bkbox_tui.sources import Source


@dataclass(slots=True)
class View:
    """The newest snapshot and the history of those before it; memory is bounded."""

    source: Source
    snapshot: Snapshot | None = None
    history: History = field(default_factory=History)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    answers: Answers = field(default_factory=lambda: answers_of(None))

    def update(self, snapshot: Snapshot) -> None:
        """Adds a snapshot."""
        self.events.extend(changes(self.snapshot, snapshot))
        self.history.add(snapshot)
        self.snapshot = snapshot
        self.answers = answers_of(snapshot)

    @property
    def flags(self) -> tuple[str, ...]:
        """READ-ONLY, LIMBO: conditions shown on every panel."""
        status = self.snapshot.status if self.snapshot is not None else None
        if status is None:
            return ()
        found = []
        if status.state == "running" and not status.writable:
            found.append("READ-ONLY")
        if status.limbo.ledgers:
            found.append(f"LIMBO {status.limbo.ledgers}")
        return tuple(found)
