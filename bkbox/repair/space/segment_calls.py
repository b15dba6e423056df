"""Calls to a disk's worker about its segments and its index, as whole passes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from bkbox.errors import BugError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.items import ENTRY_ITEM, REGION_ITEM, SEGMENT_ITEM
from bkbox.ipc.messages.message import Message, Page
from bkbox.ipc.messages.space import IndexScanned, ListSegments, ScanIndex, StoreAll, Stored
from bkbox.jobs.context import JobContext

SCAN_STEP_BYTES = 256 << 10
"""Approximate bytes of the index that one step of an index scan reads."""

REGIONS_MAX = 4_096
"""Upper bound on the regions passed to one index scan."""

WAIT_S = 0.05
"""Seconds between two polls of a worker for the end of an operation."""

Region = tuple[int, int, int]
"""A part of a segment that cannot be read: its id, start, end."""

_M = TypeVar("_M", bound=Message)


async def ask(disk: AsyncChannel, call: Message, kind: type[_M]) -> _M:
    """Make one call. Raises the worker's error, ConnectionLostError."""
    reply = await disk.call(call)
    if not isinstance(reply, kind):
        raise BugError(f"{type(call).__name__} was answered {type(reply).__name__}")
    return reply


async def scan_index(
    work: JobContext, disk: AsyncChannel, regions: Sequence[Region] = ()
) -> list[tuple[int, int]]:
    """Have a disk scan its index; returns the entries (ledger, id) that cannot be read because they are in these
    regions or in missing segments.
    """
    found: list[tuple[int, int]] = []
    payload = b"".join(REGION_ITEM.pack(*region) for region in regions)
    begin = True
    while True:
        await work.checkpoint(disk_bytes=SCAN_STEP_BYTES)
        call = ScanIndex(begin=begin, payload=payload if begin else b"")
        reply = await ask(disk, call, IndexScanned)
        found += ENTRY_ITEM.iter_unpack(reply.payload)
        if reply.done:
            return found
        begin = False


async def store_all(work: JobContext, disk: AsyncChannel) -> None:
    """Have the worker take a checkpoint that covers everything written so far."""
    begin = True
    while not (await ask(disk, StoreAll(begin=begin), Stored)).done:
        await work.checkpoint()
        await asyncio.sleep(WAIT_S)
        begin = False


async def sealed_segments(disk: AsyncChannel) -> list[tuple[int, int, int]]:
    """Id, bytes, and live bytes by the last index scan, of the segments behind the last checkpoint; ascending."""
    found: list[tuple[int, int, int]] = []
    more = True
    while more:
        after = found[-1][0] if found else 0
        reply = await ask(disk, ListSegments(after=after), Page)
        found += SEGMENT_ITEM.iter_unpack(reply.payload)
        more = reply.more
    return found
