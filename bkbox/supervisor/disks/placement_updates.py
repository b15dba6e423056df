"""Selects the disks that get new ledgers, as a message to the front-end."""

from __future__ import annotations

from collections.abc import Sequence

from bkbox.errors import DiskError
from bkbox.ipc.messages.frontend import NewLedgers
from bkbox.storage.files import Files
from bkbox.supervisor.disks.disks import Disk


def free_space_message(disks: Sequence[Disk], files: Files, *, allowed: bool) -> NewLedgers:
    """The message from which the front-end selects disks for new ledgers."""
    free: dict[str, int] = {}
    for disk in disks:
        if "free_bytes" in disk.stats:
            free[disk.uuid] = int(disk.stats["free_bytes"])
        else:
            try:
                free[disk.uuid] = files.space(disk.path).free
            except DiskError:
                free[disk.uuid] = 0
    closed = {disk.uuid for disk in disks if disk.draining}
    read_only = {disk.uuid for disk in disks if disk.readonly_requests}
    if len(closed | read_only) < len(
        disks
    ):  # else the workers refuse; they still take repair writes
        closed |= read_only
    return NewLedgers(allowed=allowed, free=free, closed=sorted(closed))
