"""Phase one of a boot: fences ledgers that may have lost their fence, and puts ledgers that may have lost entries into
limbo.

It is awaited before the port opens, and every mark is durable on its disk before it counts. An error anywhere fails the
boot. Only afterwards are the dirty markers settled and cookies stamped. A pure function (protocol/boot.py) decides the
marks ledger by ledger; this file lists, asks and sends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import NoSuchLedgerError
from bkbox.ipc.messages.disk import ListLedgers, MarkLedgers
from bkbox.ipc.messages.items import ACTIVE, FENCED, LEDGER_ITEM, LIMBO, MARK_ITEM, PAGE_ITEMS
from bkbox.ipc.messages.message import Page
from bkbox.metadata.base import MetadataStore
from bkbox.protocol.boot import Mark, mark_for
from bkbox.supervisor.disks.disks import Disk
from bkbox.wire.metadata.ledger import LedgerMetadata

_READS_AT_ONCE = 64
_MARKS_PER_MESSAGE = PAGE_ITEMS


AssignedDisk = Callable[[int], Disk | None]


def no_disk(_ledger: int) -> None:
    """Before a front-end serves, no ledger is assigned that no disk records."""


@dataclass(slots=True)
class PhaseOne:
    """The result of phase one."""

    ledgers_seen: int = 0
    fenced: int = 0
    limbo: int = 0


async def run(
    store: MetadataStore,
    bookie: BookieId,
    disks: Sequence[Disk],
    unresolved: Collection[int] = (),
    assigned_disk: AssignedDisk = no_disk,
) -> PhaseOne:
    """Mark every ledger of which a disk with ``may_have_lost`` may have lost something, and the ``unresolved`` ledgers,
    of which some disk has a copy that may be incomplete. If a disk can only have lost entries of active ledgers, all
    its other ledgers are complete, and what it does not record was never on it. ``assigned_disk``: the disk of a ledger
    that was assigned to it a moment ago, and that it may not record yet."""
    result = PhaseOne()
    suspects = [disk for disk in disks if disk.may_have_lost and not disk.only_active]
    places, active = await _places(disks)
    waiting = {disk.uuid: bytearray() for disk in disks}
    fallbacks = itertools.cycle(suspects)
    # Read before any metadata: a ledger whose mark is gone by then names the bookies it was copied to.
    underreplicated = await store.underreplicated()
    async for metadata in _all_metadata(store):
        result.ledgers_seen += 1
        assigned = places.get(metadata.ledger_id) or assigned_disk(metadata.ledger_id)
        if assigned not in disks:
            assigned = None
        if assigned is None and not suspects:
            continue  # it was never here
        ledger = metadata.ledger_id
        lost = assigned is not None and assigned.may_have_lost
        if lost and assigned is not None and assigned.only_active:
            lost = ledger in active
        safe = assigned is not None and not lost and ledger not in unresolved
        mark = mark_for(
            metadata,
            bookie,
            recorded_safely=safe,
            underreplicated=ledger in underreplicated,
            recorded=assigned is not None,
        )
        if mark is None:
            continue
        disk = assigned or next(fallbacks)
        waiting[disk.uuid] += _packed(mark)
        result.fenced += mark.fence
        result.limbo += mark.limbo
        if len(waiting[disk.uuid]) >= _MARKS_PER_MESSAGE * MARK_ITEM.size:
            await _send(disk, waiting[disk.uuid])
    for disk in disks:
        await _send(disk, waiting[disk.uuid])
    return result


async def _places(disks: Sequence[Disk]) -> tuple[dict[int, Disk], set[int]]:
    """The disk that records each ledger, and the ledgers that are marked active."""
    places: dict[int, Disk] = {}
    active: set[int] = set()
    for disk in disks:
        after, more = -1, True
        while more:
            page = await disk.call(ListLedgers(after=after))
            assert isinstance(page, Page)
            for ledger, flags in LEDGER_ITEM.iter_unpack(page.payload):
                places[ledger] = disk
                if flags & ACTIVE:
                    active.add(ledger)
                after = ledger
            more = page.more
    return places, active


async def _all_metadata(store: MetadataStore) -> AsyncIterator[LedgerMetadata]:
    """The metadata of every ledger of the cluster; ledgers deleted meanwhile are left out."""

    async def read(ledger: LedgerId) -> LedgerMetadata | None:
        try:
            return (await store.read_ledger(ledger)).value
        except NoSuchLedgerError:
            return None

    async for page in store.ledger_ranges():
        for start in range(0, len(page), _READS_AT_ONCE):
            for metadata in await asyncio.gather(*map(read, page[start : start + _READS_AT_ONCE])):
                if metadata is not None:
                    yield metadata


def _packed(mark: Mark) -> bytes:
    flags = FENCED * mark.fence | LIMBO * mark.limbo
    key = mark.master_key or b""
    return MARK_ITEM.pack(mark.ledger_id, flags, bool(key), key)


async def _send(disk: Disk, waiting: bytearray) -> None:
    if waiting:
        await disk.call(MarkLedgers(payload=bytes(waiting)))
        waiting.clear()
