"""Ends a ledger with loss accepted (protocol/force_close_plan.py): the loss that an operator saw and agreed to, and
no more.

1. Recovery is tried once more: what it can close needs no operator's agreement.
2. Every reachable bookie of the ledger is fenced, and asked again. If more would be lost now than was agreed to,
   nothing is closed.
3. The loss is recorded in the ledger's custom metadata (wire/metadata/loss.py): before no-op entries are written,
   else with step 5.
4. What was found behind the LAC, and the no-op entries, are written in order to every bookie of their write sets that
   takes them, one at least.
5. The ledger is closed by CAS from IN_RECOVERY.

It may be interrupted anywhere: the ledger is then in recovery, and recovery or another force close goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.client.connection.pool import Add
from bkbox.client.ledger.driver import LedgerAccess
from bkbox.client.ledger.ledger_inspection import LedgerInspection, LedgerInspector
from bkbox.errors import NothingToEndError, RecoveryAbortedError, VersionConflictError
from bkbox.metadata.versioned import Versioned
from bkbox.protocol.events import describe
from bkbox.protocol.force_close_plan import ForceClosePlan, count_of, ending, text_of
from bkbox.protocol.inspection import write_set_of
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import LossRecord, with_loss

log = logging.getLogger(__name__)

_RANGES_MAX = 1000
"""Ranges of entries that a record lists, of each kind."""


@dataclass(frozen=True, slots=True)
class ForceCloseResult:
    """The result of a force close. ``thin``: entries written on fewer bookies than the ack quorum; ``unfenced``:
    bookies that were not reached. ``record``: the loss; None if recovery closed the ledger, by this or by another
    client.
    """

    metadata: LedgerMetadata
    thin: int
    unfenced: tuple[BookieId, ...]
    record: LossRecord | None = None


class ForceClose:
    """Ends one ledger. ``recover``: the client's recovery of it."""

    def __init__(
        self,
        access: LedgerAccess,
        read: Callable[[], Awaitable[Versioned[LedgerMetadata]]],
        recover: Callable[[], Awaitable[LedgerMetadata]],
        *,
        plug: bool,
    ) -> None:
        self._access = access
        self._read = read
        self._recover = recover
        self._plug = plug

    async def plan(self) -> tuple[ForceClosePlan, LedgerInspection]:
        """The plan as of now; changes nothing."""
        return await self._inspect(await self._read())

    async def end(
        self, agreed: ForceClosePlan, at_ms: int, by: str = "", run: str = ""
    ) -> ForceCloseResult:
        """Carry out the agreed plan. ``at_ms``, ``by`` and ``run`` are for the record (LossRecord).

        Raises NothingToEndError; RecoveryAbortedError: nothing was closed, because more would be lost, or no bookie
        takes an entry; MetadataError.
        """
        if agreed.nothing_to_do:
            raise NothingToEndError(agreed.nothing_to_do)
        if agreed.closes:
            try:
                closed = await self._recover()
            except RecoveryAbortedError as error:
                log.info("ledger %d: %s", self._access.ledger_id, error)
            else:
                if not self._plug:
                    return ForceCloseResult(closed, 0, ())
        found = await self._read()
        unfenced = await self._fence(found.value)
        plan, inspection = await self._inspect(found)
        if found.value.state is LedgerState.CLOSED and not plan.holes:
            return ForceCloseResult(found.value, 0, ())  # another client was faster
        if plan.gives_up_more_than(agreed):
            raise RecoveryAbortedError(
                f"ledger {self._access.ledger_id} was not ended: more would be lost by now than was agreed to (it "
                f"would end at entry {plan.end}); run the command again to see it"
            )
        record = record_of(plan, inspection, at_ms, by, run)
        is_noted = plan.plug and bool(plan.holes)
        if is_noted:
            # First: a no-op entry that is already there looks like a found one.
            found = await self._store(with_loss(found.value, record), found.version)
        thin, length = await self._write(plan, inspection)
        if not plan.closes:
            return ForceCloseResult(found.value, thin, unfenced, record)
        noted = found.value if is_noted else with_loss(found.value, record)
        closed = replace(
            noted.with_state(LedgerState.CLOSED), last_entry=EntryId(plan.end), length=length
        )
        try:
            found = await self._store(closed, found.version)
        except RecoveryAbortedError:
            now = await self._read()
            if now.value.state is not LedgerState.CLOSED:
                raise
            return ForceCloseResult(
                now.value, thin, unfenced
            )  # another recovery was faster: its end counts
        log.warning("ledger %d was ended with loss accepted: %s", closed.ledger_id, record.text)
        return ForceCloseResult(found.value, thin, unfenced, record)

    async def _inspect(
        self, found: Versioned[LedgerMetadata]
    ) -> tuple[ForceClosePlan, LedgerInspection]:
        """An entry is a hole only if every bookie of its write set was asked for that very entry."""
        inspector = LedgerInspector(self._access, found.value, found.version)
        inspection = await inspector.inspect(whole_tail=True)
        while True:
            plan = ending(inspection.metadata, inspection.reports, plug=self._plug)
            if not await inspector.read_unread(plan.holes):
                return plan, inspection

    async def _fence(self, metadata: LedgerMetadata) -> tuple[BookieId, ...]:
        if metadata.state is LedgerState.CLOSED:
            return ()
        inspector = LedgerInspector(self._access, metadata, 0)
        bookies = sorted(metadata.bookies())
        responses = await asyncio.gather(
            *(inspector.read(bookie, NO_ENTRY, fence=True) for bookie in bookies)
        )
        # A bookie in limbo is fenced, and says EIO or 'unknown' about its last entry.
        return tuple(
            bookie
            for bookie, (status, _) in zip(bookies, responses, strict=True)
            if not isinstance(status, Code) or status is Code.EUA
        )

    # ---- entries --------------------------------------------------------------------------------

    async def _write(self, plan: ForceClosePlan, inspection: LedgerInspection) -> tuple[int, int]:
        """Write back and fill gaps, in order; returns the number of thin entries, and the ledger's length up to its
        end.
        """
        holes = {entry for hole in plan.holes for entry in hole} if plan.plug else set()
        tail = range(plan.diagnosis.lac + 1, plan.end + 1) if plan.closes else range(0)
        thin = 0
        length, length_upto = plan.metadata.length, -2
        for entry in sorted(holes.union(tail)):
            if entry in holes:
                if length_upto != entry - 1:
                    length = await self._length_before(inspection, entry)
                lac = min(plan.diagnosis.lac, entry - 1) if plan.closes else entry - 1
                data = self._access.digests.package(entry, lac, length, b"")
            else:
                found = await self._find(inspection, entry)
                length = found.length
                data = self._access.digests.package(entry, found.lac, found.length, found.payload)
            length_upto = entry
            took = await self._add(plan.metadata, entry, data)
            thin += took < plan.metadata.ack_quorum
        if plan.closes:
            length = await self._length_before(inspection, plan.end + 1)
        return thin, length

    async def _add(self, metadata: LedgerMetadata, entry: int, data: bytes) -> int:
        access = self._access
        bookies = list(dict.fromkeys(write_set_of(metadata, entry)))
        replies = await asyncio.gather(
            *(
                access.pool.add(
                    bookie, Add(access.ledger_id, entry, access.master_key, data, recovery=True)
                )
                for bookie in bookies
            )
        )
        took = sum(reply.status is Code.EOK for reply in replies)
        if took == 0:
            statuses = describe((b, r.status) for b, r in zip(bookies, replies, strict=True))
            raise RecoveryAbortedError(
                f"ledger {access.ledger_id} was not closed: entry {entry} could be written nowhere: {statuses}"
            )
        return took

    async def _find(self, inspection: LedgerInspection, entry: int) -> VerifiedEntry:
        """An entry that the inspection has seen."""
        inspector = LedgerInspector(self._access, inspection.metadata, inspection.version)
        for bookie in write_set_of(inspection.metadata, entry):
            if inspection.reports[bookie].evidence(entry) is Evidence.POSITIVE:
                _, found = await inspector.read(bookie, entry)
                if found is not None:
                    return found
        raise RecoveryAbortedError(
            f"ledger {self._access.ledger_id} was not closed: entry {entry} was there a moment ago and cannot be read"
        )

    async def _length_before(self, inspection: LedgerInspection, entry: int) -> int:
        """Payload bytes up to the last found entry before this one."""
        for before in range(entry - 1, -1, -1):
            bookies = write_set_of(inspection.metadata, before)
            if any(inspection.reports[b].evidence(before) is Evidence.POSITIVE for b in bookies):
                return (await self._find(inspection, before)).length
        return 0

    # ---- the end --------------------------------------------------------------------------------

    async def _store(self, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
        try:
            return await self._access.store.write_ledger(metadata, version)
        except VersionConflictError:
            raise RecoveryAbortedError(
                f"ledger {metadata.ledger_id} was not ended: its metadata changed meanwhile; run the command again"
            ) from None


def record_of(
    plan: ForceClosePlan, inspection: LedgerInspection, at_ms: int, by: str, run: str
) -> LossRecord:
    """The loss that carrying out the plan causes."""
    silent = {
        str(report.bookie): report.silence
        for report in inspection.reports.values()
        if not report.alive or report.limbo
    }
    return LossRecord(
        at_ms=at_ms,
        end=plan.end,
        lost=text_of(plan.acknowledged, most=_RANGES_MAX),
        dropped=text_of(plan.dropped, most=_RANGES_MAX),
        plugged=text_of(plan.holes, most=_RANGES_MAX) if plan.plug else "",
        by=by,
        run=run,
        last_add_confirmed=plan.diagnosis.lac if plan.closes else plan.end,
        lost_entries=count_of(plan.acknowledged),
        doubtful=text_of(plan.maybe_acknowledged, most=_RANGES_MAX),
        unknown_after=plan.unknown_after,
        silent=silent,
    )
