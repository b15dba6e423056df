"""The jobs of a bookie, active and ended ones: which may be started, and which actions they accept.

Ids ascend and are never reused. Of two jobs of one kind with the same arguments only one is active at a time. A
bounded number of ended jobs is remembered.

A job whose process ended is run again: its progress is visible in its results. There are two exceptions. A collection
decides by one fresh scan of the whole cluster, half of which is worthless. And a job that crashes its process again
and again ends as failed, because the others have to go on. The limbo job is never given up.

Pure: the clock is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted
from bkbox.errors import EncodingError, JobRefusedError, NoSuchJobError
from bkbox.jobs.job import Job, JobAction, JobKind, JobState, Rate, from_json, to_json, with_report

ENDED_MAX = 200
AUTOMATIC_ENDED_MAX = 20
"""The same bound for jobs that the bookie started by itself, of each kind: they must not push the others out."""

_CRASHES_MAX = 3
_LIVED_WELL_S = 60.0
_NOT_RESUMED = frozenset({JobKind.GC})
_OF_A_RUN = frozenset(
    {
        *("id", "state", "step", "percent", "done", "expected", "rate", "eta_s"),
        *("counts", "blocked", "blockers", "error", "idle_minutes", "standing_by"),
    }
)


class Registry:
    """All jobs that are remembered."""

    def __init__(self, jobs: Iterable[Job] = (), next_id: int = 1) -> None:
        self._jobs = {job.id: job for job in sorted(jobs, key=lambda job: job.id)}
        self.next_id = max([next_id, *(number + 1 for number in self._jobs)])

    def all(self) -> list[Job]:
        """All jobs, the oldest first."""
        return list(self._jobs.values())

    def active(self) -> list[Job]:
        """The jobs that have not ended."""
        return [job for job in self._jobs.values() if not job.state.ended]

    def get(self, number: int) -> Job:
        """The job with this id. Raises NoSuchJobError."""
        job = self._jobs.get(number)
        if job is None:
            raise NoSuchJobError(
                f"there is no job {number}, or it ended long ago: `{bookie_command('job', 'list')}` shows those there "
                "are"
            )
        return job

    def last(self, kind: JobKind, arguments: Mapping[str, str]) -> Job | None:
        """The newest job of this kind with these arguments."""
        found = [job for job in self._jobs.values() if _same(job, kind, arguments)]
        return found[-1] if found else None

    def add(
        self,
        kind: JobKind,
        arguments: Mapping[str, str],
        now_ms: int,
        *,
        automatic: bool = False,
        bytes_per_second: int = 0,
    ) -> Job:
        """Add a job; ``bytes_per_second``: its own limit, 0 for none. Raises JobRefusedError if the same job is
        active.
        """
        for job in self.active():
            if _same(job, kind, arguments):
                raise JobRefusedError(
                    f"this is what job {job.id} does already: see `{bookie_command('job', 'show', job.id)}`"
                )
        job = Job(
            self.next_id,
            kind,
            dict(arguments),
            now_ms,
            automatic=automatic,
            bytes_per_second=bytes_per_second,
        )
        self.next_id += 1
        self._jobs[job.id] = job
        return job

    def control(self, number: int, action: JobAction, bytes_per_second: int = 0) -> Job:
        """Record an operator's action on a job; its state follows with the next report of its process.

        Raises NoSuchJobError, and JobRefusedError if the action is impossible.
        """
        job = self.get(number)
        if job.state.ended:
            raise JobRefusedError(f"job {number} has ended already: it is {job.state.value}")
        match action:
            case JobAction.CANCEL:
                if job.kind is JobKind.LIMBO:
                    raise JobRefusedError(
                        f"job {number} cannot be cancelled: until it ends this bookie cannot say what it lost. "
                        f"`{bookie_command('job', 'pause', number)}` lets it rest, "
                        f"`{bookie_command('job', 'rate', number, '10MiB/s')}` slows it down"
                    )
                job = replace(job, asked="cancel")
            case JobAction.PAUSE | JobAction.RESUME if job.asked == "cancel":
                raise JobRefusedError(f"job {number} is being cancelled")
            case JobAction.PAUSE:
                job = replace(job, asked="pause")
            case JobAction.RESUME:
                job = replace(job, asked="")
            case JobAction.RATE:
                job = replace(job, bytes_per_second=bytes_per_second)
        self._jobs[number] = job
        return job

    def report(self, values: Mapping[str, Any], now_ms: int) -> Job | None:
        """Apply a report of the repair process; None if its job is not active. Raises EncodingError."""
        before = self._jobs.get(values["id"])
        if before is None or before.state.ended:
            return None
        reported = {name: value for name, value in values.items() if name in _OF_A_RUN}
        job = with_report(before, reported)
        if before.state is JobState.QUEUED:
            job = replace(job, started_ms=before.started_ms or now_ms)
        if job.state.ended:
            job = _ended(job, now_ms)
        self._jobs[job.id] = job
        self._forget()
        return job

    def process_ended(self, now_ms: int, lived_s: float | None) -> None:
        """The repair process ended, with its jobs. ``lived_s``: its lifetime; None: the whole bookie was stopped or
        lost, for which no job is blamed.
        """
        for job in self.active():
            if job.state is JobState.QUEUED:
                continue
            crashes = job.crashes
            if lived_s is not None:
                crashes = job.crashes + 1 if lived_s < _LIVED_WELL_S else 1
            after = replace(
                job, state=JobState.QUEUED, step="", crashes=crashes, rate=Rate(), eta_s=None
            )
            if job.kind in _NOT_RESUMED:
                after = _failed(after, now_ms, "interrupted: its process ended; start it again")
            elif crashes >= _CRASHES_MAX and job.kind is not JobKind.LIMBO:
                times = counted(crashes, "time")
                text = f"interrupted: the repair process ended {times} while it ran, see the bookie's log"
                after = _failed(after, now_ms, text)
            self._jobs[job.id] = after

    def _forget(self) -> None:
        ended = [job for job in self._jobs.values() if job.state.ended]
        expired = ended[: max(0, len(ended) - ENDED_MAX)]
        for kind in JobKind:
            of_kind = [job for job in ended if job.kind is kind and job.automatic]
            expired += of_kind[: max(0, len(of_kind) - AUTOMATIC_ENDED_MAX)]
        for job in expired:
            self._jobs.pop(job.id, None)

    def to_json(self) -> dict[str, Any]:
        """A document for ``json.dumps``."""
        return {"next_id": self.next_id, "jobs": [to_json(job) for job in self._jobs.values()]}


def registry_from_json(document: Mapping[str, Any]) -> Registry:
    """Decode a document of ``to_json``. Raises EncodingError."""
    next_id, jobs = document.get("next_id"), document.get("jobs")
    if type(next_id) is not int or not isinstance(jobs, list):
        raise EncodingError("it has no list of jobs")
    return Registry([from_json(job) for job in jobs], next_id)


def _same(job: Job, kind: JobKind, arguments: Mapping[str, str]) -> bool:
    return job.kind is kind and job.arguments == arguments


def _ended(job: Job, now_ms: int) -> Job:
    return replace(
        job,
        ended_ms=now_ms,
        asked="",
        step="",
        rate=Rate(),
        eta_s=None,
        idle_minutes=0,
        standing_by=False,
    )


def _failed(job: Job, now_ms: int, error: str) -> Job:
    return _ended(replace(job, state=JobState.FAILED, error=error), now_ms)
