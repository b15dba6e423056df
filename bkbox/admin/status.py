"""The status document: what a bookie says about itself, to the CLI, the terminal screen and scripts
alike.

Contract: one document, one schema number. ``to_json`` and ``from_json`` are inverse to each other.
Keys that a reader does not know are skipped, so that a field may be added under the same schema
number; a field that changes its meaning, or goes, takes a new number, and a reader refuses numbers
it does not know.

Sizes are bytes, times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bkbox.documents import from_document
from bkbox.errors import EncodingError
from bkbox.jobs.job import Blocker, Job

SCHEMA_VERSION = 1

BookieState = Literal["starting", "running", "stopping", "stopped", "refused"]
CrashClass = Literal[
    "clean",
    "process crash",
    "host crash",
    "disk lost",
    "disk replaced",
    "foreign disk",
    "unknown",
]
DiskState = Literal["in service", "out of service", "failed"]
Role = Literal["supervisor", "frontend", "worker", "repair"]


@dataclass(frozen=True, slots=True)
class Boot:
    """How far the start has come, and what made it go that way."""

    phase: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """What the last start read again from a disk's logs; ``damaged`` counts ranges that could not
    be read.
    """

    records: int = 0
    entries: int = 0
    bytes: int = 0
    cut_bytes: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage on the way of the adds of a disk (queue, append, index, fsync, reply), since its worker
    began: how many adds there were and how long it took them, in microseconds.
    """

    stage: str
    count: int
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """One data disk: what the last start found (``crash_class`` and why) and how it is now.

    ``disk`` is the disk's uuid, ``read_only`` the named reasons for which it takes no entries
    (empty: it takes them).
    """

    path: str
    disk: str
    crash_class: CrashClass
    reason: str
    state: DiskState
    ledgers: int
    limbo_ledgers: int
    free_bytes: int
    total_bytes: int
    read_only: tuple[str, ...] = ()
    replay: Replay = Replay()
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the bookie; ``restarts`` since the supervisor started."""

    role: Role
    name: str
    pid: int
    restarts: int
    running: bool


@dataclass(frozen=True, slots=True)
class Limbo:
    """Repair: ``ledgers`` are in limbo now; all else is what the limbo job says that runs, or else of the
    last one since the start. ``eta_s`` is None where nothing can be said.
    """

    ledgers: int = 0
    done: int = 0
    entries_checked: int = 0
    entries_missing: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    eta_s: float | None = None
    blockers: tuple[Blocker, ...] = ()


@dataclass(frozen=True, slots=True)
class Jobs:
    """Long work: the jobs that have not ended, and how many of those that are remembered came to which end."""

    active: tuple[Job, ...] = ()
    done: int = 0
    failed: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class StatusWarning:
    """Something the operator ought to know, and the command that mends it ("" where there is none)."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole document. ``kernel`` says which implementation of the inner loops runs."""

    version: str
    bookie_id: str
    instance_id: str
    listen: str
    state: BookieState
    writable: bool
    ack_after: str
    boot: Boot
    read_only_reasons: tuple[str, ...] = ()
    disks: tuple[DiskStatus, ...] = ()
    processes: tuple[Process, ...] = ()
    limbo: Limbo = Limbo()
    jobs: Jobs = Jobs()
    warnings: tuple[StatusWarning, ...] = ()
    kernel: str = "interpreted"
    schema: int = SCHEMA_VERSION


def to_json(status: Status) -> dict[str, Any]:
    """The document as what ``json.dumps`` takes."""
    return asdict(status)


def from_json(document: object) -> Status:
    """Read what ``json.loads`` gave. Raises EncodingError naming the place that is wrong."""
    if not isinstance(document, Mapping):
        raise EncodingError(f"status: expected an object, found {type(document).__name__}")
    if document.get("schema") != SCHEMA_VERSION:
        raise EncodingError(
            f"status has schema {document.get('schema')!r} and this version reads {SCHEMA_VERSION}:"
            " the bookie that answers runs another version of bkbox"
        )
    return from_document(Status, document, "status")
