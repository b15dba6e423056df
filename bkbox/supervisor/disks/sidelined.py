"""Sidelines disks that cannot be opened, so that the other disks can serve.

A disk whose dirty marker cannot be written, or whose worker cannot open it, is out of service. Its content is unknown:
the front-end has no list of it, so requests get EIO and no ledger is denied. For the same reason the bookie takes no
new ledgers meanwhile. Opening the disk is retried with back-off.

A disk that may have lost something needs the lists of all others for phase one: a ledger on no list may be one that it
lost, or one of the absent disk. So it waits, open, and is accounted for together with the disk that comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shlex import quote

from bkbox.errors import BkboxError, BootError, DiskFullError
from bkbox.supervisor.disks.disks import Disk

log = logging.getLogger(__name__)


@contextmanager
def guarded(disk: Disk) -> Iterator[None]:
    """A step that may fail for this disk alone: the error is recorded as the disk's, and its worker ends."""
    try:
        yield
    except (BkboxError, OSError) as error:
        fail(disk, error)
        log.error("disk %s is out of service, and is tried again: %s", disk.path, error)


def fail(disk: Disk, error: BkboxError | OSError) -> None:
    """Records the error of a step that failed for this disk, and kills its worker."""
    disk.trouble, disk.error = str(error), error
    if disk.child is not None:
        disk.child.kill()


def require_one(disks: Sequence[Disk], there: Sequence[Disk]) -> None:
    """Raises if no disk is ``there`` to serve: the only disk's error, or BootError with the error of each."""
    if there:
        return
    if len(disks) == 1 and isinstance(disks[0].error, BkboxError):
        raise type(disks[0].error)(f"{disks[0].trouble}{_advice(disks[0])}")
    raise BootError("; ".join(f"disk {disk.path}: {disk.trouble}{_advice(disk)}" for disk in disks))


def is_full(disk: Disk) -> bool:
    """True if the disk's error is that it is full."""
    return isinstance(disk.error, DiskFullError)


def remedy(disk: Disk) -> str:
    """The first command for an operator to run on a full disk."""
    return f"df -h {quote(str(disk.path))}"


def _advice(disk: Disk) -> str:
    return f". Make room on its file system: {remedy(disk)}" if is_full(disk) else ""


def waiting(opened: Sequence[Disk], absent: Sequence[Disk]) -> list[Disk]:
    """The disks just opened that cannot be accounted for while others are ``absent``."""
    found = [disk for disk in opened if disk.may_have_lost] if absent else []
    names = ", ".join(str(disk.path) for disk in absent)
    for disk in found:
        disk.trouble = (
            f"it may have lost something ({disk.reason}), and what that is cannot be known without {names}: it waits "
            "for that disk"
        )
        log.error("disk %s is out of service: %s", disk.path, disk.trouble)
    return found
