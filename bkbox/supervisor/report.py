"""The status document, made from what the supervisor knows at this moment."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import bkbox
from bkbox.admin import status
from bkbox.jobs.job import JobState
from bkbox.kernel import kernel_in_use
from bkbox.protocol.boot import DiskClass

if TYPE_CHECKING:
    from bkbox.supervisor.disks import Disk
    from bkbox.supervisor.process import Child
    from bkbox.supervisor.supervisor import Supervisor

CLASSES: dict[DiskClass, status.CrashClass] = {
    DiskClass.CLEAN: "clean",
    DiskClass.PROCESS_CRASH: "process crash",
    DiskClass.HOST_CRASH: "host crash",
    DiskClass.LOST: "disk lost",
    DiskClass.REPLACED: "disk replaced",
    DiskClass.FOREIGN: "foreign disk",
}


def status_of(bookie: Supervisor) -> status.Status:
    """The whole document."""
    config = bookie.config
    disks = tuple(map(_disk, bookie.disks))
    reasons = sorted({reason for disk in bookie.disks for reason in disk.read_only})
    limbo = sum(disk.limbo_ledgers for disk in disks)
    if config.readonly_while_in_limbo and limbo:
        reasons.append("ledgers in limbo")
    if not bookie.takes_new_ledgers:
        reasons.append("not registered")
    return status.Status(
        version=bkbox.__version__,
        bookie_id=config.bookie_id,
        instance_id=bookie.instance_id,
        listen=bookie.listen,
        state=bookie.state,
        writable=bookie.state == "running" and bookie.writable and bookie.takes_new_ledgers,
        ack_after=config.ack_after,
        boot=status.Boot(bookie.phase, _boot_reasons(bookie)),
        read_only_reasons=tuple(reasons),
        disks=disks,
        processes=tuple(_processes(bookie)),
        limbo=_limbo(bookie, limbo),
        jobs=_jobs(bookie),
        warnings=tuple(_warnings(bookie, limbo)),
        kernel=kernel_in_use(),
    )


def _disk(disk: Disk) -> status.DiskStatus:
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
    return status.DiskStatus(
        path=str(disk.path),
        disk=disk.uuid,
        crash_class=CLASSES[disk.crash_class],
        reason=failed or disk.reason,
        state="failed" if failed else "in service" if disk.in_service else "out of service",
        ledgers=int(disk.stats.get("ledgers", 0)),
        limbo_ledgers=int(disk.stats.get("limbo_ledgers", 0)),
        free_bytes=int(disk.stats.get("free_bytes", 0)),
        total_bytes=int(disk.stats.get("total_bytes", 0)),
        read_only=tuple(disk.read_only),
        replay=replay,
        stages=tuple(
            status.Stage(stage, **values) for stage, values in disk.stats.get("stages", {}).items()
        ),
    )


def _processes(bookie: Supervisor) -> list[status.Process]:
    found = [status.Process("supervisor", bookie.config.bookie_id, os.getpid(), 0, True)]

    def add(role: status.Role, child: Child | None, restarts: int) -> None:
        if child is not None:
            found.append(status.Process(role, child.name, child.pid, restarts, child.running))

    add("frontend", bookie.frontend, bookie.frontend_restarts)
    for disk in bookie.disks:
        add("worker", disk.child, disk.restarts)
    add("repair", bookie.repair, bookie.repair_restarts)
    return found


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
            f"phase one: {done.fenced} ledgers fenced, {done.limbo} of them in limbo, of {done.ledgers_seen} seen"
        )
    return tuple(reasons)


def _limbo(bookie: Supervisor, ledgers: int) -> status.Limbo:
    """Ledgers in limbo are what the disks say; the progress is what the limbo job says."""
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
        blockers=job.blockers,
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
    )


def _job_warnings(bookie: Supervisor) -> list[status.StatusWarning]:
    """Jobs that are blocked, and those that failed and were not started again since."""
    if bookie.jobs is None:
        return []
    newest = {(job.kind, *sorted(job.arguments.items())): job for job in bookie.jobs.registry.all()}
    found: list[status.StatusWarning] = []
    for job in newest.values():
        show = f"bkbox job show {job.id} --config {bookie.config.path}"
        name = f"job {job.id} ({job.kind.value})"
        if job.state is JobState.FAILED:
            found.append(status.StatusWarning(f"{name} failed: {job.error}", show))
        elif job.blocked and not job.state.ended:
            text = f"{name}: {job.blocked} ledgers cannot go on by themselves"
            found.append(status.StatusWarning(text, show))
    return found


def _warnings(bookie: Supervisor, limbo: int) -> list[status.StatusWarning]:
    config = bookie.config
    found = [
        status.StatusWarning(
            f"disk {disk.path} is out of service: {disk.trouble or 'its worker is being started'}"
        )
        for disk in bookie.disks
        if not disk.in_service and bookie.state == "running"
    ]
    found += [
        status.StatusWarning(
            f"disk {disk.path} failed and takes no writes: {disk.trouble}; the next start treats it as a host crash",
        )
        for disk in bookie.disks
        if disk.in_service and disk.trouble
    ]
    if bookie.unregistered_s:
        seconds = f"{bookie.unregistered_s:.0f} s"
        effect = "it serves what it has" if bookie.takes_new_ledgers else "it takes no new ledgers"
        found.append(
            status.StatusWarning(
                f"the metadata store has not known of this bookie for {seconds}: {effect}, and registers again "
                "by itself",
                f"bkbox cluster info --metadata '{config.metadata}'",
            )
        )
    if kernel_in_use() == "interpreted":
        found.append(
            status.StatusWarning(
                "the kernel is interpreted: this bookie takes a small part of the load that it could; install a C "
                "compiler and install bkbox again, or unset BKBOX_KERNEL"
            )
        )
    if config.ack_after == "write":
        found.append(
            status.StatusWarning(
                "ack_after = write: a lost host loses acknowledged entries of this bookie until peers repair it; "
                "use it with an ack quorum of 2 or more on hosts that do not fail together"
            )
        )
    found += _job_warnings(bookie)
    if limbo:
        found.append(
            status.StatusWarning(
                f"{limbo} ledgers are in limbo: repair is at work",
                f"bkbox status --config {config.path}",
            )
        )
    return found
