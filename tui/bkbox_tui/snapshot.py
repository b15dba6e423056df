"""What is known of a bookie at one moment; what is recorded is a row of these."""

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
    """What the files of a disk say while nobody runs: read, never written.

    ``marker``: what the next start makes of it, in words; ``problem``: why it could not be read, or "".
    """

    path: str
    disk: str
    marker: str
    free_bytes: int
    total_bytes: int
    problem: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``status`` is None where the bookie did not answer; ``problem`` says why, ``files`` what its disks say."""

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
    """Raises EncodingError naming the place that is wrong."""
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
