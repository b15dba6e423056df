"""The state of a bookie at one moment; a recording is a sequence of snapshots."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bkbox.api.admin import status as statuses
from bkbox.api.admin.status import Status
from bkbox.base.documents import from_document
from bkbox.errors import EncodingError
from bkbox.jobs import job as jobs_documents
from bkbox.jobs.job import Job


@dataclass(frozen=True, slots=True)
class DiskFiles:
    """The state of a disk from its files while no bookie runs: read, never written.

    ``marker``: how the next start will treat the disk, as text; ``problem``: why it could not be read, or "".
    """

    path: str
    disk: str
    marker: str
    free_bytes: int
    total_bytes: int
    problem: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot. ``status`` is None if the bookie did not answer; then ``problem`` is the reason, ``files`` the
    state of its disks."""

    taken_ms: int
    status: Status | None
    jobs: tuple[Job, ...] = ()
    problem: str = ""
    files: tuple[DiskFiles, ...] = ()


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "taken_ms": snapshot.taken_ms,
        "status": None if snapshot.status is None else statuses.to_json(snapshot.status),
        "jobs": [jobs_documents.to_json(job) for job in snapshot.jobs],
        "problem": snapshot.problem,
        "files": [asdict(item) for item in snapshot.files],
    }


def from_json(document: object) -> Snapshot:
    """Parses a snapshot. Raises EncodingError naming the place that is wrong."""
    match document:
        case {
            "taken_ms": int(taken_ms),
            "status": status,
            "jobs": list(jobs),
            "problem": str(problem),
            "files": list(files),
        }:
            return Snapshot(
                taken_ms,
                None if status is None else statuses.from_json(status),
                tuple(jobs_documents.from_json(job) for job in jobs),
                problem,
                tuple(from_document(DiskFiles, item, "files") for item in files),
            )
    raise EncodingError("a snapshot has taken_ms, status, jobs, problem and files")
