"""The status document: what a bookie says about itself, to the CLI, the terminal screen, HTTP, metrics and scripts
alike.

Contract: one document, one schema number. ``to_json`` and ``from_json`` are inverse to each other. A field may be added
under the same number, with a default; one that changes its meaning, or goes, takes a new number. A reader skips keys
that it does not know and takes the default of those that are not there; of a document with a newer number it shows
what it can, with a warning; one with an older number it refuses.

Sizes are bytes, times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bkbox.api.admin.status_parts import (
    Autorecovery,
    BookieState,
    Boot,
    Clients,
    CookieField,
    Cookies,
    Copies,
    Counts,
    CrashClass,
    Device,
    DiskState,
    DiskStatus,
    EndedLedger,
    Jobs,
    Latency,
    Limbo,
    Losses,
    Metadata,
    Process,
    Quota,
    Quotas,
    Rates,
    Replay,
    Role,
    ScheduledJob,
    SpaceUsage,
    Stage,
    StatusWarning,
)
from bkbox.base.documents import ParseMode, from_document, json_kind
from bkbox.base.text import quoted
from bkbox.errors import EncodingError

__all__ = [
    "Autorecovery",
    "BookieState",
    "Boot",
    "Clients",
    "CookieField",
    "Cookies",
    "Copies",
    "Counts",
    "CrashClass",
    "Device",
    "DiskState",
    "DiskStatus",
    "EndedLedger",
    "Jobs",
    "Latency",
    "Limbo",
    "Losses",
    "Metadata",
    "Process",
    "Quota",
    "Quotas",
    "Rates",
    "Replay",
    "Role",
    "SCHEMA_VERSION",
    "ScheduledJob",
    "SpaceUsage",
    "Stage",
    "Status",
    "StatusWarning",
    "from_json",
    "to_json",
]

SCHEMA_VERSION = 2


@dataclass(frozen=True, slots=True)
class Status:
    """The whole document. ``kernel`` says which implementation of the inner loops runs; ``rates`` are those of all
    disks; ``taken_ms``: when it was made; ``http``: HOST:PORT of the admin API, "" where it has none but its socket;
    ``config_problem``: why the next start would refuse the configuration file as it is now.
    """

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
    limbo: Limbo = field(default_factory=Limbo)
    jobs: Jobs = field(default_factory=Jobs)
    warnings: tuple[StatusWarning, ...] = ()
    kernel: str = "interpreted"
    taken_ms: int = 0
    started_ms: int = 0
    http: str = ""
    rates: Rates = field(default_factory=Rates)
    clients: Clients | None = None
    cookies: Cookies = field(default_factory=Cookies)
    config_problem: str = ""
    metadata: Metadata = field(default_factory=Metadata)
    autorecovery: Autorecovery = field(default_factory=Autorecovery)
    scheduled_jobs: tuple[ScheduledJob, ...] = ()
    quotas: Quotas = field(default_factory=Quotas)
    copies: Copies = field(default_factory=Copies)
    losses: Losses = field(default_factory=Losses)
    schema: int = SCHEMA_VERSION


def to_json(status: Status) -> dict[str, Any]:
    """The document as what ``json.dumps`` takes."""
    return asdict(status)


def from_json(document: object) -> Status:
    """Read what ``json.loads`` gave. Raises EncodingError naming the place that is wrong, or the older version that
    wrote the document."""
    if not isinstance(document, Mapping):
        raise EncodingError(f"status: expected an object, found {json_kind(document)}")
    schema = document.get("schema")
    if type(schema) is not int or schema < 1:
        raise EncodingError(
            f"status has schema {quoted(schema)}, and this version reads {SCHEMA_VERSION}: no bookie wrote it"
        )
    if schema < SCHEMA_VERSION:
        raise EncodingError(
            f"this status document is of an older bkbox (version {quoted(document.get('version'))}, status schema "
            f"{schema}; this one reads {SCHEMA_VERSION}): show it with that version, or upgrade and restart the bookie"
        )
    if schema == SCHEMA_VERSION:
        return from_document(Status, document, "status")
    newer = (
        f"this bookie runs a newer bkbox (version {document.get('version')}, status schema {schema}; this one reads "
        f"{SCHEMA_VERSION})"
    )
    try:
        status = from_document(Status, document, "status", ParseMode.FORGIVING)
    except EncodingError as error:
        raise EncodingError(f"{newer}, and cannot be understood: {error}") from None
    text = f"{newer}: some of what it says is not shown; look at it with its own version"
    warnings = (StatusWarning(text), *status.warnings)
    return replace(status, warnings=warnings, schema=SCHEMA_VERSION)
