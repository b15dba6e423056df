"""The compaction job: segments that are mostly garbage are emptied and removed, disk by disk.

The worker of the disk does the copying, in small pieces (storage/maintenance/compaction.py), and checks itself whether
a segment may be removed. This module decides which segments, in which order, and how fast. Segments without live data
come first: they cost nothing and free the space that the others need. A segment that cannot be read whole is skipped:
the entries lost in it are refilled from peers, and the next run removes it.
"""

from __future__ import annotations

import asyncio
import logging

from bkbox.base.text import counted
from bkbox.errors import BkboxError, DiskError, DiskFullError, JobCancelledError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.items import REGION_ITEM
from bkbox.ipc.messages.space import (
    Compacted,
    CompactSegment,
    ExplainSegment,
    GetSpace,
    Removed,
    RemoveSegment,
    Space,
    SpendReserve,
    Stored,
)
from bkbox.jobs.context import JobContext
from bkbox.repair.context import Environment
from bkbox.repair.space.refill import refill
from bkbox.repair.space.segment_calls import (
    REGIONS_MAX,
    WAIT_S,
    Region,
    ask,
    scan_index,
    sealed_segments,
    store_all,
)

log = logging.getLogger(__name__)

_BATCH_BYTES = 1 << 30
_BATCH_SEGMENTS = 16
"""Upper bound on the bytes copied before they are stored and their segments removed; one segment may exceed it."""

_STEP_BYTES = 1 << 20


async def compact(work: JobContext, environment: Environment, arguments: dict[str, str]) -> None:
    """Compact the disks. ``disk``: only the one with this uuid; ``garbage_ratio``: overrides the configured one."""
    ratio = float(arguments.get("garbage_ratio") or environment.order.compaction_garbage_ratio)
    failures: list[str] = []
    for name, disk in list(environment.disks.items()):
        if disk.closed or arguments.get("disk", name) != name:
            continue
        work.set_step(f"looking through the index of disk {name}")
        try:
            await _Disk(work, environment, disk, ratio).run()
        except JobCancelledError:
            raise
        except BkboxError as error:  # the other disks go on
            log.error("compaction of disk %s: %s", name, error)
            failures.append(f"disk {name}: {error}")
    if failures:
        raise DiskError("; ".join(failures))


class _Disk:
    """The compaction of one disk."""

    def __init__(
        self, work: JobContext, environment: Environment, disk: AsyncChannel, ratio: float
    ) -> None:
        self._work = work
        self._environment = environment
        self._disk = disk
        self._ratio = ratio
        self._bad: list[Region] = []

    async def run(self) -> None:
        await store_all(self._work, self._disk)  # entries deleted lately are garbage, too
        await scan_index(self._work, self._disk)
        candidates = await self._candidates()
        self._work.expect(size=sum(live for live, _segment in candidates))
        waiting = candidates
        while waiting:
            batch = await self._next_batch(waiting)
            if not batch and await self._spend_reserve():
                continue
            if not batch:
                raise DiskFullError(
                    f"there is no space to copy the {waiting[0][0]} live bytes of segment {waiting[0][1]}; delete "
                    "ledgers, or add a disk"
                )
            waiting = waiting[len(batch) :]
            await self._compact(batch)

    async def _candidates(self) -> list[tuple[int, int]]:
        """(live bytes, segment) of the segments worth compacting, and of those with bad parts; the least live first."""
        found = []
        space = (await ask(self._disk, GetSpace(), Space)).values
        quarantined = set(space["quarantined"])
        for segment, size, live in await sealed_segments(self._disk):
            if segment in quarantined:
                found.append((live, segment))
                continue
            if size - live < self._ratio * size:
                continue
            call = ExplainSegment(segment=segment)
            values = (await ask(self._disk, call, Space)).values
            if size - live - int(values.get("state_bytes", size)) >= self._ratio * size:
                found.append((live, segment))
        return sorted(found)

    async def _next_batch(self, waiting: list[tuple[int, int]]) -> list[tuple[int, int]]:
        values = (await ask(self._disk, GetSpace(), Space)).values
        space = int(values["free_bytes"]) // 2
        batch: list[tuple[int, int]] = []
        total = 0
        for live, segment in waiting[:_BATCH_SEGMENTS]:
            total += live
            if total > space or (batch and total > _BATCH_BYTES):
                break
            batch.append((live, segment))
        return batch

    async def _spend_reserve(self) -> bool:
        """Returns True if space was freed: the reserve is kept for this."""
        return (await ask(self._disk, SpendReserve(), Stored)).done

    async def _compact(self, batch: list[tuple[int, int]]) -> None:
        copied = []
        try:
            for _live, segment in batch:
                if await self._copy(segment):
                    copied.append(segment)
        except DiskFullError as error:
            log.error("a batch ends early: %s", error)
            if not copied:
                raise
        self._work.set_step(f"removing {counted(len(copied), 'segment')}")
        await store_all(self._work, self._disk)
        unreadable = await scan_index(self._work, self._disk, self._bad[:REGIONS_MAX])
        self._bad.clear()
        for segment in copied:
            call = RemoveSegment(segment=segment)
            reply = await ask(self._disk, call, Removed)
            if reply.why:
                log.warning("segment %d stays: %s", segment, reply.why)
                self._work.count("segments_kept")
            else:
                self._work.count("segments_removed")
                self._work.count("bytes_freed", reply.bytes)
        if unreadable:
            self._work.set_step(f"refilling {counted(len(unreadable), 'entry')}")
            await refill(self._work, self._environment, unreadable, named=True)

    async def _copy(self, segment: int) -> bool:
        """Copy the live entries out of a segment. False: its contents cannot be determined."""
        self._work.set_step(f"copying what is live out of segment {segment}")
        begin = True
        while True:
            await self._work.checkpoint(disk_bytes=2 * _STEP_BYTES)
            call = CompactSegment(segment=segment, begin=begin)
            try:
                reply = await ask(self._disk, call, Compacted)
            except DiskFullError:
                raise
            except DiskError as error:
                log.error("segment %d is passed over: %s", segment, error)
                self._work.count("segments_kept")
                return False
            self._work.add_progress(entries=reply.entries, size=reply.bytes)
            if reply.done:
                self._bad += REGION_ITEM.iter_unpack(reply.payload)
                return True
            if reply.wait:
                await asyncio.sleep(WAIT_S)
            begin = begin and reply.wait
