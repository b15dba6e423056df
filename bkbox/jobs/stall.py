"""Jobs that make no progress: the warnings for operators, with the reason as far as known.

Operators do not miss collection, compaction and scrubs until a disk is full or a record is gone. So not only failures
are reported, but also that no job of a kind has completed lately, for whatever reason.

Pure: the clock is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted
from bkbox.jobs.job import Job, JobKind, JobState
from bkbox.jobs.registry import Registry

STUCK_MINUTES = 10
"""A job without a checkpoint for so many minutes is stuck, whatever it waits for."""

_ROUNDS = 3
_GRACE_S = 3_600.0
"""A kind is late if no job of it has completed for this many of its intervals, plus this grace period."""


class Stall(NamedTuple):
    """A warning. ``job``: the job concerned, None if there is none."""

    text: str
    job: int | None


def stalls(
    registry: Registry, every_s: Mapping[JobKind, float | None], *, began_ms: int, now_ms: int
) -> list[Stall]:
    """The warnings. ``every_s``: the interval of each kind; None: never. ``began_ms``: when the bookie started."""
    found = [
        Stall(
            f"job {job.id} ({job.kind.value}) has got no further for {job.idle_minutes} minutes: "
            f"{job.step or 'it begins'}",
            job.id,
        )
        for job in registry.active()
        if job.state in (JobState.RUNNING, JobState.BLOCKED) and job.idle_minutes >= STUCK_MINUTES
    ]
    for kind, interval_s in every_s.items():
        if interval_s is not None:
            found += _overdue(registry, kind, interval_s, began_ms, now_ms)
    last = _newest(registry, JobKind.COMPACTION, JobState.DONE)
    if last is not None and last.counts.get("segments_kept") and not last.counts.get("bytes_freed"):
        kept = last.counts["segments_kept"]
        text = (
            f"the last compaction (job {last.id}) freed nothing: garbage stays in {counted(kept, 'segment')}; "
            f"`{bookie_command('gc', 'status')}` says why"
        )
        found.append(Stall(text, last.id))
    return found


def _overdue(
    registry: Registry, kind: JobKind, interval_s: float, began_ms: int, now_ms: int
) -> list[Stall]:
    good = _newest(registry, kind, JobState.DONE)
    since_ms = began_ms if good is None or good.ended_ms is None else max(began_ms, good.ended_ms)
    overdue_s = (now_ms - since_ms) / 1000 - _ROUNDS * interval_s - _GRACE_S
    if overdue_s <= 0:
        return []
    hours = (now_ms - since_ms) / 3_600_000
    newest = _newest(registry, kind)
    text = f"no {kind.value} has come to its end for {hours:.0f} h: {_why(newest)}"
    return [Stall(text, None if newest is None else newest.id)]


def _newest(registry: Registry, kind: JobKind, state: JobState | None = None) -> Job | None:
    found = [job for job in registry.all() if job.kind is kind and state in (None, job.state)]
    return found[-1] if found else None


def _why(job: Job | None) -> str:
    if job is None:
        return "none was started"
    if job.state is JobState.PAUSED or job.asked == "pause":
        return f"job {job.id} is paused; `{bookie_command('job', 'resume', job.id)}` lets it go on"
    if job.state.ended:
        return f"job {job.id} {job.state.value}{': ' if job.error else ''}{job.error}"
    return f"job {job.id} is {job.state.value}: {job.step}"
