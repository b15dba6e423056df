"""Reads single copies: entries of one ledger from one bookie, each with its digest checked.

Batch reads are used where every bookie holds every entry and the bookie supports them. Entries that a batch does not
return are read one by one, so that each copy has a result of its own. A read without a response is retried; if the
retry fails too, the copy is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bkbox.audit.bookie_timeouts import BookieTimeouts
from bkbox.audit.judgement import Fault, ranges_of
from bkbox.base.backoff import backoff_s
from bkbox.base.ids import BookieId, EntryId
from bkbox.client.connection.pool import BookiePool
from bkbox.client.connection.response_matcher import BATCH_ENTRIES_AT, Reply
from bkbox.errors import DigestError
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import DigestManager, VerifiedEntry

BATCH_BYTES = 1 << 20
SINGLES_AT_ONCE = 64

_TRIES = 3
_PAUSE_S = 0.2


@dataclass(slots=True)
class Read:
    """The result of reading some entries from one bookie. ``good``: ascending; ``size``: their bytes on the wire;
    ``withheld``: entries that the bookie does not return because the ledger is in limbo there."""

    good: list[VerifiedEntry] = field(default_factory=list)
    faults: dict[tuple[Fault, str], list[int]] = field(default_factory=dict)
    withheld: list[int] = field(default_factory=list)
    size: int = 0

    @property
    def in_limbo(self) -> bool:
        """True if the bookie reported the ledger as in limbo."""
        return bool(self.withheld)

    def fault(self, entry: int, fault: Fault, why: str) -> None:
        self.faults.setdefault((fault, why), []).append(entry)

    def fault_ranges(self) -> dict[tuple[Fault, str], list[range]]:
        return {key: ranges_of(sorted(entries)) for key, entries in self.faults.items()}


class CopyReader:
    """Reads the copies of one ledger. ``without_batches``: bookies known not to support batch reads; shared, and added
    to."""

    def __init__(
        self,
        pool: BookiePool,
        digests: DigestManager,
        timeouts: BookieTimeouts,
        without_batches: set[BookieId],
        *,
        uniform: bool,
    ) -> None:
        self._pool = pool
        self._digests = digests
        self._ledger = digests.ledger_id
        self._timeouts = timeouts
        self._without_batches = without_batches
        self._uniform = uniform

    async def read(self, bookie: BookieId, parts: Iterable[range]) -> Read:
        """Reads these entries, ascending, from the bookie. Raises nothing."""
        found = Read()
        singles: list[int] = []
        for part in parts:
            if self._uniform and len(part) > 1:
                await self._read_run(bookie, part, found)
            else:
                singles += part
        await self._read_singles(bookie, singles, found)
        return found

    async def _read_run(self, bookie: BookieId, entries: range, found: Read) -> None:
        while entries:
            batch: list[VerifiedEntry] = []
            if bookie not in self._without_batches and not self._timeouts.why_unresponsive(bookie):
                batch = await self._batch(bookie, entries, found)
            if batch:
                found.good += batch
                entries = entries[len(batch) :]
                continue
            # If the bookie supports batches, one entry stopped this one; otherwise all entries are read one by one.
            count = SINGLES_AT_ONCE if bookie in self._without_batches else 1
            await self._read_singles(bookie, entries[:count], found)
            entries = entries[count:]

    async def _batch(self, bookie: BookieId, entries: range, found: Read) -> list[VerifiedEntry]:
        reply = await self._pool.read_batch(
            bookie, self._ledger, entries.start, len(entries), BATCH_BYTES
        )
        if reply.status in (NoResponse.TIMEOUT, NoResponse.CONNECTION_LOST, Code.EBADVERSION):
            self._without_batches.add(bookie)  # as bookies without batch reads respond
        if not isinstance(reply.response, bytes):
            return []
        self._timeouts.record_response(bookie)
        found.size += len(reply.response)
        return self._digests.verify_batch(
            reply.response, BATCH_ENTRIES_AT, entries.start, len(entries)
        )

    async def _read_singles(self, bookie: BookieId, entries: Sequence[int], found: Read) -> None:
        for start in range(0, len(entries), SINGLES_AT_ONCE):
            some = entries[start : start + SINGLES_AT_ONCE]
            for entry, reply in zip(some, await self._ask(bookie, some), strict=True):
                self._add_reply(entry, reply, found)

    async def _ask(self, bookie: BookieId, entries: Sequence[int]) -> list[Reply]:
        replies: dict[int, Reply] = {}
        left = list(entries)
        for tries in range(_TRIES):
            if self._timeouts.why_unresponsive(bookie):
                break
            if tries:
                await asyncio.sleep(backoff_s(tries - 1, _PAUSE_S))
            reads = [self._pool.read(bookie, self._ledger, EntryId(entry), None) for entry in left]
            for entry, reply in zip(left, await asyncio.gather(*reads), strict=True):
                replies[entry] = reply
            reached = [replies[entry] for entry in left if isinstance(replies[entry].status, Code)]
            if reached:
                self._timeouts.record_response(bookie)
            elif left:
                self._timeouts.record_timeout(bookie, why_of(replies[left[-1]].status))
            left = [entry for entry in left if _may_change(replies[entry].status)]
            if not left:
                break
        timed_out = Reply(NoResponse.TIMEOUT)
        return [replies.get(entry, timed_out) for entry in entries]

    def _add_reply(self, entry: int, reply: Reply, found: Read) -> None:
        if reply.entry is not None:  # a bookie in limbo, too, sends what it has
            found.size += len(reply.entry)
            try:
                found.good.append(self._digests.verify(reply.entry, entry))
            except DigestError:
                found.fault(entry, Fault.CORRUPT, "the digest does not match")
            return
        status = reply.status
        if status.evidence is Evidence.NEGATIVE:
            found.fault(entry, Fault.MISSING, why_of(status))
        elif status is Code.EUNKNOWNLEDGERSTATE:
            found.withheld.append(entry)
        elif status is Code.EIO:
            found.fault(entry, Fault.UNREADABLE, why_of(status))
        else:
            found.fault(entry, Fault.UNKNOWN, why_of(status))


def why_of(status: RequestStatus) -> str:
    """The status of a response as text for the tables."""
    return f"answered {status.name}" if isinstance(status, Code) else status.value


def _may_change(status: RequestStatus) -> bool:
    """True if a retry may give another result: no response, 'not now', or a fault that may be transient."""
    return isinstance(status, NoResponse) or status in (Code.ETOOMANYREQUESTS, Code.EIO)
