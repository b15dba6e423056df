"""Request bodies of the admin API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bkbox.jobs.arguments import request_schema
from bkbox.jobs.job import JobKind


@dataclass(frozen=True, slots=True)
class StartJob:
    """A job to be started. ``arguments``: by name, as text."""

    kind: JobKind
    arguments: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def more_schema() -> dict[str, Any]:
        """The arguments that each kind of job takes."""
        return request_schema()


@dataclass(frozen=True, slots=True)
class SetRate:
    """A speed limit; 0: none. Of all jobs together, null: as configured."""

    bytes_per_second: int | None


@dataclass(frozen=True, slots=True)
class OneDisk:
    """A disk, by path or uuid."""

    disk: str


@dataclass(frozen=True, slots=True)
class NewDisk:
    """The folder of a disk that the configuration newly names."""

    path: str


@dataclass(frozen=True, slots=True)
class ReplaceDisk:
    """A disk, by path or uuid, and the empty folder that is to take its place. ``dry_run``: only say whether it would
    be refused, and change nothing."""

    disk: str
    path: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """A request that makes the bookie read-only, or writable."""

    wanted: bool


@dataclass(frozen=True, slots=True)
class ReadOnlyDisk:
    """A request that makes a disk, by path or uuid, read-only, or writable."""

    disk: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Reload:
    """``dry_run``: only say what would change."""

    dry_run: bool = False
