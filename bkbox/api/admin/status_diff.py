"""Changes from one status document to the next, in words: the events of the API and of the screen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from bkbox.api.admin.status import Status
from bkbox.base.text import counted
from bkbox.jobs.job import Job, JobState


class Severity(IntEnum):
    """Ascending."""

    INFO = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Change:
    """``subject``: what it is about, as a path: ``bookie``, ``disk/UUID``, ``job/7``."""

    severity: Severity
    subject: str
    text: str


def changes(old: Status | None, new: Status) -> Iterator[Change]:
    """The differences in ``new``; of a first document, only its warnings."""
    if old is not None:
        yield from _bookie(old, new)
        yield from _disks(old, new)
        yield from _processes(old, new)
        yield from _limbo(old, new)
    yield from _warnings(old, new)


def changes_of_jobs(old: Sequence[Job] | None, new: Sequence[Job]) -> Iterator[Change]:
    """The same of all jobs that are remembered; None: none were looked at before."""
    known = {job.id: job for job in old or ()}
    for job in new:
        was = known.get(job.id)
        if old is None and job.state.ended:
            continue
        if was is None or _shown_state(was) is not _shown_state(job):
            yield _job(job)
        if job.blocked > (0 if was is None else was.blocked) and not job.state.ended:
            text = f"job {job.id} ({job.kind.value}) is blocked by {counted(job.blocked, 'ledger')}"
            yield Change(Severity.WARNING, f"job/{job.id}", text)


def _bookie(old: Status, new: Status) -> Iterator[Change]:
    if old.state != new.state:
        yield Change(Severity.INFO, "bookie", f"the bookie is {new.state}")
    if old.state != "running" and old.boot.phase != new.boot.phase:
        yield Change(Severity.INFO, "bookie", f"start: {new.boot.phase}")
    if old.writable != new.writable and new.state == "running":
        if new.writable:
            yield Change(Severity.INFO, "bookie", "it takes new entries again")
        else:
            why = ", ".join(new.read_only_reasons) or "no reason given"
            yield Change(Severity.WARNING, "bookie", f"read-only: {why}")


def _disks(old: Status, new: Status) -> Iterator[Change]:
    known = {disk.disk: disk for disk in old.disks}
    for disk in new.disks:
        subject = f"disk/{disk.disk}"
        was = known.pop(disk.disk, None)
        if was is None:
            yield Change(Severity.INFO, subject, f"disk {disk.path} is there")
        elif was.state != disk.state:
            bad = Severity.ERROR if disk.state == "failed" else Severity.WARNING
            severity = Severity.INFO if disk.state == "in service" else bad
            yield Change(severity, subject, f"disk {disk.path} is {disk.state}: {disk.reason}")
        elif was.read_only != disk.read_only:
            severity = Severity.WARNING if disk.read_only else Severity.INFO
            why = ", ".join(disk.read_only) or "no more"
            yield Change(severity, subject, f"disk {disk.path}: read-only: {why}")
    for removed in known.values():
        yield Change(Severity.WARNING, f"disk/{removed.disk}", f"disk {removed.path} is gone")


def _processes(old: Status, new: Status) -> Iterator[Change]:
    known = {(process.role, process.name): process.restarts for process in old.processes}
    for process in new.processes:
        if process.restarts > known.get((process.role, process.name), process.restarts):
            text = f"{process.role} {process.name} ended and was started again"
            yield Change(Severity.ERROR, f"process/{process.role}", text)


def _limbo(old: Status, new: Status) -> Iterator[Change]:
    was, now = old.limbo.ledgers, new.limbo.ledgers
    if now > was:
        yield Change(
            Severity.WARNING,
            "limbo",
            f"{counted(now - was, 'more ledger', 'are')} in limbo, {now} in all",
        )
    elif was and not now:
        yield Change(Severity.INFO, "limbo", "no ledger is in limbo any more")
    known = {blocker.ledger for blocker in old.limbo.blockers}
    for blocker in new.limbo.blockers:
        if blocker.ledger not in known:
            text = f"ledger {blocker.ledger} stays in limbo: {blocker.reason}"
            yield Change(Severity.ERROR, f"ledger/{blocker.ledger}", text)


def _warnings(old: Status | None, new: Status) -> Iterator[Change]:
    # Numbers change from second to second; the same words with other numbers are no news.
    known = {_without_digits(warning.text) for warning in old.warnings} if old else set()
    for warning in new.warnings:
        if _without_digits(warning.text) not in known:
            yield Change(Severity.WARNING, "warning", warning.text)


def _without_digits(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdigit())


def _shown_state(job: Job) -> JobState:
    """A job that is blocked runs all the same, and tries what blocks it again: that is no news each time."""
    return JobState.RUNNING if job.state is JobState.BLOCKED else job.state


def _job(job: Job) -> Change:
    name, subject = f"job {job.id} ({job.kind.value})", f"job/{job.id}"
    match job.state:
        case JobState.FAILED:
            return Change(Severity.ERROR, subject, f"{name} failed: {job.error}")
        case _:
            return Change(Severity.INFO, subject, f"{name} is {_shown_state(job).value}")
