"""A job: a piece of long work of a bookie, in the form that operators see and its history stores.

A job has an id that is never used again, a kind and the arguments that it was started with. It goes from ``queued``
over ``running`` (in which it may be ``paused`` or ``blocked`` at times) to ``done``, ``failed`` or ``cancelled``.

Sizes are bytes, ``…_s`` seconds, ``…_ms`` wall-clock milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from bkbox.base.documents import from_document


class JobKind(StrEnum):
    """The kinds of long work."""

    LIMBO = "limbo"
    """Boot phase two: every ledger in limbo is recovered, checked, refilled and taken out of limbo."""
    RECOVERY = "recovery"
    REPLICATION = "replication"
    DRAIN = "drain"
    DECOMMISSION = "decommission"
    COMPACTION = "compaction"
    GC = "gc"
    SCRUB = "scrub"
    REBUILD = "rebuild"
    AUDIT = "audit"
    CHECK = "check"
    """Compares what this bookie has with what the metadata credits it with, and copies what is missing here."""


class JobState(StrEnum):
    """``blocked``: what is left cannot go on by itself, see the blockers; it is tried again all the same."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    BLOCKED = "blocked"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class JobAction(StrEnum):
    """The actions on a job that has not ended."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RATE = "rate"


@dataclass(frozen=True, slots=True)
class Blocker:
    """A ledger that cannot go on by itself, why, and what the operator can do."""

    ledger: int
    reason: str
    what_to_do: str


@dataclass(frozen=True, slots=True)
class Amount:
    """So much work."""

    ledgers: int = 0
    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ProgressEstimate:
    """The amount of work in all, as far as that is known."""

    ledgers: int | None = None
    entries: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """The recent rate, per second."""

    ledgers: float = 0.0
    entries: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """One job. ``percent`` and ``eta_s`` are None where nothing can be said; ``blockers`` are the first hundred of
    ``blocked`` ledgers; ``bytes_per_second`` is its own speed limit, 0 for none; ``counts`` is what its kind counts
    beside. ``automatic``: the bookie started it by itself. ``asked``: what an operator wants, until it is so.
    ``crashes``: how often in a row the repair process has ended shortly after it was started. ``idle_minutes``: for how
    long it has done nothing at all, not even wait in its turn. ``standing_by``: it has no end, and nothing to do now;
    ``percent`` and ``eta_s`` are None then.
    """

    id: int
    kind: JobKind
    arguments: dict[str, str]
    created_ms: int
    state: JobState = JobState.QUEUED
    step: str = ""
    percent: float | None = None
    done: Amount = Amount()
    expected: ProgressEstimate = ProgressEstimate()
    rate: Rate = Rate()
    eta_s: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    blocked: int = 0
    blockers: tuple[Blocker, ...] = ()
    bytes_per_second: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    error: str = ""
    automatic: bool = False
    asked: Literal["", "pause", "cancel"] = ""
    crashes: int = 0
    idle_minutes: int = 0
    standing_by: bool = False


def to_json(job: Job) -> dict[str, Any]:
    """The job as a document for ``json.dumps``."""
    return asdict(job)


def from_json(document: object, where: str = "job") -> Job:
    """Decode a document of ``json.loads``; fields that an older version did not write have their defaults. Raises
    EncodingError naming the invalid place.
    """
    if isinstance(document, Mapping):
        document = {**_DEFAULTS, **document}
    return from_document(Job, document, where)


_REQUIRED = ("id", "kind", "arguments", "created_ms")
_DEFAULTS = {
    name: value
    for name, value in to_json(Job(0, JobKind.LIMBO, {}, 0)).items()
    if name not in _REQUIRED
}


def with_report(job: Job, values: Mapping[str, Any]) -> Job:
    """The job after a report of the repair process (``JobReport``). Raises EncodingError."""
    return from_json(to_json(job) | dict(values), f"report of job {job.id}")
