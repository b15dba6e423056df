"""The scrub job: every record of every disk is read and verified, periodically; bad entries are refilled from peers.

A pass goes from segment to segment. Its position is recorded on the disk after each, once the findings there have
been dealt with, so that an interrupted pass resumes where it was. After that, entries of the index whose segment is
gone are searched for. In the end this bookie's entries are compared with those of other bookies
(replica_comparison.py).
"""

from __future__ import annotations

import logging

from bkbox.base.limits import SCRUB_STEP_BYTES
from bkbox.base.text import counted
from bkbox.errors import BkboxError, DiskError, JobCancelledError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.disk import ListLedgers
from bkbox.ipc.messages.items import ENTRY_ITEM, LEDGER_ITEM, LIMBO, REGION_ITEM
from bkbox.ipc.messages.message import Done, Page
from bkbox.ipc.messages.space import (
    GetSpace,
    RecordComparison,
    RecordScrub,
    Scrubbed,
    ScrubSegment,
    Space,
)
from bkbox.jobs.context import JobContext
from bkbox.repair.context import Environment
from bkbox.repair.space.refill import refill
from bkbox.repair.space.replica_comparison import Comparison
from bkbox.repair.space.segment_calls import REGIONS_MAX, Region, ask, scan_index, sealed_segments

log = logging.getLogger(__name__)

_NOTED_MAX = 1_000
_NOTED_EVERY = 64
"""Number of ledgers compared between two records of the position."""


async def scrub(work: JobContext, environment: Environment, arguments: dict[str, str]) -> None:
    """Scrub the disks. ``disk``: only the one with this uuid; ``restart``: from the beginning, whatever the last
    position; ``disks_only``: without the comparison.
    """
    failures: list[str] = []
    for name, disk in list(environment.disks.items()):
        if disk.closed or arguments.get("disk", name) != name:
            continue
        try:
            pass_ = _Disk(work, environment, name, disk)
            await pass_.run(restart="restart" in arguments, compares="disks_only" not in arguments)
        except JobCancelledError:
            raise
        except BkboxError as error:  # the other disks go on
            log.error("scrub of disk %s: %s", name, error)
            failures.append(f"disk {name}: {error}")
    if failures:
        raise DiskError("; ".join(failures))


class _Disk:
    """One disk's pass."""

    def __init__(
        self, work: JobContext, environment: Environment, name: str, disk: AsyncChannel
    ) -> None:
        self._work = work
        self._environment = environment
        self._name = name
        self._disk = disk

    async def run(self, *, restart: bool, compares: bool) -> None:
        values = (await ask(self._disk, GetSpace(), Space)).values
        first = 0 if restart else int(values["scrub_segment"])
        first_ledger = 0 if restart else int(values["scrub_ledger"])
        sizes = {segment: size for segment, size, _live in await sealed_segments(self._disk)}
        segments = [*sizes, int(values["segment"])]
        self._work.expect(size=sum(sizes.get(each, 0) for each in segments if each >= first))
        for segment in segments:
            if segment >= first:
                regions = await self._segment(segment)
                await self._note(segment + 1, regions)
        self._work.set_step(f"looking through the index of disk {self._name}")
        await self._refill(await scan_index(self._work, self._disk), named=True)
        if compares:
            await self._compare(first_ledger)
        await self._note(0, [])

    async def _compare(self, first: int) -> None:
        """Compare every ledger that is assigned to this disk and not in limbo, from ``first`` on."""
        comparison = Comparison(self._work, self._environment)
        after, more, since_note = first - 1, True, 0
        while more:
            page = await ask(self._disk, ListLedgers(after=after), Page)
            for ledger, flags in LEDGER_ITEM.iter_unpack(page.payload):
                after = ledger
                if flags & LIMBO:
                    continue
                self._work.set_step(f"comparing ledger {ledger} with the other bookies")
                await comparison.ledger(ledger)
                since_note += 1
                if since_note == _NOTED_EVERY:
                    since_note = 0
                    await ask(self._disk, RecordComparison(ledger=ledger), Done)
            more = page.more

    async def _segment(self, segment: int) -> list[Region]:
        """Verify one segment, and deal with its bad regions."""
        self._work.set_step(f"reading segment {segment} of disk {self._name}")
        regions: list[Region] = []
        unnamed: list[tuple[int, int]] = []
        offset, done = 0, False
        while not done:
            await self._work.checkpoint(disk_bytes=SCRUB_STEP_BYTES)
            call = ScrubSegment(segment=segment, offset=offset)
            found = await ask(self._disk, call, Scrubbed)
            split = found.regions * REGION_ITEM.size
            regions += REGION_ITEM.iter_unpack(found.payload[:split])
            unnamed += ENTRY_ITEM.iter_unpack(found.payload[split:])
            self._work.add_progress(size=found.read_bytes)
            offset, done = found.offset, found.done
        if regions:
            log.error("segment %d of disk %s: %d bad parts", segment, self._name, len(regions))
            self._work.count("bad_regions", len(regions))
            for start in range(0, len(regions), REGIONS_MAX):
                some = regions[start : start + REGIONS_MAX]
                await self._refill(await scan_index(self._work, self._disk, some), named=True)
        await self._refill(unnamed, named=False)
        return regions

    async def _refill(self, entries: list[tuple[int, int]], *, named: bool) -> None:
        if entries:
            self._work.set_step(f"refilling {counted(len(entries), 'entry')} of disk {self._name}")
            await refill(self._work, self._environment, entries, named=named)

    async def _note(self, segment: int, bad: list[Region]) -> None:
        now_ms = self._environment.wall_ms()
        call = RecordScrub(segment=segment, now_ms=now_ms, bad=bad[:_NOTED_MAX])
        await ask(self._disk, call, Done)
