"""The metrics of a bookie: names, kinds, labels, meanings, and where in the status document each comes from.

docs/metrics.md is made from this table. Conventions are Prometheus's: base units (seconds, bytes), ``_total`` behind
counters; a counter that begins anew with its process does so in the metric, too. What is not known is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bkbox.api.admin.status import DiskStatus, Process, ScheduledJob, Status


class Sample(NamedTuple):
    """Values of the labels, in their order ("": it has none of that name), and the value. ``suffix``: of the name, for
    the parts of a summary."""

    labels: tuple[str, ...]
    value: float
    suffix: str = ""


Kind = Literal["counter", "gauge", "summary"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``name`` without ``_total``. ``samples`` picks them from a status document."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    samples: Callable[[Status], Iterable[Sample]]

    @property
    def shown_name(self) -> str:
        """The name as it is scraped."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _one(
    name: str, doc: str, value: Callable[[Status], float | None], kind: Kind = "gauge"
) -> Metric:
    def samples(status: Status) -> Iterator[Sample]:
        found = value(status)
        if found is not None:
            yield Sample((), float(found))

    return _metric(name, kind, (), doc, samples)


def _per_disk(
    name: str, doc: str, value: Callable[[DiskStatus], float | None], kind: Kind = "gauge"
) -> Metric:
    def samples(status: Status) -> Iterator[Sample]:
        for disk in status.disks:
            found = value(disk)
            if found is not None:
                yield Sample((disk.path,), float(found))

    return _metric(name, kind, ("disk",), doc, samples)


def _per_process(
    name: str, doc: str, value: Callable[[Process], float | None], kind: Kind = "gauge"
) -> Metric:
    def samples(status: Status) -> Iterator[Sample]:
        for process in status.processes:
            found = value(process)
            if found is not None:
                yield Sample((process.role, process.name), float(found))

    return _metric(name, kind, ("role", "name"), doc, samples)


def _per_scheduled_job(
    name: str, doc: str, value: Callable[[ScheduledJob], float | None]
) -> Metric:
    def samples(status: Status) -> Iterator[Sample]:
        for each in status.scheduled_jobs:
            found = value(each)
            if found is not None:
                yield Sample((each.kind.value,), float(found))

    return _metric(name, "gauge", ("kind",), doc, samples)


def _states(
    name: str, label: str, doc: str, known: tuple[str, ...], value: Callable[[Status], str]
) -> Metric:
    """1 for the state that is, 0 for the others."""

    def samples(status: Status) -> Iterator[Sample]:
        for each in known:
            yield Sample((each,), float(value(status) == each))

    return _metric(name, "gauge", (label,), doc, samples)


def _metric(
    name: str,
    kind: Kind,
    labels: tuple[str, ...],
    doc: str,
    samples: Callable[[Status], Iterable[Sample]],
) -> Metric:
    return Metric(f"bkbox_{name}", kind, labels, doc, samples)


def _info(status: Status) -> Iterator[Sample]:
    yield Sample(
        (status.version, status.kernel, status.bookie_id, status.instance_id, status.ack_after), 1.0
    )


def _disk_states(status: Status) -> Iterator[Sample]:
    for disk in status.disks:
        for state in ("in service", "out of service", "failed"):
            yield Sample((disk.path, state), float(disk.state == state))


def _read_only(status: Status) -> Iterator[Sample]:
    for reason in status.read_only_reasons:
        yield Sample((reason,), 1.0)


def _cookies(status: Status) -> float | None:
    return None if status.cookies.ok is None else float(status.cookies.ok)


def _stages(status: Status) -> Iterator[Sample]:
    for disk in status.disks:
        for stage in disk.stages:
            labels = (disk.path, stage.stage)
            if stage.recent_count:
                yield Sample((*labels, "0.5"), stage.recent_p50_us / 1e6)
                yield Sample((*labels, "0.99"), stage.recent_p99_us / 1e6)
            yield Sample((*labels, ""), float(stage.count), "_count")
            yield Sample((*labels, ""), stage.total_us / 1e6, "_sum")


def _operations(status: Status) -> Iterator[Sample]:
    for disk in status.disks:
        for each in disk.operations:
            labels = (disk.path, each.operation)
            if each.recent_count:
                yield Sample((*labels, "0.5"), each.recent_p50_us / 1e6)
                yield Sample((*labels, "0.99"), each.recent_p99_us / 1e6)
            yield Sample((*labels, ""), float(each.count), "_count")
            yield Sample((*labels, ""), each.total_us / 1e6, "_sum")


def _active_jobs(status: Status) -> Iterator[Sample]:
    for job in status.jobs.active:
        yield Sample((job.kind.value, job.state.value, str(job.id)), 1.0)


def _job_percent(status: Status) -> Iterator[Sample]:
    for job in status.jobs.active:
        if job.percent is not None:
            yield Sample((job.kind.value, str(job.id)), job.percent / 100)


def _job_blocked(status: Status) -> Iterator[Sample]:
    for job in status.jobs.active:
        yield Sample((job.kind.value, str(job.id)), job.blocked)


def _ended_jobs(status: Status) -> Iterator[Sample]:
    jobs = status.jobs
    for state, count in (
        ("done", jobs.done),
        ("failed", jobs.failed),
        ("cancelled", jobs.cancelled),
    ):
        yield Sample((state,), float(count))


def _quota_use(status: Status) -> Iterator[Sample]:
    for use in status.quotas.owners:
        yield Sample((use.owner,), float(use.bytes))


def _quota_bounds(status: Status) -> Iterator[Sample]:
    for use in status.quotas.owners:
        yield Sample((use.owner,), float(use.bytes_max))


METRICS: tuple[Metric, ...] = (
    _metric(
        "info",
        "gauge",
        ("version", "kernel", "bookie_id", "instance_id", "ack_after"),
        "1; what runs is in the labels.",
        _info,
    ),
    _states(
        "state",
        "state",
        "1 for the state that the bookie is in.",
        ("starting", "running", "stopping"),
        lambda status: status.state,
    ),
    _one("start_time_seconds", "When the bookie began, since 1970.", lambda s: s.started_ms / 1000),
    _one("writable", "Whether it takes new entries.", lambda s: s.writable),
    _metric(
        "read_only_reason",
        "gauge",
        ("reason",),
        "1 for each reason for which it, or one of its disks, takes none.",
        _read_only,
    ),
    _one("boot_eta_seconds", "How long the start will still take.", lambda s: s.boot.eta_s),
    _one("warnings", "Warnings in the status document.", lambda s: len(s.warnings)),
    # ---- metadata and cluster
    _one("registered", "Whether the metadata store knows of it.", lambda s: s.metadata.registered),
    _one(
        "unregistered_seconds",
        "For how long it has not.",
        lambda s: s.metadata.unregistered_s,
    ),
    _one(
        "cookies_match",
        "Whether all cookies agree with the configuration file; else the next start would refuse.",
        _cookies,
    ),
    _one(
        "autorecovery_enabled",
        "Whether autorecovery is on in the cluster.",
        lambda s: s.autorecovery.enabled,
    ),
    _one(
        "autorecovery_under_replicated_ledgers",
        "Ledgers of the cluster that lack replicas, counted up to 10,000.",
        lambda s: s.autorecovery.under_replicated,
    ),
    _one(
        "ended_with_loss_ledgers",
        "Ledgers of the cluster that were ended with loss accepted, as long as they are not deleted.",
        lambda s: s.losses.ledgers,
    ),
    _one(
        "ended_with_loss_entries",
        "Entries of those ledgers that their records count as lost; of what a record could not know none are counted.",
        lambda s: s.losses.entries,
    ),
    # ---- clients
    _one(
        "client_connections",
        "Connections of clients.",
        lambda s: None if s.clients is None else s.clients.connections,
    ),
    _one(
        "client_buffered_bytes",
        "Bytes of requests and responses buffered for clients.",
        lambda s: None if s.clients is None else s.clients.buffered_bytes,
    ),
    _one(
        "client_refused_requests",
        "Requests that were refused because too much was buffered.",
        lambda s: None if s.clients is None else s.clients.refused,
        "counter",
    ),
    # ---- quotas
    _metric(
        "quota_used_bytes",
        "gauge",
        ("owner",),
        "What the ledgers of an owner with a quota take on the disks; of the hundred fullest.",
        _quota_use,
    ),
    _metric(
        "quota_bytes",
        "gauge",
        ("owner",),
        "What they may take; from there on adds are refused.",
        _quota_bounds,
    ),
    # ---- disks
    _metric(
        "disk_state",
        "gauge",
        ("disk", "state"),
        "1 for the state that the disk is in.",
        _disk_states,
    ),
    _per_disk(
        "disk_free_bytes",
        "Room on the file system, where the disk's worker tells it.",
        lambda d: d.free_bytes if d.total_bytes else None,
    ),
    _per_disk("disk_size_bytes", "Size of the file system.", lambda d: d.total_bytes or None),
    _per_disk("disk_read_only", "Whether the disk takes no entries.", lambda d: bool(d.read_only)),
    _per_disk("disk_draining", "Whether it gives away its ledgers.", lambda d: d.draining),
    _per_disk("ledgers", "Ledgers on the disk.", lambda d: d.ledgers),
    _per_disk("limbo_ledgers", "Of these, the ones in limbo.", lambda d: d.limbo_ledgers),
    _per_disk("adds", "Entries taken.", lambda d: d.counts.adds, "counter"),
    _per_disk("add_bytes", "Bytes of their records.", lambda d: d.counts.bytes, "counter"),
    _per_disk("reads", "Entries asked for.", lambda d: d.counts.reads, "counter"),
    _per_disk(
        "unknown_reads",
        "Of these, the ones of which it could not be told whether they exist.",
        lambda d: d.counts.unknown,
        "counter",
    ),
    _metric(
        "operation_seconds",
        "summary",
        ("disk", "operation", "quantile"),
        "Time of an add or a read of an entry, from the batch of its request to its response; quantiles are those of "
        "the last minute or so.",
        _operations,
    ),
    _metric(
        "stage_seconds",
        "summary",
        ("disk", "stage", "quantile"),
        "Time of adds in a stage; quantiles are those of the last minute or so.",
        _stages,
    ),
    _per_disk(
        "device_read_bytes",
        "What the kernel read from the device that the disk lies on.",
        lambda d: None if d.device is None else d.device.read_bytes,
        "counter",
    ),
    _per_disk(
        "device_written_bytes",
        "What it wrote to it.",
        lambda d: None if d.device is None else d.device.written_bytes,
        "counter",
    ),
    _per_disk(
        "device_busy_seconds",
        "Time with anything under way on it.",
        lambda d: None if d.device is None or d.device.busy_ms is None else d.device.busy_ms / 1000,
        "counter",
    ),
    _per_disk(
        "device_errors",
        "Errors of the device, as SCSI counts them, where that can be read.",
        lambda d: None if d.device is None else d.device.device_errors,
        "counter",
    ),
    _per_disk(
        "filesystem_errors",
        "Errors of the file system, as ext4 counts them, where that can be read.",
        lambda d: None if d.device is None else d.device.filesystem_errors,
        "counter",
    ),
    # ---- room
    _per_disk(
        "segments",
        "Sealed segments of the entry log.",
        lambda d: None if d.space is None else d.space.segments,
    ),
    _per_disk(
        "segment_bytes",
        "Bytes in them.",
        lambda d: None if d.space is None else d.space.segment_bytes,
    ),
    _per_disk(
        "reclaimable_bytes",
        "Of these, garbage, by the last look through the index.",
        lambda d: None if d.space is None else d.space.reclaimable_bytes,
    ),
    _per_disk(
        "trash_ledgers",
        "Deleted ledgers whose entries are kept for a while.",
        lambda d: None if d.space is None else d.space.trash_ledgers,
    ),
    _per_disk(
        "quarantined_segments",
        "Segments with parts that cannot be read.",
        lambda d: None if d.space is None else d.space.quarantined,
    ),
    _per_disk(
        "reserve_bytes",
        "Room that is kept back for a full disk.",
        lambda d: None if d.space is None else d.space.reserve_bytes,
    ),
    _per_disk(
        "scrub_completed_timestamp_seconds",
        "When the last scrub of the disk was complete, since 1970; 0: never.",
        lambda d: None if d.space is None else d.space.scrub_completed_ms / 1000,
    ),
    # ---- repair and jobs
    _one(
        "copies_short",
        "Entries that the metadata credits the bookie with and that it lacks, as far as the last check compared.",
        lambda s: s.copies.short,
    ),
    _one("copies_mended", "Entries that this check has copied here.", lambda s: s.copies.mended),
    _one(
        "copies_checked_timestamp_seconds",
        "When a check last found that no copy is short, since 1970; 0: never.",
        lambda s: s.copies.checked_ms / 1000,
    ),
    _one("repair_ledgers_done", "Ledgers that the limbo job has repaired.", lambda s: s.limbo.done),
    _one(
        "repair_entries_copied",
        "Entries that it has copied from peers.",
        lambda s: s.limbo.entries_copied,
    ),
    _one("repair_bytes_copied", "Their bytes.", lambda s: s.limbo.bytes_copied),
    _one("repair_eta_seconds", "How long it will still take.", lambda s: s.limbo.eta_s),
    _one(
        "repair_blocked_ledgers",
        "Ledgers in limbo that cannot be repaired without help.",
        lambda s: s.limbo.stuck,
    ),
    _metric(
        "job_active",
        "gauge",
        ("kind", "state", "job"),
        "1 for each job that has not ended.",
        _active_jobs,
    ),
    _metric(
        "job_progress_ratio",
        "gauge",
        ("kind", "job"),
        "How much of it is done, where that is known.",
        _job_percent,
    ),
    _metric(
        "job_blocked_ledgers",
        "gauge",
        ("kind", "job"),
        "Ledgers with which it cannot go on by itself: quarantined, of replication.",
        _job_blocked,
    ),
    _metric(
        "jobs_ended",
        "gauge",
        ("state",),
        "Jobs that are remembered, by how they ended.",
        _ended_jobs,
    ),
    _per_scheduled_job(
        "scheduled_job_interval_seconds",
        "Seconds from the end of one run to the start of the next; absent: never on a schedule.",
        lambda each: each.every_s,
    ),
    _per_scheduled_job(
        "scheduled_job_ended_timestamp_seconds",
        "When the last run ended, since 1970.",
        lambda each: None if each.ended_ms is None else each.ended_ms / 1000,
    ),
    # ---- processes
    _per_process("process_running", "Whether the process runs.", lambda p: p.running),
    _per_process(
        "process_stalled_seconds",
        "For how long the process has made no progress; 0 while it makes some.",
        lambda p: p.stalled_s,
    ),
    _per_process(
        "process_restarts", "How often it was restarted.", lambda p: p.restarts, "counter"
    ),
    _per_process("process_resident_memory_bytes", "Resident memory.", lambda p: p.memory_bytes),
    _per_process("process_cpu_seconds", "Processor time.", lambda p: p.cpu_s, "counter"),
    _per_process("process_threads", "Threads.", lambda p: p.threads),
    _per_process("process_open_fds", "Open descriptors.", lambda p: p.open_files),
)
