"""The warnings of the status document: what an operator ought to know, each with the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkbox.api.admin.health import stalls
from bkbox.api.admin.status import DiskStatus, Status, StatusWarning
from bkbox.api.status.cookie_report import DIFFER
from bkbox.base.host import descriptors
from bkbox.base.limits import DESCRIPTORS_WANTED, FRONTEND_DESCRIPTORS
from bkbox.base.words import counted, quoted
from bkbox.bookie.readonly import DISK_FULL, DISK_USAGE, RESERVE_SPENT
from bkbox.config.schema import address_of
from bkbox.config.values import is_loopback
from bkbox.jobs.job import JobState
from bkbox.supervisor.children.heartbeat import STOPPED, WAITS_FOR_DISK
from bkbox.supervisor.disks.sidelined import is_full, remedy

if TYPE_CHECKING:
    from bkbox.supervisor.supervisor import Supervisor


def warnings_of(bookie: Supervisor, status: Status) -> tuple[StatusWarning, ...]:
    """``status``: all else of the document."""
    config = f"--config {bookie.config.path}"
    return (
        *_of_processes(status),
        *_of_disks(bookie, config),
        *_of_what_disks_say(status.disks, config),
        *_of_intents(bookie, config),
        *_of_metadata(bookie),
        *_of_cookies(status, config),
        *_of_configuration(bookie, status, config),
        *_of_jobs(bookie, config),
        *_of_limbo(status, config),
        *_of_quotas(bookie, status),
    )


def _of_processes(status: Status) -> Iterator[StatusWarning]:
    stalled = (process for process in status.processes if process.stalled_s)
    for text, process in zip(stalls(status), stalled, strict=True):
        if process.stall == WAITS_FOR_DISK:
            yield StatusWarning(
                f"{text}; it goes on when the disk does. Look at the device and at the kernel's log",
                "dmesg --ctime | tail",
            )
        else:
            yield StatusWarning(
                f"{text}; it is killed and started again by itself if it does not go on",
                f"kill -CONT {process.pid}" if process.stall == STOPPED else "",
            )


def _of_disks(bookie: Supervisor, config: str) -> Iterator[StatusWarning]:
    for disk in bookie.disks:
        replace = f"bkbox disk replace {disk.path} NEW_FOLDER {config}"
        if disk.in_service and disk.trouble:
            yield StatusWarning(
                f"disk {disk.path} failed and takes no writes: {disk.trouble}; the next start treats it as a host "
                "crash",
                replace,
            )
        elif not disk.in_service and bookie.state == "running":
            why = disk.in_doubt or disk.trouble
            again = "; it is tried again by itself" if disk.error is not None else ""
            command = replace if why and not disk.waits else f"bkbox disk list {config}"
            yield StatusWarning(
                f"disk {disk.path} is out of service: {why or 'its worker is being started'}{again}",
                remedy(disk) if is_full(disk) else command,
            )
    if bookie.state == "running" and not all(disk.listed for disk in bookie.disks):
        yield StatusWarning(
            "the bookie takes no new ledgers while it does not know what is on one of its disks",
            f"bkbox disk list {config}",
        )


def _of_what_disks_say(disks: tuple[DiskStatus, ...], config: str) -> Iterator[StatusWarning]:
    for disk in disks:
        room = [reason for reason in disk.read_only if reason in _ABOUT_ROOM]
        if room:
            yield StatusWarning(
                f"disk {disk.path} takes no entries for lack of room: {', '.join(room)}",
                f"bkbox gc run {config}",
            )
        device, space = disk.device, disk.space
        if device is not None and (device.device_errors or device.filesystem_errors):
            counts = [
                f"{count} of the {what}"
                for count, what in (
                    (device.device_errors, "device"),
                    (device.filesystem_errors, "file system"),
                )
                if count
            ]
            yield StatusWarning(
                f"disk {disk.path} ({device.name}) has had errors: {', '.join(counts)}: look at the kernel's log and, "
                "if the disk is failing, put another in its place",
                f"bkbox disk replace {disk.path} NEW_FOLDER {config}",
            )
        if space is not None and space.quarantined:
            yield StatusWarning(
                f"disk {disk.path}: parts of {counted(space.quarantined, 'segment')} cannot be read; a scrub brings "
                "back from peers what was in them",
                f"bkbox scrub run {config}",
            )


_ABOUT_ROOM = frozenset({DISK_FULL, DISK_USAGE, RESERVE_SPENT})


def _of_intents(bookie: Supervisor, config: str) -> Iterator[StatusWarning]:
    """What somebody wanted, and may have forgotten."""
    if bookie.intents.of_bookie:
        why = ", ".join(sorted(bookie.intents.of_bookie))
        yield StatusWarning(
            f"the bookie takes no entries, as was asked for ({why})",
            f"bkbox bookie read-only off {config}",
        )
    for disk in bookie.disks:
        if disk.intents:
            yield StatusWarning(
                f"disk {disk.path} takes no entries, as was asked for",
                f"bkbox disk read-only {disk.path} --off {config}",
            )


def _of_metadata(bookie: Supervisor) -> Iterator[StatusWarning]:
    if bookie.unregistered_s:
        effect = "it serves what it has" if bookie.takes_new_ledgers else "it takes no new ledgers"
        yield StatusWarning(
            f"the metadata store has not known of this bookie for {bookie.unregistered_s:.0f} s: {effect}, and "
            "registers again by itself",
            f"bkbox cluster info --metadata '{bookie.config.metadata}'",
        )


def _of_cookies(status: Status, config: str) -> Iterator[StatusWarning]:
    if status.cookies.ok is False:
        names = sorted(
            {f"{each.where}: {each.field}" for each in status.cookies.fields if not each.same}
        )
        yield StatusWarning(
            f"{DIFFER} ({', '.join(names)}): the next start would refuse. {status.cookies.advice}",
            f"bkbox cookie verify {config}",
        )
    elif status.cookies.ok is None and status.cookies.problem:
        yield StatusWarning(
            f"the cookies could not be compared: {status.cookies.problem}",
            f"bkbox cookie verify {config}",
        )


def _of_configuration(bookie: Supervisor, status: Status, config: str) -> Iterator[StatusWarning]:
    if status.config_problem:
        yield StatusWarning(
            f"the next start would refuse the configuration file: {status.config_problem}",
            f"bkbox config validate {config}",
        )
    if status.kernel == "interpreted":
        yield StatusWarning(
            "the kernel is interpreted: this bookie takes a small part of the load that it could; install a C "
            "compiler and install bkbox again, or unset BKBOX_KERNEL",
            "bkbox doctor",
        )
    if status.http and bookie.config.http_tls == "off" and not _is_here(bookie.config.http_listen):
        yield StatusWarning(
            f"the admin API on {status.http} is not encrypted: tokens can be read on the network between",
            f"bkbox config explain http_tls {config}",
        )
    allowed = descriptors.allowed_now()
    wanted = bookie.config.connections_max + FRONTEND_DESCRIPTORS
    if allowed < min(wanted, DESCRIPTORS_WANTED):
        yield StatusWarning(
            f"at most {allowed - FRONTEND_DESCRIPTORS} clients are served at once: a process of the bookie may have "
            f"{allowed} files and connections open",
            "ulimit -n 131072 before bkbox run, or LimitNOFILE=131072 in its unit",
        )
    if bookie.config.ack_after == "write":
        yield StatusWarning(
            "ack_after = write: a lost host loses acknowledged entries of this bookie until peers repair it; "
            "use it with an ack quorum of 2 or more on hosts that do not fail together",
            f"bkbox config explain ack_after {config}",
        )


def _is_here(listen: str) -> bool:
    return is_loopback(address_of(listen)[0])


def _of_jobs(bookie: Supervisor, config: str) -> Iterator[StatusWarning]:
    """Jobs that are blocked, and those that failed and were not started again since."""
    if bookie.jobs is None:
        return
    newest = {(job.kind, *sorted(job.arguments.items())): job for job in bookie.jobs.registry.all()}
    for job in newest.values():
        show = f"bkbox job show {job.id} {config}"
        name = f"job {job.id} ({job.kind.value})"
        if job.state is JobState.FAILED:
            yield StatusWarning(f"{name} failed: {job.error}", show)
        elif job.blocked and not job.state.ended:
            yield StatusWarning(
                f"{name}: {counted(job.blocked, 'ledger')} cannot go on without help", show
            )
    for stall in bookie.jobs.stalls():
        show = "bkbox job list" if stall.job is None else f"bkbox job show {stall.job}"
        yield StatusWarning(stall.text, f"{show} {config}")


def _of_limbo(status: Status, config: str) -> Iterator[StatusWarning]:
    limbo = status.limbo
    if limbo.ledgers:
        command = (
            f"bkbox job list {config}"
            if limbo.job is None
            else f"bkbox job watch {limbo.job} {config}"
        )
        yield StatusWarning(
            f"{counted(limbo.ledgers, 'ledger', 'are')} in limbo: repair is at work", command
        )


_OWNERS_WARNED_OF = 10


def _of_quotas(bookie: Supervisor, status: Status) -> Iterator[StatusWarning]:
    quotas = status.quotas
    for use in [use for use in quotas.owners if use.exceeded][:_OWNERS_WARNED_OF]:
        yield StatusWarning(
            f"the ledgers of owner {quoted(use.owner)} take {use.bytes} bytes here and may take {use.bytes_max}: adds "
            "to them are refused until some are deleted, or `quotas` in the configuration gives it more",
            f"bkbox top --by owner --metadata '{bookie.config.metadata}'",
        )
    if quotas.problem:
        yield StatusWarning(
            f"who has how much could not be found out, so the quotas of owners stand as they were: {quotas.problem}",
            f"bkbox cluster info --metadata '{bookie.config.metadata}'",
        )
