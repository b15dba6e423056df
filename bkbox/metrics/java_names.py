"""Metrics under the names that dashboards of Apache's bookie chart, as far as bkbox counts the same thing.

Served beside bkbox's own where ``metrics_java_names`` is set. Java puts no ``_total`` behind counters, so they have no
type here. A disk is both ``ledgerDir`` and ``indexDir``. Summaries have no quantiles.

Source: the names queried by streamnative/apache-pulsar-grafana-dashboard and lhotari/pulsar-grafana-dashboards; the
units and labels of bookkeeper-stats-providers/prometheus-metrics-provider (milliseconds).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bkbox.api.admin.status import DiskStatus, Status
from bkbox.metrics.table import Sample

_DIRS = ("ledgerDir", "indexDir")


@dataclass(frozen=True, slots=True)
class JavaMetric:
    """``counter``: it only grows. ``name`` is what is scraped; where it has a ``*``, the disk's path stands for it."""

    name: str
    counter: bool
    labels: tuple[str, ...]
    doc: str
    samples: Callable[[Status], Iterable[Sample]]


def _one(
    name: str, doc: str, value: Callable[[Status], float], *, counter: bool = False
) -> JavaMetric:
    return JavaMetric(name, counter, (), doc, lambda status: [Sample((), float(value(status)))])


def _per_disk(
    name: str, doc: str, value: Callable[[DiskStatus], float | None], *, counter: bool = False
) -> JavaMetric:
    def samples(status: Status) -> Iterator[Sample]:
        for disk in status.disks:
            found = value(disk)
            if found is not None:
                yield Sample((disk.path, disk.path), float(found))

    return JavaMetric(name, counter, _DIRS, doc, samples)


def _succeeded(name: str, doc: str, value: Callable[[Status], float]) -> JavaMetric:
    return JavaMetric(
        name, True, ("success",), doc, lambda status: [Sample(("true",), float(value(status)))]
    )


def _server_status(status: Status) -> float:
    if status.state != "running" or not status.metadata.registered:
        return -1
    return float(status.writable)


def _adds(status: Status) -> float:
    return sum(disk.counts.adds for disk in status.disks)


def _ms(status: Status, operation: str) -> float:
    found = (each for disk in status.disks for each in disk.operations)
    return sum(each.total_us for each in found if each.operation == operation) / 1000


def _reads(status: Status) -> float:
    return sum(disk.counts.reads for disk in status.disks)


def _bytes(status: Status) -> float:
    return sum(disk.counts.bytes for disk in status.disks)


def _stage_count(status: Status, name: str) -> float:
    return sum(stage.count for disk in status.disks for stage in disk.stages if stage.stage == name)


def _usage(disk: DiskStatus) -> float:
    return 100 * (1 - disk.free_bytes / disk.total_bytes) if disk.total_bytes else 0.0


JAVA_METRICS: tuple[JavaMetric, ...] = (
    _one("bookie_SERVER_STATUS", "1: writable, 0: read-only, -1: not registered.", _server_status),
    _succeeded("bookkeeper_server_ADD_ENTRY_count", "Entries taken.", _adds),
    _succeeded(
        "bookkeeper_server_ADD_ENTRY_sum",
        "Time that adds took until they were answered, ms.",
        lambda status: _ms(status, "add"),
    ),
    _succeeded("bookkeeper_server_ADD_ENTRY_REQUEST_count", "Entries taken.", _adds),
    _succeeded("bookkeeper_server_READ_ENTRY_count", "Entries asked for.", _reads),
    _succeeded(
        "bookkeeper_server_READ_ENTRY_sum",
        "Time that reads took until they were answered, ms.",
        lambda status: _ms(status, "read"),
    ),
    _succeeded("bookkeeper_server_READ_ENTRY_REQUEST_count", "Entries asked for.", _reads),
    _one("bookie_WRITE_BYTES", "Bytes of records written.", _bytes, counter=True),
    JavaMetric(
        "bookie_journal_JOURNAL_SYNC_count",
        True,
        ("journalIndex", "success"),
        "Adds that waited for a sync: of the journal, or of the entry log that is one.",
        lambda status: [Sample(("0", "true"), _stage_count(status, "fsync"))],
    ),
    _one(
        "bookie_ledger_writable_dirs",
        "Disks that take entries.",
        lambda s: sum(disk.state == "in service" and not disk.read_only for disk in s.disks),
    ),
    _one("bookie_ledger_num_dirs", "Disks.", lambda s: len(s.disks)),
    JavaMetric(
        "bookie_ledger_dir_*_usage",
        False,
        (),
        "Share of the disk that is in use, percent.",
        lambda status: [Sample((disk.path,), _usage(disk)) for disk in status.disks],
    ),
    _per_disk("bookie_ledgers_count", "Ledgers on the disk.", lambda d: d.ledgers),
    _per_disk("bookie_ACTIVE_LEDGER_TOTAL", "Ledgers on the disk.", lambda d: d.ledgers),
    _per_disk(
        "bookie_ACTIVE_ENTRY_LOG_TOTAL",
        "Sealed segments.",
        lambda d: None if d.space is None else d.space.segments,
    ),
    _per_disk(
        "bookie_DELETED_LEDGER_TOTAL",
        "Deleted ledgers of which something is remembered.",
        lambda d: None if d.space is None else d.space.trash_ledgers + d.space.emptied_ledgers,
    ),
    _one(
        "bookkeeper_server_ADD_ENTRY_BLOCKED",
        "Always 0: nothing blocks here.",
        lambda _s: 0,
    ),
)


def dir_name(path: str) -> str:
    """A disk's path in the name of a metric."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", path)
