"""What changed between two snapshots, in words: the events of the screen. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from bkbox.admin.status import Status
from bkbox.jobs.job import Job, JobState
from bkbox_tui.snapshot import Snapshot

EVENTS_MAX = 1_000
"""So many are kept; the oldest go first."""


class Severity(IntEnum):
    """Ascending."""

    INFO = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Event:
    """One change, when it was seen and how bad it is."""

    ms: int
    severity: Severity
    text: str


def changes(before: Snapshot | None, after: Snapshot) -> list[Event]:
    """What is different now."""
    return [Event(after.taken_ms, severity, text) for severity, text in _changes(before, after)]


def _changes(before: Snapshot | None, after: Snapshot) -> Iterator[tuple[Severity, str]]:
    if after.status is None:
        if before is None or before.status is not None:
            yield Severity.ERROR, f"the bookie does not answer: {after.problem}"
        return
    if before is None or before.status is None:
        yield Severity.INFO, f"the bookie answers; it is {after.status.state}"
    old = before.status if before is not None else None
    if old is not None:
        yield from _bookie(old, after.status)
        yield from _disks(old, after.status)
        yield from _processes(old, after.status)
        yield from _limbo(old, after.status)
    yield from _warnings(old, after.status)
    known = {job.id: job for job in before.jobs} if before is not None else {}
    for job in after.jobs:
        yield from _job(known.get(job.id), job, first=before is None)


def _bookie(old: Status, new: Status) -> Iterator[tuple[Severity, str]]:
    if old.state != new.state:
        yield Severity.INFO, f"the bookie is {new.state}"
    if old.state != "running" and old.boot.phase != new.boot.phase:
        yield Severity.INFO, f"start: {new.boot.phase}"
    if old.writable != new.writable and new.state == "running":
        if new.writable:
            yield Severity.INFO, "it takes new entries again"
        else:
            yield (
                Severity.WARNING,
                f"read-only: {', '.join(new.read_only_reasons) or 'no reason given'}",
            )


def _disks(old: Status, new: Status) -> Iterator[tuple[Severity, str]]:
    known = {disk.disk: disk for disk in old.disks}
    for disk in new.disks:
        was = known.pop(disk.disk, None)
        if was is None:
            yield Severity.INFO, f"disk {disk.path} is there"
        elif was.state != disk.state:
            bad = Severity.ERROR if disk.state == "failed" else Severity.WARNING
            severity = Severity.INFO if disk.state == "in service" else bad
            yield severity, f"disk {disk.path} is {disk.state}: {disk.reason}"
        elif was.read_only != disk.read_only:
            severity = Severity.WARNING if disk.read_only else Severity.INFO
            yield severity, f"disk {disk.path}: read-only: {', '.join(disk.read_only) or 'no more'}"
    for gone in known.values():
        yield Severity.WARNING, f"disk {gone.path} is gone"


def _processes(old: Status, new: Status) -> Iterator[tuple[Severity, str]]:
    known = {(process.role, process.name): process.restarts for process in old.processes}
    for process in new.processes:
        if process.restarts > known.get((process.role, process.name), process.restarts):
            yield Severity.ERROR, f"{process.role} {process.name} ended and was started again"


def _limbo(old: Status, new: Status) -> Iterator[tuple[Severity, str]]:
    was, now = old.limbo.ledgers, new.limbo.ledgers
    if now > was:
        yield Severity.WARNING, f"{now - was} more ledgers are in limbo, {now} in all"
    elif was and not now:
        yield Severity.INFO, "no ledger is in limbo any more"
    known = {blocker.ledger for blocker in old.limbo.blockers}
    for blocker in new.limbo.blockers:
        if blocker.ledger not in known:
            yield Severity.ERROR, f"ledger {blocker.ledger} stays in limbo: {blocker.reason}"


def _warnings(old: Status | None, new: Status) -> Iterator[tuple[Severity, str]]:
    # Numbers change from second to second; the same words with other numbers are no news.
    known = {_without_digits(warning.text) for warning in old.warnings} if old else set()
    for warning in new.warnings:
        if _without_digits(warning.text) not in known:
            yield Severity.WARNING, warning.text


def _without_digits(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdigit())


def _job(was: Job | None, job: Job, *, first: bool) -> Iterator[tuple[Severity, str]]:
    if (was is not None and was.state is job.state) or (first and job.state.ended):
        return
    name = f"job {job.id} ({job.kind.value})"
    match job.state:
        case JobState.FAILED:
            yield Severity.ERROR, f"{name} failed: {job.error}"
        case JobState.BLOCKED:
            yield Severity.WARNING, f"{name} is blocked by {job.blocked} ledgers"
        case _:
            yield Severity.INFO, f"{name} is {job.state.value}"
