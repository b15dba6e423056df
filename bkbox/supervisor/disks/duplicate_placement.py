"""Resolves ledgers that two disks list, before the front-end is told where ledgers are: each has one disk assignment.

The source of a migration forgets the ledger durably. Only damage brings it back: the index is rebuilt from a log in
which the FORGET can no longer be read. So if two disks list one ledger, the copy on the disk whose log or index was
damaged is the stale one, and the other disk, the target of the migration, has the ledger. If both were damaged, the
right one cannot be told: the disk with the higher last entry keeps the ledger, in limbo, and peers fill it. The same
holds while another disk is away and cannot be asked: the ledgers of a damaged disk are in limbo until it is back.

Skipped when no disk was damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from bkbox.errors import ConnectionLostError
from bkbox.ipc.messages.disk import ListLedgers, ListRuns
from bkbox.ipc.messages.items import LEDGER_ITEM, RANGE_ITEM
from bkbox.ipc.messages.message import Message, Page
from bkbox.ipc.messages.migration import EndExport, SealExport
from bkbox.supervisor.disks.disks import Disk

log = logging.getLogger(__name__)

_RESPONSE_TIMEOUT_S = 30.0


Place = Callable[[int, Disk], Awaitable[None]]
"""Has the front-end route a ledger's requests to a disk, if there is a front-end."""


async def resolve_duplicate_ledgers(disks: Sequence[Disk], place: Place) -> set[int]:
    """Leave each ledger on one disk. Returns the ledgers whose copy is not known to be complete: they belong into
    limbo.

    Runs with the lock of migrations held, before a front-end is attached to a disk that was just opened. Raises the
    workers' errors.
    """
    there = [disk for disk in disks if disk.child is not None and disk.child.running]
    damaged = {disk.uuid for disk in there if _was_damaged(disk)}
    if not damaged or len(disks) < 2:
        return set()
    assignment: dict[int, Disk] = {}
    unresolved: set[int] = set()
    # Undamaged disks first; among the damaged ones, disks in service first.
    for disk in sorted(there, key=lambda each: (each.uuid in damaged, not each.in_service)):
        for ledger in await _ledgers(disk):
            assigned = assignment.setdefault(ledger, disk)
            if assigned is disk:
                continue
            stale = disk
            if assigned.uuid in damaged:
                unresolved.add(ledger)
                if not assigned.in_service and await _ends_later(ledger, disk, assigned):
                    assignment[ledger], stale = disk, assigned
            log.error("ledger %d is on %s and on %s, and forgotten on %s, which was damaged",
                ledger, assigned.path, disk.path, stale.path)  # fmt: skip
            await place(ledger, assignment[ledger])
            await _forget(stale, ledger, assignment[ledger])
    if len(there) < len(
        disks
    ):  # some may be on a disk that cannot be asked; they are checked again when it is back
        unresolved |= {
            ledger
            for ledger, assigned in assignment.items()
            if assigned.uuid in damaged and not assigned.in_service
        }
    return unresolved


async def _ends_later(ledger: int, disk: Disk, other: Disk) -> bool:
    return await _last_entry(disk, ledger) > await _last_entry(other, ledger)


def _was_damaged(disk: Disk) -> bool:
    """True if the disk's log or index was damaged, or its marker records a failure or an accepted older copy."""
    if disk.before is not None and disk.before.failures:
        return True
    return disk.opened is not None and bool(disk.opened.damaged or disk.opened.rebuilt)


async def _ledgers(disk: Disk) -> list[int]:
    found: list[int] = []
    more = True
    while more:
        page = await _ask(disk, ListLedgers(after=found[-1] if found else -1))
        assert isinstance(page, Page)
        found += [ledger for ledger, _flags in LEDGER_ITEM.iter_unpack(page.payload)]
        more = page.more
    return found


async def _last_entry(disk: Disk, ledger: int) -> int:
    last, more = -1, True
    while more:
        page = await _ask(disk, ListRuns(ledger=ledger, first=last + 1))
        assert isinstance(page, Page)
        for _first, last in RANGE_ITEM.iter_unpack(page.payload):  # noqa: B007
            pass
        more = page.more
    return last


async def _forget(stale: Disk, ledger: int, assigned: Disk) -> None:
    """Forget the stale copy as a migration does: noted as leaving first, so that an interrupted start resumes it."""
    await _ask(stale, SealExport(ledger=ledger, target=assigned.uuid))
    await _ask(stale, EndExport(ledger=ledger, migrated=True))


async def _ask(disk: Disk, call: Message) -> Message:
    try:
        return await disk.call(call, _RESPONSE_TIMEOUT_S)
    except TimeoutError as error:
        raise ConnectionLostError(f"the worker of disk {disk.path} does not answer") from error
