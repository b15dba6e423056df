"""The events of the screen: changes between two snapshots. Pure; the text is that of the API's events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from bkbox.api.admin.status_diff import Severity, changes_of_jobs
from bkbox.api.admin.status_diff import changes as changes_of_status
from bkbox_tui.snapshot import Snapshot

__all__ = ["EVENTS_MAX", "Event", "Severity", "changes"]

EVENTS_MAX = 1_000
"""Maximum number of events kept; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change, its time and its severity."""

    ms: int
    severity: Severity
    text: str

    @property
    def at(self) -> str:
        """The time of day, in UTC."""
        return datetime.fromtimestamp(self.ms / 1_000, UTC).strftime("%H:%M:%S")


def changes(before: Snapshot | None, after: Snapshot) -> list[Event]:
    """The changes between two snapshots."""
    return [Event(after.taken_ms, severity, text) for severity, text in _changes(before, after)]


def _changes(before: Snapshot | None, after: Snapshot) -> Iterator[tuple[Severity, str]]:
    if after.status is None:
        if before is None or before.status is not None:
            yield Severity.ERROR, f"the bookie does not answer: {after.problem}"
        return
    if before is None or before.status is None:
        yield Severity.INFO, f"the bookie answers; it is {after.status.state}"
    for change in changes_of_status(before.status if before is not None else None, after.status):
        yield change.severity, change.text
    for change in changes_of_jobs(before.jobs if before is not None else None, after.jobs):
        yield change.severity, change.text
