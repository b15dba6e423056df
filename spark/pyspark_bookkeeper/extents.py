"""Determines how far ledgers can be read."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from bkbox.base.ids import EntryId
from bkbox.client.client import Client
from bkbox.wire.metadata.ledger import LedgerState
from bkbox.wire.metadata.loss import loss_warnings
from pyspark_bookkeeper.options import ReadOptions
from pyspark_bookkeeper.planning import Extent

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Maximum number of ledgers that are looked up at the same time."""


async def extent_of(client: Client, ledger: int, options: ReadOptions) -> Extent:
    """The readable part of a ledger. Raises UnauthorizedError, MetadataError, NoSuchLedgerError, UnknownEntryError (an
    open ledger whose bookies do not report its LAC)."""
    reader = await client.open_ledger(ledger, options.password_of(ledger), recovery=False)
    metadata = reader.metadata
    if metadata.state is not LedgerState.CLOSED:
        last = await reader.read_explicit_last_add_confirmed()
        metadata = reader.metadata
    cuts = tuple(int(fragment.first_entry) for fragment in metadata.fragments)
    if metadata.state is LedgerState.CLOSED:
        losses = tuple(loss_warnings(metadata))
        return Extent(ledger, 0, metadata.last_entry + 1, metadata.length, cuts, True, losses)
    size = (await reader.read_entry(EntryId(last))).length if last >= 0 else 0
    return Extent(ledger, 0, last + 1, size, cuts)


def warn_of_losses(extents: Iterable[Extent]) -> None:
    """Logs what the ledgers do not hold; called where a query is planned, as an empty ledger is never read."""
    for extent in extents:
        for loss in extent.losses:
            log.warning("%s", loss)


def part_of(whole: Extent, first: int, stop: int) -> Extent:
    """A part, with its share of the bytes."""
    if not 0 <= first < stop:
        return Extent(whole.ledger_id, first, first, 0)
    share = (stop - first) / max(whole.stop - whole.first, 1)
    return Extent(whole.ledger_id, first, stop, int(whole.size * share), whole.cuts)
