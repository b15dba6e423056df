"""The checks of a running bookie, over its status document. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bkbox.api.admin.stalls import STOPPED, WAITS_FOR_DISK
from bkbox.api.admin.status import DiskStatus, Process, Status
from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted, moment, quoted
from bkbox.bookie.readonly import DISK_FULL, DISK_USAGE, RESERVE_SPENT
from bkbox.checks import registry
from bkbox.checks.host import kernel
from bkbox.checks.registry import Finding

DISK_UNAVAILABLE = "a disk is out of service"
UNREGISTERED = "not registered"
"""Reasons in the status document for which a bookie takes no new ledgers."""

NO_DISK_WRITABLE = "no disk does"
"""Why a bookie takes no writes for which the status document has no reason."""

_SPACE_REASONS = frozenset({DISK_FULL, DISK_USAGE, RESERVE_SPENT})
_OWNERS_WARNED_OF = 10


def of_status(status: Status) -> Iterator[Finding]:
    """All of them, the most urgent first."""
    running = status.state == "running"
    if running:
        yield registry.BOOKIE.ok(f"it runs, on {status.listen}")
    else:
        yield registry.BOOKIE.fail(f"the bookie is {status.state}: {status.boot.phase}", command="")
    yield from _processes(status)
    for disk in status.disks:
        yield from _disk(disk, status)
    if not any(disk.state == "in service" for disk in status.disks):
        yield registry.NO_DISK.fail("no disk is in service")
    if DISK_UNAVAILABLE in status.read_only_reasons:
        yield registry.UNLISTED.warn(
            "the bookie takes no new ledgers while it does not know what is on one of its disks"
        )
    yield from _metadata(status)
    yield from _configuration(status)
    yield from _limbo(status)
    yield from _copies(status)
    yield from _quotas(status)
    if running and not status.writable:
        for reason in status.read_only_reasons or (
            NO_DISK_WRITABLE,
        ):  # each has a cause of its own
            yield registry.WRITABLE.warn(f"it takes no writes: {reason}")
    elif running:
        yield registry.WRITABLE.ok("it takes writes")


def stalls(status: Status) -> list[str]:
    """Each process that makes no progress, in words."""
    return [_stall(process, status) for process in status.processes if process.stalled_s]


def _stall(process: Process, status: Status) -> str:
    return (
        f"{_name(process, status)} (pid {process.pid}) has made no progress for {process.stalled_s:.0f} s: "
        f"{process.stall}"
    )


def _name(process: Process, status: Status) -> str:
    if process.role == "worker":
        path = next((disk.path for disk in status.disks if disk.disk == process.disk), process.name)
        return f"the worker of disk {path}"
    if process.role == "repair":
        return "the repair worker"
    return process.name if len(_frontends(status)) > 1 else "the front-end"


def _frontends(status: Status) -> list[Process]:
    return [each for each in status.processes if each.role == "frontend"]


def _is_covered(process: Process, status: Status) -> bool:
    """True for one of several front-ends while another one serves."""
    return process.role == "frontend" and any(
        each.running and not each.stalled_s and each is not process for each in _frontends(status)
    )


def _processes(status: Status) -> Iterator[Finding]:
    if not stalls(status):
        yield registry.PROGRESS.ok("every process makes progress")
    roles = {"frontend": registry.FRONTEND, "repair": registry.REPAIR}
    for process in status.processes:
        covered = _is_covered(process, status)
        if process.stalled_s and process.stall == WAITS_FOR_DISK:
            yield registry.PROGRESS.fail(
                f"{_stall(process, status)}; it goes on when the disk does. Look at the device and at the kernel's log",
                command="dmesg --ctime | tail",
            )
        elif process.stalled_s:
            stalled = registry.PROGRESS.warn if covered else registry.PROGRESS.fail
            yield stalled(
                f"{_stall(process, status)}; it is killed and started again by itself if it does not go on",
                command=f"kill -CONT {process.pid}" if process.stall == STOPPED else None,
            )
        check = roles.get(process.role)
        if check is not None and process.running:
            about = _name(process, status) if covered else ""
            yield check.ok(f"runs; {counted(process.restarts, 'restart')}", about)
        elif check is not None and status.state != "stopping":
            bad = check.fail if check.severity == "fail" and not covered else check.warn
            yield bad(f"{_name(process, status)} is being started again")
        if process.restarts:
            yield registry.RESTARTS.warn(
                f"was started again {counted(process.restarts, 'time')} since the bookie began",
                f"{process.role} {process.name}",
            )
    if status.state == "running" and all(each.role != "frontend" for each in status.processes):
        yield registry.FRONTEND.fail("the front-end is being started again")


def _disk(disk: DiskStatus, status: Status) -> Iterator[Finding]:
    name = f"disk {disk.path}"
    stalled = {process.disk for process in status.processes if process.stalled_s}
    if disk.state == "in service":
        yield registry.DISK.ok("in service", disk.path)
    elif disk.state == "failed" or (status.state == "running" and disk.disk not in stalled):
        yield registry.DISK.fail(f"{name} is {disk.state}: {disk.reason}", disk.path)
    reasons = [reason for reason in disk.read_only if reason in _SPACE_REASONS]
    if reasons:
        yield registry.NO_SPACE.warn(
            f"{name} takes no entries for lack of room: {', '.join(reasons)}", disk.path
        )
    elif disk.read_only:
        yield registry.READ_ONLY_DISK.warn(
            f"{name} takes no entries: {', '.join(disk.read_only)}", disk.path
        )
    device = disk.device
    if device is not None and (device.device_errors or device.filesystem_errors):
        found = (device.device_errors, "device"), (device.filesystem_errors, "file system")
        counts = ", ".join(f"{count} of the {what}" for count, what in found if count)
        yield registry.DEVICE.warn(
            f"{name} ({device.name}) has had errors: {counts}: look at the kernel's log and, if the disk is failing, "
            "put another in its place",
            disk.path,
        )
    if disk.space is not None and disk.space.quarantined:
        yield registry.SEGMENTS.warn(
            f"{name}: parts of {counted(disk.space.quarantined, 'segment')} cannot be read; a scrub brings back "
            "from peers what was in them"
        )


def _metadata(status: Status) -> Iterator[Finding]:
    metadata, cookies = status.metadata, status.cookies
    if metadata.registered:
        yield registry.METADATA.ok("registered")
    elif status.state == "running":
        refuses = UNREGISTERED in status.read_only_reasons
        effect = "takes no new ledgers" if refuses else "serves what it has"
        yield registry.METADATA.fail(
            f"the bookie is not registered in the metadata store, for {metadata.unregistered_s:.0f} s now: it {effect} "
            "and registers again by itself"
        )
    if cookies.ok:
        yield registry.COOKIES.ok("they match")
    elif cookies.ok is False:
        failed = {disk.path for disk in status.disks if disk.state == "failed"}
        differing = [each for each in cookies.fields if not each.same]
        names = sorted({f"{each.where}: {each.field}" for each in differing})
        # Of a disk that is not mounted its own finding tells.
        if not differing or {each.where for each in differing} - failed:
            yield registry.COOKIES.warn(
                f"{registry.DIFFER}{', '.join(names)}): the next start would refuse. {cookies.advice}"
            )
    elif cookies.problem:
        yield registry.UNCOMPARED.warn(f"the cookies could not be compared: {cookies.problem}")


def _configuration(status: Status) -> Iterator[Finding]:
    if status.config_problem:
        yield registry.CONFIGURATION.warn(
            f"the next start would refuse the configuration file: {status.config_problem}"
        )
    yield kernel(status.kernel, {each.name: each.kernel for each in status.processes})
    if status.ack_after == "write":
        yield registry.ACK_AFTER.warn(
            "ack_after = write: a lost host loses acknowledged entries of this bookie until peers repair it; use it "
            "with an ack quorum of 2 or more on hosts that do not fail together"
        )


def _limbo(status: Status) -> Iterator[Finding]:
    limbo = status.limbo
    if limbo.ledgers:
        stuck = f", {limbo.stuck:,} of them stuck" if limbo.stuck else ""
        yield registry.LIMBO.warn(
            f"{counted(limbo.ledgers, 'ledger', 'are')} in limbo{stuck}: repair is at work",
            command=None if limbo.job is None else str(bookie_command("job", "watch", limbo.job)),
        )
    else:
        yield registry.LIMBO.ok("no ledger is in limbo")
    for blocker in limbo.blockers:
        yield registry.BLOCKED.warn(
            f"it cannot be repaired by itself: {blocker.reason}",
            f"ledger {blocker.ledger}",
            blocker.what_to_do,
        )


def _copies(status: Status) -> Iterator[Finding]:
    copies = status.copies
    command = None if copies.job is None else str(bookie_command("job", "show", copies.job))
    if copies.short:
        yield registry.COPIES.warn(
            f"{counted(copies.short, 'copy', 'are')} short: the metadata says that these entries are here, and they "
            f"are not; last complete check: {moment(copies.checked_ms)}",
            command=command,
        )
    else:
        yield registry.COPIES.ok(
            f"no copy is known to be short; last complete check: {moment(copies.checked_ms)}"
        )
    if copies.checking:
        yield registry.UNCHECKED.warn(
            "the bookie was away, and still compares what it has with what the metadata credits it with; last complete "
            f"check: {moment(copies.checked_ms)}",
            command=command,
        )


def _quotas(status: Status) -> Iterator[Finding]:
    quotas = status.quotas
    for use in [use for use in quotas.owners if use.exceeded][:_OWNERS_WARNED_OF]:
        yield registry.QUOTA.warn(
            f"the ledgers of owner {quoted(use.owner)} take {use.bytes} bytes here and may take {use.bytes_max}: adds "
            "to them are refused until some are deleted, or `quotas` in the configuration gives it more"
        )
    if quotas.problem:
        yield registry.USE.warn(
            f"how much each owner has could not be found out, so the quotas stand as they were: {quotas.problem}"
        )
