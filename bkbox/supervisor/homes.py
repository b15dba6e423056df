"""A ledger that two disks list has one home all the same: found out before anybody is told where ledgers are.

A ledger that moved is forgotten by the disk that it left, durably. Only damage brings it back: the index is made anew
from a log in which the FORGET cannot be read any more. So of two disks with one ledger, that whose log or index was
damaged has what was left behind, and the other, which took it over, has the ledger. Where both were damaged nobody
can tell: the one with more of it keeps it, in limbo, and peers fill it. Nor can anybody while another disk is not
there to be asked: what is on the damaged one is in limbo until then.

Looked for only where some disk was damaged; who damaged nothing is asked nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from bkbox.errors import ConnectionLostError
from bkbox.ipc import messages
from bkbox.supervisor.disks import Disk

log = logging.getLogger(__name__)

_ANSWER_S = 30.0


Place = Callable[[int, Disk], Awaitable[None]]
"""Have the front-end send requests for a ledger to a disk, if there is a front-end."""


async def settle_homes(disks: Sequence[Disk], place: Place) -> set[int]:
    """Have each ledger on one disk. Returns those whose home is not known to have all of it: they belong into limbo.

    With the lock of moves held, before a front-end is attached to a disk that was opened just now. Raises what the
    workers met.
    """
    there = [disk for disk in disks if disk.child is not None and disk.child.running]
    damaged = {disk.uuid for disk in there if _was_damaged(disk)}
    if not damaged or len(disks) < 2:
        return set()
    homes: dict[int, Disk] = {}
    doubtful: set[int] = set()
    # Those that are whole first, and of those that are not who serves already.
    for disk in sorted(there, key=lambda each: (each.uuid in damaged, not each.in_service)):
        for ledger in await _ledgers(disk):
            home = homes.setdefault(ledger, disk)
            if home is disk:
                continue
            stale = disk
            if home.uuid in damaged:
                doubtful.add(ledger)
                if not home.in_service and await _ends_later(ledger, disk, home):
                    homes[ledger], stale = disk, home
            log.error("ledger %d is on %s and on %s, and forgotten on %s, which was damaged",
                ledger, home.path, disk.path, stale.path)  # fmt: skip
            await place(ledger, homes[ledger])
            await _forget(stale, ledger, homes[ledger])
    if len(there) < len(
        disks
    ):  # some may be on a disk that cannot be asked, and are looked at again when it is back
        doubtful |= {
            ledger for ledger, home in homes.items() if home.uuid in damaged and not home.in_service
        }
    return doubtful


async def _ends_later(ledger: int, disk: Disk, other: Disk) -> bool:
    return await _last_entry(disk, ledger) > await _last_entry(other, ledger)


def _was_damaged(disk: Disk) -> bool:
    """Its log or index was; or it failed, or is an older copy that was taken in, which a marker says of it."""
    if disk.before is not None and disk.before.failures:
        return True
    return disk.opened is not None and bool(disk.opened.damaged or disk.opened.rebuilt)


async def _ledgers(disk: Disk) -> list[int]:
    found: list[int] = []
    more = True
    while more:
        page = await _ask(disk, messages.ListLedgers(after=found[-1] if found else -1))
        assert isinstance(page, messages.Page)
        found += [ledger for ledger, _flags in messages.LEDGER_ITEM.iter_unpack(page.payload)]
        more = page.more
    return found


async def _last_entry(disk: Disk, ledger: int) -> int:
    last, more = -1, True
    while more:
        page = await _ask(disk, messages.ListRuns(ledger=ledger, first=last + 1))
        assert isinstance(page, messages.Page)
        for _first, last in messages.RANGE_ITEM.iter_unpack(page.payload):  # noqa: B007
            pass
        more = page.more
    return last


async def _forget(stale: Disk, ledger: int, home: Disk) -> None:
    """As at the end of a move: noted as leaving first, so that a start in between goes on with it."""
    await _ask(stale, messages.LeaveLedger(ledger=ledger, target=home.uuid))
    await _ask(stale, messages.EndLeave(ledger=ledger, gone=True))


async def _ask(disk: Disk, call: messages.Message) -> messages.Message:
    try:
        return await disk.call(call, _ANSWER_S)
    except TimeoutError as error:
        raise ConnectionLostError(f"the worker of disk {disk.path} does not answer") from error
