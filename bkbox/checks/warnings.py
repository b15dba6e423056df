"""The view in the status document: its warnings, each with the command that mends it; and the checks for which only the
supervisor has the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkbox.api.admin.status import Status, StatusWarning
from bkbox.base.commandline import bookie_command
from bkbox.base.host import descriptors
from bkbox.base.limits import DESCRIPTORS_TARGET, FRONTEND_DESCRIPTORS
from bkbox.base.text import counted
from bkbox.checks import host, registry
from bkbox.checks.bookie import of_status
from bkbox.checks.causes import fold
from bkbox.checks.registry import Finding
from bkbox.config.schema import address_of
from bkbox.config.values import is_loopback
from bkbox.jobs.job import JobState
from bkbox.supervisor.disks.sidelined import is_full, remedy

if TYPE_CHECKING:
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor


def warnings_of(bookie: Supervisor, status: Status) -> tuple[StatusWarning, ...]:
    """One warning per cause; its effects are in the other parts of the document. ``status``: all else of it."""
    disks = {str(disk.path): disk for disk in bookie.disks}
    found = [
        each
        for each in (*of_status(status), *_of_supervisor(bookie, status))
        if each.verdict != "ok" and registry.STATUS in each.views
    ]
    return tuple(
        _of_disk(each, disks[each.about])
        if each.check == registry.DISK.id
        else StatusWarning(each.why, each.command)
        for each in fold(found)
    )


def _of_disk(found: Finding, disk: Disk) -> StatusWarning:
    """A disk that is not in service, with what comes next."""
    replace = str(bookie_command("disk", "replace", disk.path, "NEW_FOLDER"))
    if disk.in_service:
        return StatusWarning(f"{found.why}; the next start treats it as a host crash", replace)
    again = "; it is tried again by itself" if disk.error is not None else ""
    replaceable = (disk.placement_unknown or disk.trouble) and not disk.waits
    command = replace if replaceable else found.command
    return StatusWarning(f"{found.why}{again}", remedy(disk) if is_full(disk) else command)


def _of_supervisor(bookie: Supervisor, status: Status) -> Iterator[Finding]:
    if bookie.readonly_requests.of_bookie:
        why = ", ".join(sorted(bookie.readonly_requests.of_bookie))
        yield registry.READ_ONLY.warn(f"the bookie takes no entries, as was asked for ({why})")
    for disk in bookie.disks:
        if disk.readonly_requests:
            yield registry.READ_ONLY.warn(
                f"disk {disk.path} takes no entries, as was asked for",
                command=str(bookie_command("disk", "read-only", disk.path, "--off")),
            )
    listen = bookie.config.http_listen
    if status.http and bookie.config.http_tls == "off" and not is_loopback(address_of(listen)[0]):
        yield registry.HTTP_TLS.warn(
            f"the admin API on {status.http} is not encrypted: tokens can be read on the network between"
        )
    target = min(bookie.config.connections_max + FRONTEND_DESCRIPTORS, DESCRIPTORS_TARGET)
    yield host.limits_of(descriptors.allowed_now(), "the bookie", target)
    yield from _of_jobs(bookie)


def _of_jobs(bookie: Supervisor) -> Iterator[Finding]:
    """Jobs that are blocked, and those that failed and were not started again since."""
    if bookie.jobs is None:
        return
    newest = {(job.kind, *sorted(job.arguments.items())): job for job in bookie.jobs.registry.all()}
    for job in newest.values():
        show = str(bookie_command("job", "show", job.id))
        name = f"job {job.id} ({job.kind.value})"
        if job.state is JobState.FAILED:
            yield registry.JOB.warn(f"{name} failed: {job.error}", command=show)
        elif job.blocked and not job.state.ended:
            text = f"{name}: {counted(job.blocked, 'ledger')} cannot go on without help"
            yield registry.JOB.warn(text, command=show)
    for stall in bookie.jobs.stalls():
        show = str(bookie_command("job", "show", stall.job))
        yield registry.JOB.warn(stall.text, command=None if stall.job is None else show)
