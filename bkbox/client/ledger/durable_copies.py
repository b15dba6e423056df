"""Finds which copies of a ledger's entries are on disk, and not only in the memory of a host.

A bookie that acknowledges before it syncs (``ack_after = write``, a Java bookie without a journal) can lose
acknowledged entries with its host. So each bookie is asked for its list of entries, and then, on the same connection,
to make everything durable. Once it has confirmed that, what it had listed is on disk. It was there all the time, as
the host of a connection that lives has not failed. bkbox's bookies confirm it in the response to a persisted read of
the LAC, Java's in the response to a force. A bookie that gives no list (Java's DbLedgerStorage) counts for nothing.
"""

from __future__ import annotations

import asyncio

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.base.text import counted
from bkbox.client.ledger.driver import LedgerAccess
from bkbox.errors import NotDurableError
from bkbox.protocol.events import NoResponse
from bkbox.protocol.inspection import Report, Reports, covered_upto
from bkbox.wire import v3
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerMetadata


async def durable_upto(access: LedgerAccess, metadata: LedgerMetadata, end: EntryId) -> EntryId:
    """Make the entries durable on the bookies; returns the last entry, ``end`` at most, up to which each is then on
    the disks of an ack quorum.
    """
    return covered_upto(metadata, await _durable(access, metadata), end, metadata.ack_quorum)


async def must_be_durable(access: LedgerAccess, metadata: LedgerMetadata, end: EntryId) -> None:
    """The same; raises NotDurableError if the result is less than ``end``."""
    reports = await _durable(access, metadata)
    upto = covered_upto(metadata, reports, end, metadata.ack_quorum)
    if upto < end:
        silent = [
            f"{each.bookie} {each.silence}" for each in reports.values() if each.listed is None
        ]
        raise NotDurableError(
            f"entry {upto + 1} of ledger {metadata.ledger_id} is not known to be on the disks of "
            f"{counted(metadata.ack_quorum, 'bookie')}"
            + (f": {', '.join(silent)}" if silent else "")
        )


async def _durable(access: LedgerAccess, metadata: LedgerMetadata) -> Reports:
    bookies = sorted(metadata.bookies())
    found = await asyncio.gather(*(_ask(access, bookie) for bookie in bookies))
    return dict(zip(bookies, found, strict=True))


async def _ask(access: LedgerAccess, bookie: BookieId) -> Report:
    """The entries on the bookie's disk, as its list; empty if that is not certain."""
    pool, ledger = access.pool, access.ledger_id
    listing = await pool.listing(bookie, ledger)
    if listing.available is None:
        return Report(bookie, listing.status)
    reply = await pool.read_lac(bookie, ledger, persisted=True)
    response = reply.response
    if not isinstance(response, v3.ReadLacResponse) or response.durable_entry is None:
        reply = await pool.force(bookie, ledger)
        if reply.status is not Code.EOK:
            return Report(bookie, reply.status)
    if reply.connection != listing.connection:
        return Report(bookie, NoResponse.CONNECTION_LOST)
    return Report(bookie, Code.EOK, listed=listing.available, last=NO_ENTRY)
