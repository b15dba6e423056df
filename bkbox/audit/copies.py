"""Reads single copies: entries of one ledger from one bookie, each with its digest checked.

Runs of entries come in batches where every bookie holds every entry, and where the bookie knows batch reads; what a
batch does not bring is read alone, so that each copy has an answer of its own. What nobody answered is asked for
again, and is unknown if that does not help.
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
from bkbox.protocol.events import Answer, NoAnswer
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import DigestManager, VerifiedEntry

BATCH_BYTES = 1 << 20
SINGLES_AT_ONCE = 64

_TRIES = 3
_PAUSE_S = 0.2


@dataclass(slots=True)
class Read:
    """What came of reading some entries from one bookie. ``good``: ascending; ``size``: bytes of these as they came;
    ``withheld``: entries that it did not give because it is in limbo."""

    good: list[VerifiedEntry] = field(default_factory=list)
    faults: dict[tuple[Fault, str], list[int]] = field(default_factory=dict)
    withheld: list[int] = field(default_factory=list)
    size: int = 0

    @property
    def in_limbo(self) -> bool:
        """Whether it said so."""
        return bool(self.withheld)

    def fault(self, entry: int, fault: Fault, why: str) -> None:
        self.faults.setdefault((fault, why), []).append(entry)

    def fault_ranges(self) -> dict[tuple[Fault, str], list[range]]:
        return {key: ranges_of(sorted(entries)) for key, entries in self.faults.items()}


class CopyReader:
    """Of one ledger. ``without_batches``: the bookies that are known not to know batch reads; shared, and added to."""

    def __init__(
        self,
        pool: BookiePool,
        digests: DigestManager,
        patience: BookieTimeouts,
        without_batches: set[BookieId],
        *,
        uniform: bool,
    ) -> None:
        self._pool = pool
        self._digests = digests
        self._ledger = digests.ledger_id
        self._patience = patience
        self._without_batches = without_batches
        self._uniform = uniform

    async def read(self, bookie: BookieId, parts: Iterable[range]) -> Read:
        """These entries, ascending. Raises nothing."""
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
            if bookie not in self._without_batches and not self._patience.why_mute(bookie):
                batch = await self._batch(bookie, entries, found)
            if batch:
                found.good += batch
                entries = entries[len(batch) :]
                continue
            # What is in the way is one entry, where the bookie knows batches; else all are read alone.
            count = SINGLES_AT_ONCE if bookie in self._without_batches else 1
            await self._read_singles(bookie, entries[:count], found)
            entries = entries[count:]

    async def _batch(self, bookie: BookieId, entries: range, found: Read) -> list[VerifiedEntry]:
        reply = await self._pool.read_batch(
            bookie, self._ledger, entries.start, len(entries), BATCH_BYTES
        )
        if reply.answer in (NoAnswer.TIMEOUT, NoAnswer.CONNECTION_LOST, Code.EBADVERSION):
            self._without_batches.add(bookie)  # as of those that do not know batch reads
        if not isinstance(reply.response, bytes):
            return []
        self._patience.answered(bookie)
        found.size += len(reply.response)
        return self._digests.verify_batch(
            reply.response, BATCH_ENTRIES_AT, entries.start, len(entries)
        )

    async def _read_singles(self, bookie: BookieId, entries: Sequence[int], found: Read) -> None:
        for start in range(0, len(entries), SINGLES_AT_ONCE):
            some = entries[start : start + SINGLES_AT_ONCE]
            for entry, reply in zip(some, await self._ask(bookie, some), strict=True):
                self._take(entry, reply, found)

    async def _ask(self, bookie: BookieId, entries: Sequence[int]) -> list[Reply]:
        replies: dict[int, Reply] = {}
        left = list(entries)
        for tries in range(_TRIES):
            if self._patience.why_mute(bookie):
                break
            if tries:
                await asyncio.sleep(backoff_s(tries - 1, _PAUSE_S))
            asked = [self._pool.read(bookie, self._ledger, EntryId(entry), None) for entry in left]
            for entry, reply in zip(left, await asyncio.gather(*asked), strict=True):
                replies[entry] = reply
            reached = [replies[entry] for entry in left if isinstance(replies[entry].answer, Code)]
            if reached:
                self._patience.answered(bookie)
            elif left:
                self._patience.unanswered(bookie, why_of(replies[left[-1]].answer))
            left = [entry for entry in left if _may_change(replies[entry].answer)]
            if not left:
                break
        mute = Reply(NoAnswer.TIMEOUT)
        return [replies.get(entry, mute) for entry in entries]

    def _take(self, entry: int, reply: Reply, found: Read) -> None:
        if reply.entry is not None:  # also where a bookie in limbo sends what it has
            found.size += len(reply.entry)
            try:
                found.good.append(self._digests.verify(reply.entry, entry))
            except DigestError:
                found.fault(entry, Fault.CORRUPT, "the digest does not match")
            return
        answer = reply.answer
        if answer.evidence is Evidence.NEGATIVE:
            found.fault(entry, Fault.MISSING, why_of(answer))
        elif answer is Code.EUNKNOWNLEDGERSTATE:
            found.withheld.append(entry)
        elif answer is Code.EIO:
            found.fault(entry, Fault.UNREADABLE, why_of(answer))
        else:
            found.fault(entry, Fault.UNKNOWN, why_of(answer))


def why_of(answer: Answer) -> str:
    """For the tables."""
    return f"answered {answer.name}" if isinstance(answer, Code) else answer.value


def _may_change(answer: Answer) -> bool:
    """Whether it makes sense to ask once more: nothing was said, or 'not now', or what could be a passing fault."""
    return isinstance(answer, NoAnswer) or answer in (Code.ETOOMANYREQUESTS, Code.EIO)
