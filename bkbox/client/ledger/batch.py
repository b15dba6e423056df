"""Reading several entries with one request, where every bookie of the ensemble holds every entry.

A bookie responds with as many entries as it has without a gap, and as fit; each is verified. If it gives none that is
valid the next bookie is asked. If no bookie does, single reads follow, which can find out why. A bookie that lost its
connection over a batch read, as a bookie that does not know them does, or that is slow, gets no further batch read
from this handle. Neither counts against any bookie's health. Source: BatchedReadOp.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import TypeVar

from bkbox.base.ids import BookieId, EntryId
from bkbox.client.connection.response_matcher import BATCH_ENTRIES_AT, Reply
from bkbox.client.ledger.driver import LedgerAccess
from bkbox.client.ledger.read_order import ReadOrder
from bkbox.protocol.events import NoResponse
from bkbox.wire.digest import IN_KERNEL, EntryColumns, VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata

Found = TypeVar("Found", bound=Sized)
Verify = Callable[[bytes, int, int, int], Found]
"""A batch function of DigestManager."""


class BatchReads:
    """The batch reads of one handle."""

    def __init__(self, access: LedgerAccess, order: ReadOrder) -> None:
        self._access = access
        self._order = order
        self._round = 0
        self._without: set[BookieId] = set()

    def help_with(self, metadata: LedgerMetadata) -> bool:
        """True if batch reads can help with this ledger."""
        return (
            self._access.options.batch_reads
            and metadata.ensemble_size == metadata.write_quorum
            and not self._without.issuperset(metadata.last_fragment.ensemble)
        )

    async def read(
        self, metadata: LedgerMetadata, first: EntryId, max_count: int, max_bytes: int
    ) -> list[VerifiedEntry]:
        """Entries from ``first`` on, at most ``max_count``; none if no bookie gave the first one."""
        verify = self._access.digests.verify_batch
        return await self._read(metadata, first, max_count, max_bytes, verify) or []

    async def read_columns(
        self, metadata: LedgerMetadata, first: EntryId, max_count: int, max_bytes: int
    ) -> EntryColumns | None:
        """The same as columns; None also if columns cannot be made."""
        if self._access.digests.digest_type not in IN_KERNEL or not self.help_with(metadata):
            return None
        verify = self._access.digests.verify_columns
        return await self._read(metadata, first, max_count, max_bytes, verify)

    async def _read(
        self,
        metadata: LedgerMetadata,
        first: EntryId,
        max_count: int,
        max_bytes: int,
        verify: Verify[Found],
    ) -> Found | None:
        ensemble = metadata.fragment_of(first).ensemble
        starts = (each.first_entry for each in metadata.fragments if each.first_entry > first)
        count = min(max_count, next(starts, first + max_count) - first)
        self._round += 1  # so that batches in flight at the same time come from different bookies
        turn = self._round % len(ensemble)
        for bookie in self._order(ensemble[turn:] + ensemble[:turn]):
            if bookie not in self._without and (
                entries := await self._ask(bookie, first, count, max_bytes, verify)
            ):
                return entries
        return None

    async def _ask(
        self, bookie: BookieId, first: EntryId, count: int, max_bytes: int, verify: Verify[Found]
    ) -> Found | None:
        request = self._access.pool.read_batch(
            bookie, self._access.ledger_id, first, count, max_bytes
        )
        reply = Reply(NoResponse.TIMEOUT)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._access.options.speculative_read_s):
                reply = await request
        if reply.status in (NoResponse.TIMEOUT, NoResponse.CONNECTION_LOST):
            self._without.add(bookie)
        if reply.status is NoResponse.TIMEOUT:
            self._access.pool.health.slow(bookie)
        if not isinstance(reply.response, bytes):
            return None
        return verify(reply.response, BATCH_ENTRIES_AT, first, count)
