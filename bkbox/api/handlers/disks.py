"""Routes of the admin API about disks.

``GET``  disks                                   all of them
``GET``  disks/{disk}/drain                      the plan of a drain
``POST`` disks/{add|drain|undrain|replace|remove}   ``path`` of a new disk, ``disk``: path or uuid of a present one
``POST`` disks/read-only, read-only              ``wanted``: true to make this ``disk``, or the bookie, read-only

A change returns its notes for the operator, line by line; a drain returns its job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bkbox.api.admin.disks import DiskView, DrainPlan
from bkbox.api.admin.requests import NewDisk, OneDisk, ReadOnly, ReadOnlyDisk, ReplaceDisk
from bkbox.api.admin.routes import Request, Route
from bkbox.api.admin.socket_path import DISKS_URL, READ_ONLY_URL
from bkbox.api.status.builder import CLASSES
from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted
from bkbox.bookie.readonly import INTENTS, OPERATOR
from bkbox.errors import DiskChangeError
from bkbox.jobs.job import Job, JobAction, JobKind, to_json
from bkbox.protocol.boot import DiskClass
from bkbox.supervisor.disks.sidelined import is_full, remedy

if TYPE_CHECKING:
    from bkbox.supervisor.disk_changes import DiskChanges
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.jobs import Jobs
    from bkbox.supervisor.service.child_progress import Stall
    from bkbox.supervisor.supervisor import Supervisor


def routes(bookie: Supervisor) -> tuple[Route, ...]:
    def changes() -> tuple[DiskChanges, Jobs]:
        if bookie.changes is None or bookie.jobs is None:
            raise DiskChangeError("the bookie is still starting: try again when it is up")
        return bookie.changes, bookie.jobs

    async def list_all(_request: Request) -> object:
        await bookie.refresh()
        return [
            asdict(view_of(disk, bookie.progress.stall_of(disk.child), bookie.refusal_reason(disk)))
            for disk in bookie.disks
        ]

    async def plan(request: Request) -> object:
        found, _jobs = changes()
        await bookie.refresh()
        return asdict(found.drains.plan_drain(found.drains.find(request.place["disk"])))

    async def drain(request: Request) -> object:
        found, jobs = changes()
        disk = found.drains.find(request.body_as(OneDisk).disk)
        await bookie.refresh()
        await found.drains.set_draining(disk, wanted=True)
        return to_json(await jobs.start(JobKind.DRAIN, {"disk": disk.uuid}))

    async def undrain(request: Request) -> object:
        found, jobs = changes()
        disk = found.drains.find(request.body_as(OneDisk).disk)
        notes = []
        for job in jobs.registry.active():
            if job.kind is JobKind.DRAIN and job.arguments.get("disk") == disk.uuid:
                await jobs.control(job.id, JobAction.CANCEL)
                notes.append(f"job {job.id} is being cancelled")
        await found.drains.set_draining(disk, wanted=False)
        return notes

    async def add(request: Request) -> object:
        found, _jobs = changes()
        return await found.add(Path(request.body_as(NewDisk).path))

    async def replace(request: Request) -> object:
        found, _jobs = changes()
        body_as = request.body_as(ReplaceDisk)
        disk = found.drains.find(body_as.disk)
        return await found.replace(disk, Path(body_as.path), dry_run=body_as.dry_run)

    async def remove(request: Request) -> object:
        found, _jobs = changes()
        return await found.remove(found.drains.find(request.body_as(OneDisk).disk))

    lines = list[str]
    return (
        Route("GET", DISKS_URL, list_all, "All disks.", returns=list[DiskView]),
        Route(
            "GET",
            f"{DISKS_URL}/{{disk}}/drain",
            plan,
            "The plan of a drain of a disk, by path or uuid.",
            returns=DrainPlan,
        ),
        Route("POST", f"{DISKS_URL}/drain", drain, "Begin to empty a disk.", OneDisk, returns=Job),
        Route("POST", f"{DISKS_URL}/undrain", undrain, "End a drain.", OneDisk, returns=lines),
        Route("POST", f"{DISKS_URL}/add", add, "Take a new disk in.", NewDisk, returns=lines),
        Route(
            "POST",
            f"{DISKS_URL}/replace",
            replace,
            "Put an empty disk in the place of a failed one.",
            ReplaceDisk,
            returns=lines,
        ),
        Route(
            "POST",
            f"{DISKS_URL}/remove",
            remove,
            "Let go of a disk that holds nothing.",
            OneDisk,
            returns=lines,
        ),
    )


def read_only_routes(bookie: Supervisor) -> tuple[Route, ...]:
    """Ending read-only also clears the request of a decommission."""

    def changes() -> DiskChanges:
        if bookie.changes is None:
            raise DiskChangeError("the bookie is still starting: try again when it is up")
        return bookie.changes

    async def of_bookie(request: Request) -> object:
        changes()
        on = request.body_as(ReadOnly).wanted
        return await bookie.readonly_requests.set_for_bookie(
            {OPERATOR} if on else INTENTS, wanted=on
        )

    async def of_disk(request: Request) -> object:
        body_as = request.body_as(ReadOnlyDisk)
        await bookie.readonly_requests.set_for_disk(
            changes().drains.find(body_as.disk), wanted=body_as.wanted
        )
        return []

    return (
        Route(
            "POST",
            READ_ONLY_URL,
            of_bookie,
            "Have the bookie take no entries, or take them again.",
            ReadOnly,
            returns=list[str],
        ),
        Route(
            "POST",
            f"{DISKS_URL}/read-only",
            of_disk,
            "Have a disk take no entries, or take them again.",
            ReadOnlyDisk,
            returns=list[str],
        ),
    )


_MAY_HAVE_LOST = frozenset({DiskClass.HOST_CRASH, DiskClass.REPLACED})


def view_of(disk: Disk, stall: Stall | None, refusal: str) -> DiskView:
    """A disk as operators see it; ``stall``: of its worker; ``refusal``: the reason that requests are refused."""
    state, reason, what_to_do = _state(disk, disk.path, refusal)
    if stall is not None and state != "failed":
        state, reason = "out of service", f"its worker {stall}"
        what_to_do = "wait: a worker that does nothing is killed and started again by itself"
    child = disk.child if disk.child is not None and disk.child.running else None
    stats = disk.stats
    return DiskView(
        path=str(disk.path),
        disk=disk.uuid,
        state=state,
        reason=reason,
        what_to_do=what_to_do,
        total_bytes=stats.get("total_bytes"),
        free_bytes=stats.get("free_bytes"),
        ledgers=stats.get("ledgers"),
        limbo_ledgers=stats.get("limbo_ledgers"),
        crash_class=CLASSES[disk.crash_class],
        read_only=tuple(disk.read_only),
        worker_pid=None if child is None else child.pid,
        restarts=disk.restarts,
        last_start=disk.reason if disk.crash_class in _MAY_HAVE_LOST else "",
    )


def _state(disk: Disk, path: Path, refusal: str) -> tuple[str, str, str]:
    """State, reason, what to do."""
    failed = str(disk.stats.get("failed", "")) or disk.trouble
    replacement = bookie_command("disk", "replace", path, "NEW_FOLDER")
    if disk.placement_unknown:
        return (
            "in doubt",
            disk.placement_unknown,
            f"bring that disk back, or put another in its place: {replacement}",
        )
    if failed and disk.waits:
        return "out of service", failed, "see what that disk needs"
    if failed and is_full(disk):
        return "out of service", failed, f"make room on its file system: {remedy(disk)}"
    if failed:
        return "failed", failed, f"put an empty disk in its place: {replacement}"
    if refusal:
        return "out of service", refusal, ""
    if disk.draining and not disk.stats.get("ledgers"):
        return (
            "drained",
            "nothing is left on it",
            f"let go of it: {bookie_command('disk', 'remove', path)}",
        )
    if disk.draining:
        return "draining", "it gives away its ledgers and takes no new ones", ""
    return "in service", _of_limbo(disk.stats.get("limbo_ledgers", 0), disk.read_only), ""


def _of_limbo(limbo: int, read_only: Sequence[str]) -> str:
    notes = [f"{counted(limbo, 'ledger')} in limbo: repair is at work"] if limbo else []
    return "; ".join([*notes, *(f"takes no entries: {reason}" for reason in read_only)])
