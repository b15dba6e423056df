"""The disks of a bookie, as `{bookie_command('disk', 'list')}` shows them, and requests to a running bookie about them.

As in client.py every function takes the address of the admin API, and raises the bookie's own error: DiskChangeError
for a refusal.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bkbox.api.admin.client import Address, ask
from bkbox.api.admin.socket_path import DISKS_URL, READ_ONLY_URL
from bkbox.base.commandline import bookie_command
from bkbox.base.documents import from_document, json_kind
from bkbox.errors import DiskChangeError, EncodingError
from bkbox.jobs import job as jobs
from bkbox.jobs.job import Job

_CHANGE_TIMEOUT_S = 600.0
"""Time-out of a change, in seconds: it waits for the metadata store, and for phase one if there is one."""


@dataclass(frozen=True, slots=True)
class DiskView:
    """One disk. ``state`` in one or two words, ``reason`` why, ``what_to_do`` where something is to be done. Sizes are
    bytes. None: not known, as the bookie is not running or the disk is gone. ``last_start``: what the last start found,
    where the disk may have lost something; else empty.
    """

    path: str
    disk: str
    state: str
    reason: str
    what_to_do: str
    total_bytes: int | None
    free_bytes: int | None
    ledgers: int | None
    limbo_ledgers: int | None
    crash_class: str
    read_only: tuple[str, ...]
    worker_pid: int | None
    restarts: int | None
    last_start: str = ""


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """A drain's plan: how much there is to move at most, and how much the other disks take. ``refusal``: why it
    is not to be."""

    disk: str
    path: str
    ledgers: int
    bytes_at_most: int
    room_bytes: int
    refusal: str = ""


def disks(address: Address) -> list[DiskView]:
    """All disks, in the order of the configuration."""
    found = ask(address, "GET", DISKS_URL)
    return [from_document(DiskView, item, "disk") for item in _listed(found)]


def find(address: Address, name: str) -> DiskView:
    """One disk, by path or uuid. Raises DiskChangeError."""
    for each in disks(address):
        if name in (each.path, each.disk) or os.path.realpath(name) == os.path.realpath(each.path):
            return each
    raise DiskChangeError(
        f"{name} is no disk of this bookie; `{bookie_command('disk', 'list')}` shows them"
    )


def add(address: Address, disk: Path) -> list[str]:
    """Adds a disk that the configuration file newly names. Returns notes for the operator."""
    return _change(address, "add", {"path": str(disk)})


def replace(address: Address, old: str, new: Path, *, dry_run: bool = False) -> list[str]:
    """Replaces a failed disk by an empty one. ``dry_run``: only check if it would be refused."""
    values = {"disk": old, "path": str(new)} | ({"dry_run": True} if dry_run else {})
    return _change(address, "replace", values)


def remove(address: Address, disk: str) -> list[str]:
    """Removes a disk that holds no ledgers."""
    return _change(address, "remove", {"disk": disk})


def plan_drain(address: Address, disk: str) -> DrainPlan:
    """The plan of a drain of a disk, by path or uuid. Changes nothing."""
    return from_document(
        DrainPlan, ask(address, "GET", f"{DISKS_URL}/{quote(os.fsencode(disk), '')}/drain"), "plan"
    )


def drain(address: Address, disk: str) -> Job:
    """Starts to drain a disk, by path or uuid."""
    return jobs.from_json(
        ask(address, "POST", f"{DISKS_URL}/drain", {"disk": disk}, _CHANGE_TIMEOUT_S)
    )


def undrain(address: Address, disk: str) -> list[str]:
    """Ends a drain: the disk keeps its ledgers, and accepts new ones again."""
    return _change(address, "undrain", {"disk": disk})


def read_only(address: Address, disk: str | None, *, wanted: bool) -> list[str]:
    """Makes a disk, by path or uuid, read-only or writable; None: the whole bookie."""
    if disk is not None:
        return _change(address, "read-only", {"disk": disk, "wanted": wanted})
    found = ask(address, "POST", READ_ONLY_URL, {"wanted": wanted}, _CHANGE_TIMEOUT_S)
    return [str(line) for line in _listed(found)]


def _change(address: Address, what: str, values: dict[str, Any]) -> list[str]:
    found = ask(address, "POST", f"{DISKS_URL}/{what}", values, _CHANGE_TIMEOUT_S)
    return [str(line) for line in _listed(found)]


def _listed(found: object) -> list[object]:
    if not isinstance(found, list):
        raise EncodingError(f"the bookie answered {json_kind(found)} where a list is due")
    return found
