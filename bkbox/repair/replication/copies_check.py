"""The check of a bookie's own copies: after an absence it compares what it has with what the metadata credits it with,
and copies what is missing here from the other bookies.

Writers go on without a bookie that is killed or stopped, or one of whose disks is out of service, as long as an ack
quorum responds: what was written meanwhile is missing here. One pass compares every ledger that names this bookie.
Ledgers that it cannot finish are compared again, with back-off:

- An open ledger that names this bookie in its last ensemble. Of its last fragment only entries up to the LAC are known,
  and the newest may be in flight: an entry counts as missing if two comparisons miss it. The ledger is followed until
  it is closed, or until entries arrive here again and none before them is missing.
- One that this bookie reports nothing about: it is in limbo, or its disk is out of service.
- One with missing entries that no other bookie returned.

A disk records when nothing was missing, and up to which change of the metadata store; a closed ledger that has not
changed since is not compared again. An entry that was lost for good and is recorded as such (wire/metadata/loss.py) is
not missing.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bkbox.base.backoff import backoff_s
from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.errors import BkboxError, JobCancelledError, MetadataError, NoSuchLedgerError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.space import GetSpace, RecordCopies, Space
from bkbox.jobs.context import JobContext
from bkbox.protocol.audit import clipped
from bkbox.protocol.events import describe
from bkbox.protocol.repair import acknowledged_entries, joined, missing
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.repair.cancellable_wait import wait_cancellable
from bkbox.repair.context import Environment
from bkbox.repair.copy.byte_semaphore import WINDOW_BYTES, ByteWindow
from bkbox.repair.copy.local_copy import copy_advice, copy_to_local
from bkbox.repair.replication.entry_inventory import runs_of
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import losses_of

_AT_ONCE = 32
_LIST_BYTES = 4_096
"""Approximate disk reads for a list of entries, in bytes."""

_LEDGERS_AT_ONCE = 1_000
_POLL_INTERVAL_S = 0.5


@dataclass(slots=True)
class _Unfinished:
    """A ledger that is compared again. ``absent``: entries that the last comparison missed; ``highest``: the last one
    that it expected and found; ``unknown``: why nothing was learnt.
    """

    absent: Sequence[range] = ()
    highest: int = -1
    unknown: str = ""
    tries: int = 0
    due_s: float = 0.0

    @property
    def is_whole(self) -> bool:
        return not (self.unknown or self.absent)


class CopiesCheck:
    """One check. ``unchanged_since``: a closed ledger that was last written by this change of the metadata store, or an
    earlier one, is not compared; 0: all are.
    """

    def __init__(self, work: JobContext, environment: Environment, unchanged_since: int) -> None:
        self._work = work
        self._environment = environment
        self._me = environment.me
        self._store = environment.store
        self._client = environment.client
        self._unchanged_since = unchanged_since
        self._copying = asyncio.Semaphore(environment.order.ledgers_at_once)
        self._window = ByteWindow(WINDOW_BYTES)
        self._left: dict[LedgerId, _Unfinished] = {}
        self._short: dict[LedgerId, int] = {}

    @property
    def left(self) -> int:
        """The number of ledgers that have to be compared again."""
        return len(self._left)

    @property
    def is_complete(self) -> bool:
        """True if nothing is missing; of open ledgers, up to their LAC."""
        return all(each.is_whole for each in self._left.values())

    async def compare(self, ledgers: Sequence[int]) -> None:
        """Compare these ledgers once. Raises JobCancelledError."""
        await bounded_gather(map(LedgerId, ledgers), self._once, _AT_ONCE)

    async def compare_due(self) -> None:
        """Compare the ledgers that are due again, and set the job's step. Raises JobCancelledError."""
        now_s = self._environment.monotonic_s()
        await self.compare([each for each, state in self._left.items() if state.due_s <= now_s])
        absent = sum(bool(each.absent) for each in self._left.values())
        unknown = {ledger: each.unknown for ledger, each in self._left.items() if each.unknown}
        followed = sum(each.is_whole for each in self._left.values())
        messages = []
        if absent:
            messages.append(f"entries of {counted(absent, 'ledger', 'are')} missing here")
        if unknown:
            first, why = min(unknown.items())
            messages.append(
                f"{counted(len(unknown), 'ledger')} not known, as ledger {first}: {why}"
            )
        if followed:
            messages.append(f"following {counted(followed, 'open ledger')}")
        self._work.set_step("; ".join(messages), standing_by=self.is_complete)

    # ---- one ledger -----------------------------------------------------------------------------

    async def _once(self, ledger: LedgerId) -> None:
        before = self._left.get(ledger)
        after = await self._compared(ledger, before)
        if before is None:
            self._work.add_progress(ledgers=1)
        if after is None:
            self._left.pop(ledger, None)
            self._count_short(ledger, 0)
            return
        if before is not None and (before.absent, before.highest, before.unknown) == (
            after.absent,
            after.highest,
            after.unknown,
        ):
            after.tries = before.tries + 1
        order = self._environment.order
        wait_s = backoff_s(
            after.tries, order.retry_initial_s, order.retry_max_s, self._environment.rng
        )
        after.due_s = self._environment.monotonic_s() + wait_s
        self._left[ledger] = after

    async def _compared(self, ledger: LedgerId, before: _Unfinished | None) -> _Unfinished | None:
        """One comparison, with its errors; None once the ledger needs no other."""
        try:
            after = await self._compare(ledger, before)
        except JobCancelledError:
            raise
        except NoSuchLedgerError:
            after = None
        except MetadataError as error:
            if not error.may_have_taken_effect:  # this is about the ledger, not about the store
                self._work.block(ledger, str(error), "see what is stored for it")
                return None
            return _unknown(before, str(error))
        except BkboxError as error:
            return _unknown(before, str(error))
        if after is None or not after.absent:
            self._work.unblock(ledger)
        return after

    async def _compare(self, ledger: LedgerId, before: _Unfinished | None) -> _Unfinished | None:
        await self._work.checkpoint(metadata_calls=1)
        found = await self._store.read_ledger(ledger, linearizable=before is not None)
        metadata, lac = found.value, -1
        is_closed = metadata.state is LedgerState.CLOSED
        if self._me not in metadata.bookies():
            return None
        if is_closed and 0 < found.change <= self._unchanged_since:
            return None
        if self._may_grow(metadata):
            lac = await self._lac(metadata)
            await self._work.checkpoint(metadata_calls=1)
            metadata = (await self._store.read_ledger(ledger, linearizable=True)).value
        expected = list(acknowledged_entries(metadata, self._me, lac))
        await self._work.checkpoint(disk_bytes=_LIST_BYTES)
        listed = await self._client.pool.list_entries(self._me, ledger)
        if not isinstance(listed, Availability) and listed.evidence is not Evidence.NEGATIVE:
            return _unknown(before, describe([(self._me, listed)]))
        present = runs_of(listed) if isinstance(listed, Availability) else []
        absent = list(missing(expected, present))
        certain = absent
        if self._may_grow(metadata):
            twice = () if before is None else before.absent
            certain = [part for each in twice for part in clipped(absent, each)]
        left = [*missing(absent, _inclusive(certain)), *await self._copy(metadata, certain)]
        left.sort(key=lambda each: each.start)
        *_, there = range(-1, 0), *missing(expected, _inclusive(left))
        highest = there.stop - 1
        if not self._may_grow(metadata):
            return _Unfinished(left, highest) if left else None
        if not absent and before is not None and before.is_whole and highest > before.highest:
            return None  # its writer sends entries here again
        return _Unfinished(left, highest)

    def _may_grow(self, metadata: LedgerMetadata) -> bool:
        """True if this bookie may have to hold entries that are not settled yet."""
        if metadata.state is LedgerState.OPEN:
            return self._me in metadata.last_fragment.ensemble
        return metadata.state is LedgerState.IN_RECOVERY

    async def _lac(self, metadata: LedgerMetadata) -> int:
        """The LAC of an open ledger; -1 where entries prove nothing, as there is no password."""
        if metadata.state is not LedgerState.OPEN or None in (
            metadata.digest_type,
            metadata.password,
        ):
            return -1
        reader = await self._client.open_ledger(metadata.ledger_id, None, recovery=False)
        return await reader.read_explicit_last_add_confirmed()

    async def _copy(self, metadata: LedgerMetadata, entries: Sequence[range]) -> list[range]:
        """Copy entries here; returns those that are still missing."""
        ledger, count = metadata.ledger_id, sum(map(len, entries))
        self._count_short(ledger, count)
        if not entries:
            return []
        async with self._copying:
            result = await copy_to_local(
                self._me,
                self._client.pool,
                metadata,
                entries,
                self._work,
                self._window,
                self._environment.order.entries_in_flight,
            )
        failed = set(result.failed)
        self._work.count("copies_mended", count - len(failed))
        if losses_of(metadata):
            failed -= result.nowhere
        self._count_short(ledger, len(failed))
        if failed:
            reason = f"{counted(len(failed), 'entry', 'are')} missing here: {result.describe()}"
            self._work.block(ledger, reason, copy_advice(ledger))
        return list(joined(range(entry, entry + 1) for entry in sorted(failed)))

    def _count_short(self, ledger: LedgerId, count: int) -> None:
        before = self._short.pop(ledger, 0)
        if count:
            self._short[ledger] = count
        if count != before:
            self._work.count("copies_short", count - before)


def _unknown(before: _Unfinished | None, why: str) -> _Unfinished:
    return _Unfinished(() if before is None else before.absent, unknown=why)


def _inclusive(ranges: Sequence[range]) -> list[tuple[int, int]]:
    return [(each.start, each.stop - 1) for each in ranges]


async def check_copies(
    work: JobContext, environment: Environment, arguments: dict[str, str]
) -> None:
    """The job. ``ledgers``: only these; ``all``: also closed ones that were complete and have not changed since.

    It ends when no ledger has to be compared again; or once a disk came into service meanwhile: the next one begins
    anew.
    """
    disks = dict(environment.disks)
    record = await environment.store.read_disk_record(environment.me)
    check = CopiesCheck(work, environment, 0 if arguments else await _complete_up_to(disks))
    work.set_step("comparing what is here with what the metadata credits this bookie with")
    if "ledgers" in arguments:
        ledgers = array("q", map(int, arguments["ledgers"].split(",")))
    else:
        ledgers = array("q")
        async for page in environment.store.ledger_ranges():
            ledgers.extend(page)
    work.expect(ledgers=len(ledgers))
    for start in range(0, len(ledgers), _LEDGERS_AT_ONCE):
        await check.compare(ledgers[start : start + _LEDGERS_AT_ONCE])
    recorded = "ledgers" in arguments
    while disks == environment.disks:
        if check.is_complete and not recorded:
            # All reads of this check saw at least the changes before this start of the bookie, which wrote the record.
            await _record(environment, 0 if record is None else record.change)
            recorded = True
        if not check.left:
            return
        await check.compare_due()
        await wait_cancellable(work, asyncio.sleep(_POLL_INTERVAL_S))


async def _complete_up_to(disks: Mapping[str, AsyncChannel]) -> int:
    """The change of the metadata store up to which every disk had all copies; 0: not known."""
    found = []
    for disk in disks.values():
        try:
            space = await disk.call(GetSpace())
        except BkboxError:
            return 0
        assert isinstance(space, Space)
        found.append(int(space.values["copies_change"]))
    return min(found, default=0)


async def _record(environment: Environment, change: int) -> None:
    now_ms = environment.wall_ms()
    for disk in environment.disks.values():
        with suppress(BkboxError):  # the next check is longer
            await disk.call(RecordCopies(now_ms=now_ms, change=change))
