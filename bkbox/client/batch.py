"""Reading several entries with one request, where every bookie of the ensemble holds every entry.

A bookie answers with as many entries as it has without a gap, and as fit; each is verified. Where it
gives none that is right the next bookie is asked, and if no bookie does there are single reads,
which know how to find out why. A bookie that lost its connection over a batch read, as those do
that do not know them, or is slow, is not asked for one by this handle again; neither it nor anybody
else is judged by that. Source: BatchedReadOp.java.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bkbox.client.driver import LedgerAccess
from bkbox.client.matching import BATCH_ENTRIES_AT, Reply
from bkbox.ids import BookieId, EntryId
from bkbox.protocol.events import NoAnswer
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.ledger import LedgerMetadata


class BatchReads:
    """The batch reads of one handle."""

    def __init__(self, access: LedgerAccess) -> None:
        self._access = access
        self._turn = 0
        self._without: set[BookieId] = set()

    def help_with(self, metadata: LedgerMetadata) -> bool:
        """Whether it makes sense to ask at all."""
        return (
            self._access.options.batch_reads
            and metadata.ensemble_size == metadata.write_quorum
            and not self._without.issuperset(metadata.last_fragment.ensemble)
        )

    async def read(
        self, metadata: LedgerMetadata, first: EntryId, max_count: int, max_bytes: int
    ) -> list[VerifiedEntry]:
        """Entries from ``first`` on, at most ``max_count``; none if no bookie gave the first one."""
        ensemble = metadata.fragment_of(first).ensemble
        starts = (each.first_entry for each in metadata.fragments if each.first_entry > first)
        count = min(max_count, next(starts, first + max_count) - first)
        self._turn += 1  # so that batches under way at the same time come from different bookies
        for step in range(len(ensemble)):
            bookie = ensemble[(self._turn + step) % len(ensemble)]
            if bookie not in self._without and (
                entries := await self._ask(bookie, first, count, max_bytes)
            ):
                return entries
        return []

    async def _ask(
        self, bookie: BookieId, first: EntryId, count: int, max_bytes: int
    ) -> list[VerifiedEntry]:
        asked = self._access.pool.read_batch(
            bookie, self._access.ledger_id, first, count, max_bytes
        )
        reply = Reply(NoAnswer.TIMEOUT)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._access.options.speculative_read_s):
                reply = await asked
        if reply.answer in (NoAnswer.TIMEOUT, NoAnswer.CONNECTION_LOST):
            self._without.add(bookie)
        if not isinstance(reply.response, bytes):
            return []
        return self._access.digests.verify_batch(reply.response, BATCH_ENTRIES_AT, first, count)
