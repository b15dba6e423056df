"""Whether a bookie is well, by named checks: judged from its status document and from probes of its disks. Pure.

=====  ==============================================================================================
ok     nothing to be done
warn   it serves, and somebody ought to look
fail   something that it is there for does not work
=====  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bkbox.api.admin.status import DiskStatus, Process, Status
from bkbox.base.words import counted

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A disk was written to and read from, or not: ``problem`` says why. ``took_ms`` with what the worker had to do
    before."""

    path: str
    problem: str
    took_ms: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class Check:
    """One of them; ``command``: what shows more, or mends it."""

    name: str
    state: State
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """``state``: the worst of the checks."""

    state: State
    checks: tuple[Check, ...] = ()


def health_of(status: Status, probes: Sequence[Probe]) -> Health:
    """``probes``: what was found last, of the disks that were looked at."""
    checks = (
        *_bookie(status),
        *_processes(status),
        *(check for disk in status.disks for check in _disk(disk)),
        *map(_probe, probes),
        *_metadata(status),
        *_data(status),
    )
    worst: State = "ok"
    for state in ("warn", "fail"):
        if any(check.state == state for check in checks):
            worst = state
    return Health(worst, checks)


def not_ready(status: Status) -> str:
    """Why clients should not be sent to the bookie; "" where they should."""
    if status.state != "running":
        return f"the bookie is {status.state}: {status.boot.phase}"
    stalled = stalls(status)
    if stalled:
        return "; ".join(stalled)
    if not any(process.running for process in status.processes if process.role == "frontend"):
        return "the front-end is being started again"
    if not any(disk.state == "in service" for disk in status.disks):
        return "no disk is in service"
    if not status.metadata.registered:
        return "the bookie is not registered in the metadata store"
    return ""


def stalls(status: Status) -> list[str]:
    """Each process that makes no progress, in words."""
    return [
        f"{_name(process, status)} (pid {process.pid}) has made no progress for {process.stalled_s:.0f} s: "
        f"{process.stall}"
        for process in status.processes
        if process.stalled_s
    ]


def _name(process: Process, status: Status) -> str:
    if process.role == "worker":
        path = next((disk.path for disk in status.disks if disk.disk == process.disk), process.name)
        return f"the worker of disk {path}"
    return "the front-end" if process.role == "frontend" else "the repair worker"


def _bookie(status: Status) -> Iterator[Check]:
    if status.state == "running":
        yield Check("bookie", "ok", "running")
    else:
        yield Check("bookie", "fail", f"{status.state}: {status.boot.phase}")
    if status.state == "running" and not status.writable:
        why = ", ".join(status.read_only_reasons) or "no disk takes entries"
        yield Check("writable", "warn", f"it takes no new entries: {why}")
    elif status.state == "running":
        yield Check("writable", "ok", "it takes new entries")


def _processes(status: Status) -> Iterator[Check]:
    for role in ("frontend", "repair"):
        for process in status.processes:
            if process.role == role:
                state: State = "ok" if process.running else "fail" if role == "frontend" else "warn"
                said = "runs" if process.running else "is being started again"
                yield Check(role, state, f"{said}; {process.restarts} restarts")
    stalled = stalls(status)
    if stalled:
        yield Check("progress", "fail", "; ".join(stalled))
    else:
        yield Check("progress", "ok", "every process makes progress")


def _disk(disk: DiskStatus) -> Iterator[Check]:
    name = f"disk {disk.path}"
    if disk.state == "in service":
        yield Check(name, "ok", "in service")
    else:
        text = f"{disk.state}: {disk.reason}"
        yield Check(name, "fail", text, f"bkbox disk replace {disk.path} NEW_FOLDER")
    if disk.read_only:
        yield Check(f"room {disk.path}", "warn", f"takes no entries: {', '.join(disk.read_only)}")
    device = disk.device
    if device is not None and (device.device_errors or device.filesystem_errors):
        errors = (device.device_errors or 0) + (device.filesystem_errors or 0)
        yield Check(
            f"device {disk.path}", "warn", f"{device.name} has had {counted(errors, 'error')}"
        )


def _probe(probe: Probe) -> Check:
    name = f"write and read {probe.path}"
    if probe.problem:
        return Check(name, "fail", probe.problem)
    return Check(name, "ok", f"written, synced and read back in {probe.took_ms:.1f} ms")


def _metadata(status: Status) -> Iterator[Check]:
    found = status.metadata
    if found.registered:
        yield Check("metadata", "ok", "registered")
    elif status.state == "running":
        text = f"not registered for {found.unregistered_s:.0f} s: it serves on what it has"
        yield Check("metadata", "fail", text, f"bkbox cluster info --metadata '{found.uri}'")
    if status.cookies.ok is False:
        yield Check(
            "cookies", "warn", f"they differ: {status.cookies.advice}", "bkbox cookie verify"
        )
    elif status.cookies.ok:
        yield Check("cookies", "ok", "they match")
    if status.config_problem:
        text = f"the next start would refuse the configuration file: {status.config_problem}"
        yield Check("configuration", "warn", text, "bkbox config validate")


def _data(status: Status) -> Iterator[Check]:
    if status.limbo.ledgers:
        yield Check(
            "limbo",
            "warn",
            f"{counted(status.limbo.ledgers, 'ledger', 'are')} in limbo",
            "bkbox job list",
        )
    else:
        yield Check("limbo", "ok", "no ledger is in limbo")
    quarantined = sum(disk.space.quarantined for disk in status.disks if disk.space)
    if quarantined:
        text = f"parts of {counted(quarantined, 'segment')} cannot be read"
        yield Check("segments", "warn", text, "bkbox scrub run")
