"""An operator's four questions, answered from a snapshot: is it safe, what is it doing, how long, what do I do next.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.api.admin.status import DiskStatus, Status
from bkbox.checks.bookie import stalls
from bkbox.jobs.job import Job, JobState
from bkbox_tui.formatting import Level, amount, span
from bkbox_tui.snapshot import Snapshot

_AT_WORK = (JobState.RUNNING, JobState.BLOCKED, JobState.PAUSED)


@dataclass(frozen=True, slots=True)
class Answers:
    """``level`` and ``safe`` belong together; ``next_steps``: pairs (reason, advice or command or ""), the most urgent
    first."""

    level: Level
    safe: str
    doing: str
    how_long: str
    next_steps: tuple[tuple[str, str], ...]


def answers_of(snapshot: Snapshot | None) -> Answers:
    """All four answers."""
    if snapshot is None:
        return Answers(Level.UNKNOWN, "not known yet", "asking the bookie", "a moment", ())
    status = snapshot.status
    if status is None:
        return _while_down(snapshot)
    level, safe = safety(status)
    return Answers(
        level, safe, _doing(status, snapshot.jobs), _how_long(status, snapshot.jobs), _next(status)
    )


def safety(status: Status) -> tuple[Level, str]:
    """The safety of the bookie: the worst condition that is true decides."""
    failed = [disk for disk in status.disks if disk.state == "failed"]
    unavailable = [disk for disk in status.disks if disk.state == "out of service"]
    if status.state in ("refused", "stopped"):
        return Level.BAD, f"the bookie is {status.state}"
    if failed:
        return Level.BAD, f"{_disks(failed)} failed; its ledgers rely on their other copies"
    stuck = stalls(status)
    if stuck:
        return Level.BAD, "; ".join(stuck)
    if status.limbo.blockers:
        count = status.limbo.stuck
        return Level.BAD, f"{_ledgers(count)} cannot be repaired without help: see below"
    if unavailable and status.state == "running":
        return Level.WARNING, f"{_disks(unavailable)} out of service"
    if status.limbo.ledgers:
        return Level.WARNING, (
            f"{_ledgers(status.limbo.ledgers)} in limbo: nothing acknowledged is denied, some copies may be missing"
        )
    if status.copies.short:
        short = amount(status.copies.short)
        return (
            Level.WARNING,
            f"{short} copies are missing here; a check brings them back from peers",
        )
    if status.state != "running":
        return Level.BUSY, f"the bookie is {status.state}"
    if not status.writable:
        reasons = ", ".join(status.read_only_reasons) or "no reason given"
        return Level.WARNING, f"read-only: {reasons}; what it holds is safe"
    ended = status.losses.ledgers
    but = f"; {_ledgers(ended)} ended with loss accepted: panel 3" if ended else ""
    return Level.GOOD, f"yes: every disk is in service and nothing is missing{but}"


def _while_down(snapshot: Snapshot) -> Answers:
    broken = [item for item in snapshot.files if item.problem]
    return Answers(
        Level.BAD,
        f"the bookie does not answer: {snapshot.problem}",
        "below is what its disks say",
        "how long is not known",
        (
            *((f"{item.path}: {item.problem}", "") for item in broken),
            ("start the bookie, or see why it does not start", "systemctl status bkbox"),
        ),
    )


def _doing(status: Status, jobs: tuple[Job, ...]) -> str:
    if status.state != "running":
        return status.boot.phase
    found = at_work(jobs)
    if not found:
        return "serving; no other work"
    described = [f"{job.kind.value}{_part(job)}" for job in found[:3]]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "serving, and " + ", ".join(described) + more


def at_work(jobs: tuple[Job, ...]) -> list[Job]:
    """The jobs at work, without idle ones that wait for work, possibly for ever."""
    return [job for job in jobs if job.state in _AT_WORK and not job.standing_by]


def _part(job: Job) -> str:
    parts = [] if job.percent is None else [f"{job.percent:.0f} %"]
    if job.state is not JobState.RUNNING:
        parts.append(job.state.value)
    return f" ({', '.join(parts)})" if parts else ""


def _how_long(status: Status, jobs: tuple[Job, ...]) -> str:
    found = at_work(jobs)
    if status.limbo.ledgers:
        return f"time left: {span(status.limbo.eta_s)}"
    if not found:
        return "nothing to wait for"
    if any(job.eta_s is None for job in found):
        return "time left: unknown"
    return f"time left: {span(max(job.eta_s or 0.0 for job in found))}"


def _next(status: Status) -> tuple[tuple[str, str], ...]:
    blocked = [
        (f"ledger {blocker.ledger}: {blocker.reason}", blocker.what_to_do)
        for blocker in status.limbo.blockers[:5]
    ]
    return (*blocked, *((warning.text, warning.command) for warning in status.warnings))


def _disks(disks: list[DiskStatus]) -> str:
    return f"disk {disks[0].path}" if len(disks) == 1 else f"{len(disks)} disks"


def _ledgers(count: int) -> str:
    return "1 ledger" if count == 1 else f"{amount(count)} ledgers"
