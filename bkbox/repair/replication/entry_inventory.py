"""Asks bookies which entries of a ledger they have, for an audit of it (protocol/audit.py).

A bookie is asked for its list of entries. A bookie that gives none (Java's DbLedgerStorage does not even respond) is
asked for the first and the last entry of each fragment that it has to hold, as Java's checker does. A denial of
either counts as a denial of the fragment. A time-out of a read, a lost connection, an error or limbo is silence,
never a 'no'.

Source: LedgerChecker.java (verifyLedgerFragment).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator

from bkbox.base.ids import BookieId, EntryId
from bkbox.client.connection.pool import BookiePool
from bkbox.protocol.audit import BookieReport, NoReport, clipped, final_fragments
from bkbox.protocol.events import NoResponse
from bkbox.protocol.repair import expected_entries
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata

_CONCURRENCY = 8

_MAY_READ = frozenset({Code.EBADREQ, Code.EIO, NoResponse.TIMEOUT})
"""Responses of a bookie whose storage cannot list entries, or whose list does not fit into a frame. A bookie in
trouble gives them too; reads tell which it is.
"""

_NO_LIST_S = 600.0
"""Seconds for which a bookie that gives no lists is not asked for one."""


class EntryInventory:
    """The entries that the bookies of a cluster have."""

    def __init__(self, pool: BookiePool) -> None:
        self._pool = pool
        self._lists_nothing_until: dict[BookieId, float] = {}

    async def ask(
        self, metadata: LedgerMetadata, registered: Collection[BookieId]
    ) -> dict[BookieId, BookieReport]:
        """Each ensemble member's report of its entries; a member that is not ``registered`` is gone. Raises nothing."""
        members = sorted(metadata.bookies())
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(bookie: BookieId) -> BookieReport:
            if bookie not in registered:
                return NoReport.UNREGISTERED
            async with slots:
                return await self._of(bookie, metadata)

        report = await asyncio.gather(*map(one, members))
        return dict(zip(members, report, strict=True))

    def given(self, bookie: BookieId, entries: Iterable[range]) -> None:
        """Record that the bookie was sent copies of these entries and stored them. Correctness does not depend on it:
        lists show them at once.
        """

    async def _of(self, bookie: BookieId, metadata: LedgerMetadata) -> BookieReport:
        expected = list(expected_entries(metadata, bookie))
        if not expected:
            return ()
        now_s = asyncio.get_running_loop().time()
        if now_s < self._lists_nothing_until.get(bookie, now_s):
            return await self._by_reads(bookie, metadata, expected)
        listing = await self._pool.list_entries(bookie, metadata.ledger_id)
        if isinstance(listing, Availability):
            return runs_of(listing)
        if listing.evidence is Evidence.NEGATIVE:
            return ()
        if listing not in _MAY_READ:
            return NoReport.SILENT
        report = await self._by_reads(bookie, metadata, expected)
        if listing is not Code.EIO and report is not NoReport.SILENT:
            self._lists_nothing_until[bookie] = now_s + _NO_LIST_S
        return report

    async def _by_reads(
        self, bookie: BookieId, metadata: LedgerMetadata, expected: list[range]
    ) -> BookieReport:
        has: list[tuple[int, int]] = []
        for _, entries in final_fragments(metadata):
            parts = clipped(expected, entries)
            if not parts:
                continue
            first, last = parts[0].start, parts[-1].stop - 1
            evidence = await asyncio.gather(
                *(self._read(bookie, metadata, entry) for entry in {first: 0, last: 0})
            )
            if Evidence.UNKNOWN in evidence:
                return NoReport.SILENT
            if Evidence.NEGATIVE not in evidence:
                has += [(part.start, part.stop - 1) for part in parts]
        return has

    async def _read(self, bookie: BookieId, metadata: LedgerMetadata, entry: int) -> Evidence:
        reply = await self._pool.read(bookie, metadata.ledger_id, EntryId(entry), None)
        return reply.status.evidence


def runs_of(available: Availability) -> list[tuple[int, int]]:
    """The entries of a list as disjoint ranges (first, last), ascending."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(_runs(available)):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _runs(available: Availability) -> Iterator[tuple[int, int]]:
    for group in available.groups:
        for run in range(group.runs):
            start = group.first_start + run * group.period
            yield start, start + group.size - 1
