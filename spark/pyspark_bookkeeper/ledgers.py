"""Plans what a batch reads: the ledgers that the options select, and how far each goes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from bkbox.audit.selection import parse_assign, parse_ledgers, parse_select
from bkbox.base.ids import LedgerId
from bkbox.client.client import Client
from bkbox.errors import NoSuchLedgerError, UnauthorizedError
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.wire.metadata.ledger import LedgerMetadata
from pyspark_bookkeeper.dataset import Datasets
from pyspark_bookkeeper.extents import AT_ONCE, extent_of, part_of, warn_of_losses
from pyspark_bookkeeper.logs import log_extents
from pyspark_bookkeeper.offsets import ending, first_of, starting, stop_of
from pyspark_bookkeeper.options import ReadOptions
from pyspark_bookkeeper.planning import Extent

log = logging.getLogger(__name__)


async def extents(client: Client, options: ReadOptions) -> list[Extent]:
    """Extents by ledger, empty ones included. Raises ConfigError, UnauthorizedError, MetadataError, NoSuchLedgerError
    (with failOnDataLoss), UnknownEntryError; for a log as log_extents."""
    if options.log is not None:
        return await log_extents(client, options, options.log)
    starts = starting(options.starting_offsets, streaming=False)
    ends = ending(options.ending_offsets)
    assigned: Mapping[int, tuple[int, int]] = {}
    if options.assign is not None:
        assigned = parse_assign(options.assign)

    async def one(ledger: int) -> Extent | None:
        try:
            found = await extent_of(client, ledger, options)
        except NoSuchLedgerError:
            if options.fail_on_data_loss:
                raise
            log.warning("left out: ledger %d, which is not there", ledger)
            return None
        except UnauthorizedError:
            if not options.skip_unauthorized:
                raise
            log.warning("left out: ledger %d, whose password is another one", ledger)
            return None
        warn_of_losses([found])
        first = first_of(starts, ledger, found.stop)
        stop = min(stop_of(ends, ledger, found.stop), found.stop)
        if ledger in assigned:
            first, stop = assigned[ledger][0], min(assigned[ledger][1] + 1, found.stop)
        return part_of(found, first, stop)

    ledgers = sorted(assigned) if assigned else await _chosen(client, options)
    found = await bounded_gather(ledgers, one, AT_ONCE)
    return [each for each in found if each is not None]


async def _chosen(client: Client, options: ReadOptions) -> Sequence[int]:
    if options.ledgers is not None:
        return parse_ledgers(options.ledgers)
    if options.dataset is not None:
        return sorted((await Datasets(client.store).read(options.dataset)).ledgers)
    assert options.select is not None
    condition = parse_select(options.select)

    async def fits(ledger: LedgerId) -> LedgerMetadata | None:
        try:
            metadata = (await client.store.read_ledger(ledger)).value
        except NoSuchLedgerError:
            return None
        return metadata if condition(metadata) else None

    found: list[int] = []
    async for page in client.store.ledger_ranges():
        matching = await bounded_gather(page, fits, AT_ONCE)
        found += [each.ledger_id for each in matching if each is not None]
    return found
