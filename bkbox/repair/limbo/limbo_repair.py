"""Phase two: every ledger in limbo is recovered, checked, refilled and only then taken out of limbo.

One ledger, in this order:

1. read its metadata; a ledger that is not in the metadata store any more was deleted: limbo ends, nothing is missing.
   One whose metadata does not name this bookie waits in two cases. Where it is marked for re-replication, a
   replication worker may have copied it here and be about to update the metadata; where there are entries of it here,
   Java's ``recoverBookieData`` may be about to. It waits until the metadata names this bookie, or the copy is
   collected;
2. if this bookie is in its last ensemble and it is not CLOSED, recover it like any other client;
3. list the entries that this bookie must have by the write sets, and subtract those that are in the index *and can be
   read*;
4. copy the rest from peers (copy/local_copy.py);
5. if nothing is missing: clear limbo, which syncs everything written before it. Otherwise the ledger stays in limbo,
   is listed as a blocker with each peer's response, and is retried after a back-off.

A drain may migrate a ledger to another disk at any moment, with its limbo. Anything looked up, or cleared, on the
source disk then has no effect, and the ledger is repaired again on the target.

Nothing is remembered between runs: entries that were copied are in the index, so an interrupted run resumes where it
was. A few ledgers are worked on at once, so that the bookies of a crashed host do not overload each other.
"""

from __future__ import annotations

import asyncio
import logging

from bkbox.base.backoff import backoff_s
from bkbox.base.commandline import bookie_command
from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.errors import BkboxError, ConnectionLostError, NoSuchLedgerError, RecoveryAbortedError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.disk import CheckEntries, ClearLimbo, ListLedgers, ListRuns
from bkbox.ipc.messages.items import LEDGER_ITEM, RANGE_ITEM
from bkbox.ipc.messages.message import Page
from bkbox.ipc.messages.migration import GetLedger, LedgerInfo
from bkbox.jobs.context import JobContext
from bkbox.protocol import repair as plan
from bkbox.repair.context import Environment
from bkbox.repair.copy.byte_semaphore import WINDOW_BYTES, ByteWindow
from bkbox.repair.copy.local_copy import copy_advice, copy_to_local
from bkbox.repair.limbo.recovery import why_stuck
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.loss import losses_of

log = logging.getLogger(__name__)

_CHECK_ENTRIES_AT_ONCE = 256
_RECOVER_ADVICE = "wait until more bookies of its ensemble are up and out of limbo; recovery is tried again by itself"
_MARKED_ADVICE = "wait until a replication worker has finished it; limbo then ends by itself"


class LimboRepair:
    """Repairs the ledgers of the disks that it is given; retries until they are out of limbo."""

    def __init__(self, environment: Environment, work: JobContext) -> None:
        self._me = environment.me
        self._order = environment.order
        self._store = environment.store
        self._client = environment.client
        self._rng = environment.rng
        self._work = work
        self._slots = asyncio.Semaphore(environment.order.ledgers_at_once)
        self._window = ByteWindow(WINDOW_BYTES)
        self._working: dict[int, tuple[AsyncChannel, asyncio.Task[None]]] = {}
        self._done = 0

    async def serve_disk(self, disk: AsyncChannel) -> None:
        """Repair every ledger of this disk that is in limbo now. Returns when each is being worked on or done."""
        limbo = await self._limbo_ledgers(disk)
        for ledger in limbo:
            before = self._working.get(ledger)
            if before is not None:
                if before[0] is disk and not before[1].done():
                    continue
                before[1].cancel()  # it used the disk's previous worker
            task = asyncio.ensure_future(self._until_done(disk, ledger))
            self._working[ledger] = (disk, task)
        self.expect(sum(not task.done() for _disk, task in self._working.values()))
        if limbo:
            log.warning("%s in limbo", counted(len(limbo), "ledger", "are"))

    def expect(self, left: int) -> None:
        """Report how many ledgers are in limbo now."""
        self._work.expect(ledgers=self._done + left)

    def working_on(self, disk: AsyncChannel) -> int:
        """The number of a disk's ledgers that have not left limbo yet."""
        return sum(channel is disk for channel, _task in self._working.values())

    async def wait(self, timeout_s: float) -> bool:
        """Wait until one ledger's work has ended, or for ``timeout_s``; True if none is left. Raises the error of a
        task that failed.
        """
        tasks = [task for _disk, task in self._working.values()]
        if tasks:
            done, _left = await asyncio.wait(
                tasks, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                if not task.cancelled():
                    task.result()
        return all(task.done() for _disk, task in self._working.values())

    async def _limbo_ledgers(self, disk: AsyncChannel) -> list[LedgerId]:
        found: list[LedgerId] = []
        after, more = -1, True
        while more:
            page = await disk.call(ListLedgers(after=after, limbo_only=True))
            assert isinstance(page, Page)
            for ledger, _flags in LEDGER_ITEM.iter_unpack(page.payload):
                found.append(LedgerId(ledger))
                after = ledger
            more = page.more
        return found

    async def _until_done(self, disk: AsyncChannel, ledger: LedgerId) -> None:
        """Retry until the ledger is out of limbo or the disk's worker is gone."""
        tries = 0
        while not disk.closed:
            if tries and await self._has_moved(disk, ledger):
                self._working.pop(ledger, None)
                self._work.unblock(ledger)
                return
            blocker: tuple[str, str] | None
            async with self._slots:
                try:
                    blocker = await self._repair(disk, ledger)
                except RecoveryAbortedError as error:
                    blocker = await why_stuck(self._client, ledger, error)
                except ConnectionLostError as error:
                    blocker = (str(error), _RECOVER_ADVICE)
                except BkboxError as error:
                    blocker = (f"{type(error).__name__}: {error}", _RECOVER_ADVICE)
            if blocker is None:
                self._working.pop(ledger, None)
                self._work.unblock(ledger)
                self._done += 1
                self._work.add_progress(ledgers=1)
                return
            log.warning("ledger %d stays in limbo: %s", ledger, blocker[0])
            self._work.block(ledger, *blocker)
            order = self._order
            await asyncio.sleep(
                backoff_s(tries, order.retry_initial_s, order.retry_max_s, self._rng)
            )
            tries += 1

    async def _has_moved(self, disk: AsyncChannel, ledger: LedgerId) -> bool:
        """True if a drain has migrated it to another disk, with its limbo: it is repaired there."""
        try:
            found = await disk.call(GetLedger(ledger=ledger))
        except BkboxError:
            return False
        assert isinstance(found, LedgerInfo)
        return not (found.known and found.limbo)

    async def _repair(self, disk: AsyncChannel, ledger: LedgerId) -> tuple[str, str] | None:
        """One try; None once the ledger is out of limbo, else the reason and what the operator can do."""
        await self._work.checkpoint(metadata_calls=1)
        try:
            metadata = await self._recovered_metadata(ledger)
            if self._me not in metadata.bookies():
                if ledger in await self._store.underreplicated():
                    return "it is marked for re-replication and may be copied here", _MARKED_ADVICE
                metadata = await self._recovered_metadata(ledger)
            if self._me not in metadata.bookies() and await self._present(disk, ledger):
                return (
                    "the metadata does not name this bookie, which has a copy of it",
                    "nothing: limbo ends by itself when the metadata names this bookie, or when the copy is collected; "
                    f"`{bookie_command('gc', 'run', '--all', '--empty-trash')}` collects it now",
                )
        except NoSuchLedgerError:
            await disk.call(ClearLimbo(ledger=ledger))
            return None
        missing = await self._missing(disk, metadata)
        self._work.count("entries_missing", sum(map(len, missing)))
        failed, failures = 0, ""
        if missing:
            result = await copy_to_local(
                self._me,
                self._client.pool,
                metadata,
                missing,
                self._work,
                self._window,
                self._order.entries_in_flight,
            )
            failed, failures = len(result.failed), result.describe()
            self._work.count("entries_missing", -failed)
        if not plan.may_leave_limbo(metadata, self._me, missing=failed, unverified=0):
            return f"{counted(failed, 'entry', 'are')} missing: {failures}", copy_advice(ledger)
        for record in losses_of(metadata):
            log.warning("ledger %d was ended with loss accepted: %s", ledger, record.text)
        await disk.call(ClearLimbo(ledger=ledger))
        return None

    async def _recovered_metadata(self, ledger: LedgerId) -> LedgerMetadata:
        # Metadata from before this bookie joined an ensemble would say that nothing is missing.
        metadata = (await self._store.read_ledger(ledger, linearizable=True)).value
        return (
            await self._client.recover(ledger)
            if plan.needs_recovery(metadata, self._me)
            else metadata
        )

    async def _missing(self, disk: AsyncChannel, metadata: LedgerMetadata) -> list[range]:
        """The entries that this bookie must have and does not have, or cannot read."""
        expected = list(plan.expected_entries(metadata, self._me))
        present = await self._present(disk, metadata.ledger_id)
        missing = list(plan.missing(expected, present))
        absent = [(item.start, item.stop - 1) for item in missing]
        for item in plan.missing(expected, absent):
            missing += await self._unreadable(disk, metadata, item)
        return sorted(missing, key=lambda item: item.start)

    async def _present(self, disk: AsyncChannel, ledger: LedgerId) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        first, more = 0, True
        while more:
            page = await disk.call(ListRuns(ledger=ledger, first=first))
            assert isinstance(page, Page)
            found.extend(RANGE_ITEM.iter_unpack(page.payload))
            if found:
                first = found[-1][1] + 1
            more = page.more
        return found

    async def _unreadable(
        self, disk: AsyncChannel, metadata: LedgerMetadata, entries: range
    ) -> list[range]:
        ledger = metadata.ledger_id
        bad: list[range] = []
        while entries:
            count = min(len(entries), _CHECK_ENTRIES_AT_ONCE)
            count = await self._work.checkpoint(
                pieces=count, disk_bytes=count * _usual_size(metadata)
            )
            some, entries = entries[:count], entries[count:]
            page = await disk.call(CheckEntries(ledger=ledger, first=some[0], last=some[-1]))
            assert isinstance(page, Page)
            bad.extend(
                range(first, last + 1) for first, last in RANGE_ITEM.iter_unpack(page.payload)
            )
            self._work.count("entries_checked", count)
        return bad

    async def close(self) -> None:
        """Cancel all work in flight; the next run resumes it."""
        tasks = [task for _disk, task in self._working.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _usual_size(metadata: LedgerMetadata) -> int:
    """The average size of an entry, in bytes; 1 where the metadata does not know the length yet."""
    entries = (metadata.last_entry or 0) + 1
    return max(1, (metadata.length or 0) // max(1, entries))
