"""Builds the status document from the supervisor's present state."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import bkbox
from bkbox.api.admin import status
from bkbox.base.text import counted
from bkbox.checks.bookie import DISK_UNAVAILABLE, UNREGISTERED
from bkbox.checks.warnings import warnings_of
from bkbox.jobs.job import JobKind, JobState
from bkbox.native import kernel_in_use
from bkbox.protocol.boot import DiskClass
from bkbox.supervisor.disks.sidelined import is_full
from bkbox.supervisor.job_schedule import PERIODIC

if TYPE_CHECKING:
    from bkbox.api.status.collector import CollectedStatus
    from bkbox.supervisor.children.process import Child
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor

CLASSES: dict[DiskClass, status.CrashClass] = {
    DiskClass.CLEAN: "clean",
    DiskClass.PROCESS_CRASH: "process crash",
    DiskClass.HOST_CRASH: "host crash",
    DiskClass.LOST: "disk lost",
    DiskClass.REPLACED: "disk replaced",
    DiskClass.FOREIGN: "foreign disk",
}


def status_of(bookie: Supervisor, found: CollectedStatus) -> status.Status:
    """The whole document. ``found``: what the collector has gathered (collector.py)."""
    config = bookie.config
    processes = tuple(_processes(bookie, found))
    workers = {process.disk: process for process in processes if process.disk}
    disks = tuple(_disk(bookie, disk, workers.get(disk.uuid), found) for disk in bookie.disks)
    limbo = sum(disk.limbo_ledgers for disk in disks)
    document = status.Status(
        version=bkbox.__version__,
        bookie_id=config.bookie_id,
        instance_id=bookie.instance_id,
        listen=bookie.listen,
        state=bookie.state,
        writable=bookie.state == "running" and bookie.writable and bookie.accepts_new_ledgers,
        ack_after=config.ack_after,
        boot=status.Boot(bookie.phase, _boot_reasons(bookie), found.eta_s),
        read_only_reasons=_read_only_reasons(bookie, limbo),
        disks=disks,
        processes=processes,
        limbo=_limbo(bookie, limbo),
        jobs=_jobs(bookie),
        kernel=kernel_in_use(),
        taken_ms=time.time_ns() // 1_000_000,
        started_ms=processes[0].started_ms or 0,
        http=bookie.http_listen,
        rates=_sum_of_rates(disks),
        clients=found.clients,
        cookies=found.cookies,
        config_problem=found.config_problem,
        metadata=_metadata(bookie),
        autorecovery=replace(found.autorecovery, running_here=config.autorecovery_enabled),
        scheduled_jobs=tuple(_scheduled_jobs(bookie)),
        quotas=_quotas(bookie),
        copies=_copies(bookie, found),
        losses=found.losses,
    )
    return replace(document, warnings=warnings_of(bookie, document))


def _read_only_reasons(bookie: Supervisor, limbo: int) -> tuple[str, ...]:
    reasons = sorted({reason for disk in bookie.disks for reason in disk.read_only})
    if bookie.config.readonly_while_in_limbo and limbo:
        reasons.append("ledgers in limbo")
    if bookie.state == "running" and not all(disk.listed for disk in bookie.disks):
        reasons.append(DISK_UNAVAILABLE)
    if not bookie.accepts_new_ledgers:
        reasons.append(UNREGISTERED)
    return tuple(reasons)


def _disk(
    bookie: Supervisor, disk: Disk, worker: status.Process | None, found: CollectedStatus
) -> status.DiskStatus:
    opened = disk.opened
    replay = (
        status.Replay(
            records=opened.records,
            entries=opened.entries,
            bytes=opened.replayed_bytes,
            cut_bytes=opened.cut_bytes,
            damaged=len(opened.damaged),
        )
        if opened is not None
        else status.Replay()
    )
    failed = str(disk.stats.get("failed", "")) or disk.trouble
    stall = bookie.progress.stall_of(disk.child)
    stalled = "" if stall is None else f"its worker {stall}"
    unavailable = ""
    refusal = bookie.refusal_reason(disk)
    if bookie.state == "running" and refusal:
        unavailable = disk.placement_unknown or refusal
    state = _state(disk, failed=failed, serves=not (refusal or stalled))
    rates = disk.meter.rates(time.monotonic()) if state == "in service" else {}
    return status.DiskStatus(
        path=str(disk.path),
        disk=disk.uuid,
        crash_class=CLASSES[disk.crash_class],
        reason=failed or stalled or unavailable or disk.reason,
        state=state,
        ledgers=int(disk.stats.get("ledgers", 0)),
        limbo_ledgers=int(disk.stats.get("limbo_ledgers", 0)),
        free_bytes=int(disk.stats.get("free_bytes", 0)) if disk.usable else 0,
        total_bytes=int(disk.stats.get("total_bytes", 0)) if disk.usable else 0,
        read_only=tuple(disk.read_only),
        replay=replay,
        stages=tuple(
            status.Stage(stage, **values) for stage, values in disk.stats.get("stages", {}).items()
        ),
        operations=tuple(
            status.Latency(name, **values)
            for name, values in disk.stats.get("operations", {}).items()
        ),
        draining=disk.draining,
        counts=status.Counts(**disk.stats.get("counts", {})),
        rates=status.Rates(**rates),
        device=found.devices.get(disk.uuid),
        space=found.space.get(disk.uuid),
        worker=worker,
    )


def _state(disk: Disk, *, failed: str, serves: bool) -> status.DiskState:
    if failed and not (disk.waits or is_full(disk)):
        return "failed"
    return "in service" if serves else "out of service"


def _sum_of_rates(disks: tuple[status.DiskStatus, ...]) -> status.Rates:
    return status.Rates(
        adds=sum(disk.rates.adds for disk in disks),
        bytes=sum(disk.rates.bytes for disk in disks),
        reads=sum(disk.rates.reads for disk in disks),
        unknown=sum(disk.rates.unknown for disk in disks),
    )


def _processes(bookie: Supervisor, gathered: CollectedStatus) -> list[status.Process]:
    name, kernel = bookie.config.bookie_id, kernel_in_use()
    found = [status.Process("supervisor", name, os.getpid(), 0, True, kernel=kernel)]

    def add(role: status.Role, child: Child | None, restarts: int, disk: str = "") -> None:
        if child is None:
            return
        process = status.Process(
            role, child.name, child.pid, restarts, child.running, disk, kernel=child.kernel
        )
        stall = bookie.progress.stall_of(child)
        if stall is not None:
            process = replace(process, stalled_s=round(stall.seconds, 1), stall=stall.doing)
        found.append(process)

    for number, child in bookie.frontends.by_number.items():
        add("frontend", child, bookie.frontends.restarts[number])
    for disk in bookie.disks:
        add("worker", disk.child, disk.restarts, disk.uuid)
    add("repair", bookie.repair, bookie.repair_restarts)
    return [gathered.measured(process) for process in found]


def _boot_reasons(bookie: Supervisor) -> tuple[str, ...]:
    reasons = [
        f"{disk.path}: {disk.crash_class.value}: {disk.reason}"
        for disk in bookie.disks
        if disk.opened
    ]
    reasons += [
        f"{disk.path}: its index was made anew from the entry log: {disk.opened.rebuilt}"
        for disk in bookie.disks
        if disk.opened is not None and disk.opened.rebuilt
    ]
    done = bookie.phase_one
    if done.ledgers_seen:
        reasons.append(
            f"phase one: {counted(done.fenced, 'ledger')} fenced, {done.limbo} in limbo, of "
            f"{done.ledgers_seen} seen"
        )
    return tuple(reasons)


def _limbo(bookie: Supervisor, ledgers: int) -> status.Limbo:
    """Ledgers in limbo are reported by the disks, the progress by the limbo job, whose report may be older: no more are
    stuck than are in limbo."""
    job = bookie.jobs.limbo() if bookie.jobs is not None else None
    if job is None:
        return status.Limbo(ledgers=ledgers)
    return status.Limbo(
        ledgers=ledgers,
        done=job.done.ledgers,
        entries_checked=job.counts.get("entries_checked", 0),
        entries_missing=job.counts.get("entries_missing", 0),
        entries_copied=job.done.entries,
        bytes_copied=job.done.bytes,
        eta_s=job.eta_s,
        blockers=job.blockers[:ledgers],
        job=job.id,
        blocked=min(job.blocked, ledgers),
    )


def _copies(bookie: Supervisor, found: CollectedStatus) -> status.Copies:
    """Counted by the check job; a disk remembers when its copies were last found complete."""
    checked_ms = min((space.copies_checked_ms for space in found.space.values()), default=0)
    jobs = bookie.jobs
    job = None if jobs is None else jobs.registry.last(JobKind.CHECK, {})
    if jobs is None or job is None:
        return status.Copies(checking=jobs is not None and jobs.must_check, checked_ms=checked_ms)
    return status.Copies(
        short=job.counts.get("copies_short", 0),
        mended=job.counts.get("copies_mended", 0),
        checking=jobs.must_check or not (job.state.ended or job.standing_by),
        checked_ms=checked_ms,
        job=job.id,
    )


def _jobs(bookie: Supervisor) -> status.Jobs:
    if bookie.jobs is None:
        return status.Jobs()
    ends = Counter(job.state for job in bookie.jobs.registry.all() if job.state.ended)
    return status.Jobs(
        active=tuple(bookie.jobs.registry.active()),
        done=ends[JobState.DONE],
        failed=ends[JobState.FAILED],
        cancelled=ends[JobState.CANCELLED],
        bytes_per_second=bookie.jobs.rate,
    )


def _scheduled_jobs(bookie: Supervisor) -> list[status.ScheduledJob]:
    newest = {} if bookie.jobs is None else {job.kind: job for job in bookie.jobs.registry.all()}
    found = []
    for periodic in PERIODIC:
        every_s, job = periodic.every_s(bookie.config), newest.get(periodic.kind)
        if job is None:
            found.append(status.ScheduledJob(periodic.kind, every_s))
        else:
            found.append(
                status.ScheduledJob(periodic.kind, every_s, job.id, job.state, job.ended_ms)
            )
    return found


def _quotas(bookie: Supervisor) -> status.Quotas:
    use = bookie.quotas.use
    owners = tuple(status.Quota(*each) for each in use.owners)
    return status.Quotas(owners, use.unlisted_owners, use.checked_ms, use.problem)


def _metadata(bookie: Supervisor) -> status.Metadata:
    return status.Metadata(
        uri=bookie.config.metadata,
        registered=bookie.is_registered,
        unregistered_s=bookie.unregistered_s,
    )
