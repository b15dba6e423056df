"""Responses of the HTTP server of Apache's bookie, in the same shapes: pure. The routes: api/java/bookie.py.

Sources: HttpRouter.java and org.apache.bookkeeper.server.http.service of BookKeeper 4.17.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bkbox.api.admin.health import Probe
from bkbox.api.admin.status import Status
from bkbox.jobs.job import JobKind, JobState
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

_UNITS = ("", "KB", "MB", "GB", "TB")

PAGE_LEDGERS = 100


@dataclass(frozen=True, slots=True)
class BookieState:
    """``/api/v1/bookie/state``."""

    running: bool
    readOnly: bool  # noqa: N815 - Java's names
    shuttingDown: bool  # noqa: N815
    availableForHighPriorityWrites: bool  # noqa: N815


@dataclass(frozen=True, slots=True)
class BookieSpace:
    """``/api/v1/bookie/info``: bytes."""

    freeSpace: int  # noqa: N815
    totalSpace: int  # noqa: N815


@dataclass(frozen=True, slots=True)
class GcDetails:
    """One of ``/api/v1/bookie/gc_details``: of one disk; times in ms since 1970. bkbox has one kind of compaction,
    which is told as the major one."""

    forceCompacting: bool  # noqa: N815
    majorCompacting: bool  # noqa: N815
    minorCompacting: bool  # noqa: N815
    lastMajorCompactionTime: int  # noqa: N815
    lastMinorCompactionTime: int  # noqa: N815
    lastEntryLocationCompactionTime: int  # noqa: N815
    majorCompactionCounter: int  # noqa: N815
    minorCompactionCounter: int  # noqa: N815
    entryLocationCompactionCounter: int  # noqa: N815


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """``/api/v1/bookie/cluster_info``."""

    auditorElected: bool  # noqa: N815
    auditorId: str  # noqa: N815
    clusterUnderReplicated: bool  # noqa: N815
    ledgerReplicationEnabled: bool  # noqa: N815
    totalBookiesCount: int  # noqa: N815
    writableBookiesCount: int  # noqa: N815
    readonlyBookiesCount: int  # noqa: N815
    unavailableBookiesCount: int  # noqa: N815


@dataclass(frozen=True, slots=True)
class Sanity:
    """``/api/v1/bookie/sanity``."""

    passed: bool
    readOnly: bool  # noqa: N815


def state_of(status: Status) -> BookieState:
    serving = any(disk.state == "in service" for disk in status.disks)
    return BookieState(
        running=status.state == "running",
        readOnly=not status.writable,
        shuttingDown=status.state == "stopping",
        availableForHighPriorityWrites=status.state == "running" and serving,
    )


def space_of(status: Status) -> BookieSpace:
    return BookieSpace(
        sum(disk.free_bytes for disk in status.disks),
        sum(disk.total_bytes for disk in status.disks),
    )


def sanity_of(status: Status, probes: Iterable[Probe]) -> Sanity:
    """Java writes a ledger and reads it; here each disk is written to and read, which changes no metadata."""
    found = list(probes)
    return Sanity(bool(found) and not any(probe.problem for probe in found), not status.writable)


def gc_runs(status: Status) -> bool:
    """True if a garbage collection that was requested is in progress."""
    return any(job.kind is JobKind.GC and not job.automatic for job in status.jobs.active)


def gc_details(status: Status) -> list[GcDetails]:
    compaction = next(
        (
            each
            for each in status.scheduled_jobs
            if each.kind is JobKind.COMPACTION and each.job is not None
        ),
        None,
    )
    running = compaction is not None and compaction.state is JobState.RUNNING
    ended_ms = compaction.ended_ms if compaction is not None else None
    details = GcDetails(
        forceCompacting=gc_runs(status),
        majorCompacting=running,
        minorCompacting=False,
        lastMajorCompactionTime=ended_ms or 0,
        lastMinorCompactionTime=0,
        lastEntryLocationCompactionTime=0,
        majorCompactionCounter=int(ended_ms is not None),
        minorCompactionCounter=0,
        entryLocationCompactionCounter=0,
    )
    return [details for _disk in status.disks]


def readable(count: int) -> str:
    """A number of bytes as Java prints it for people: ``(1.234GB)``, powers of 1000, rounded down."""
    unit, amount = 0, count * 1000
    while amount >= 1_000_000 and unit < len(_UNITS) - 1:
        unit, amount = unit + 1, amount // 1000
    if not unit:
        return ""
    whole, thousandths = divmod(amount, 1000)
    shown = f"{whole}.{thousandths:03}".rstrip("0").rstrip(".")
    return f"({shown}{_UNITS[unit]})"


def bookie_info(spaces: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """``/api/v1/bookie/list_bookie_info``: free and total bytes of each bookie, in Java's text format."""
    found = {
        bookie: f": {{{_free_of_total(free, total)}}}," for bookie, (free, total) in spaces.items()
    }
    free = sum(free for free, _ in spaces.values())
    total = sum(total for _, total in spaces.values())
    return found | {"ClusterInfo: ": f"{{{_free_of_total(free, total)}}}"}


def _free_of_total(free: int, total: int) -> str:
    return f"Free: {free}{readable(free)}, Total: {total}{readable(total)}"


def ledger_of(metadata: LedgerMetadata) -> dict[str, Any]:
    """A ledger's metadata as JSON, without its password: with the password a client can write to the ledger."""
    closed = metadata.state is LedgerState.CLOSED
    return {
        "ledgerId": metadata.ledger_id,
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry,
        "ctime": metadata.ctime_ms,
        "digestType": None if metadata.digest_type is None else metadata.digest_type.name,
        "password": "",
        "customMetadata": {name: b64encode(value).decode() for name, value in metadata.custom},
        "closed": closed,
        "allEnsembles": {
            str(fragment.first_entry): [{"id": str(bookie)} for bookie in fragment.ensemble]
            for fragment in metadata.fragments
        },
        "ctoken": metadata.creator_token,
    }
