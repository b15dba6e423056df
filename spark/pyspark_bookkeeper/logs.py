"""Plans what is read of a log: its ledgers in order, from the beginning of the log up to what is settled.

An open ledger may still grow, so ledgers after it are not read before it is closed. Reading begins and ends at an entry
of one ledger, ``{"7": 100}``, or at a time: that of the records, which is assumed to grow with them.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from bkbox.base.ids import MAX_ID, LedgerId
from bkbox.client.client import Client
from bkbox.client.log.entry import decode
from bkbox.client.log.ledger_list import LedgerList
from bkbox.client.log.stored import StoredList
from bkbox.errors import ConfigError, NoSuchLedgerError, OperatorError
from bkbox.repair.bounded_gather import bounded_gather
from pyspark_bookkeeper.extents import AT_ONCE, extent_of, part_of, warn_of_losses
from pyspark_bookkeeper.offsets import ending, first_of, starting, stop_of
from pyspark_bookkeeper.options import ReadOptions
from pyspark_bookkeeper.planning import Extent

log = logging.getLogger(__name__)

Place = tuple[int, int]
"""A ledger and one of its entries."""


async def log_extents(client: Client, options: ReadOptions, name: str) -> list[Extent]:
    """The extents of a batch. Raises ConfigError, OperatorError (a time that the log does not reach), as
    ``list_and_extents``."""
    found, there = await list_and_extents(client, options, name)
    start = end = None
    if options.starting_timestamp is not None:
        start = await place_of(client, there, options, options.starting_timestamp)
        if start is None:
            check_reached(options, name)
            return []
    else:
        start = _named(
            "startingOffsets", starting(options.starting_offsets, streaming=False), found
        )
    if options.ending_timestamp is not None:
        end = await place_of(client, there, options, options.ending_timestamp)
    else:
        end = _named("endingOffsets", ending(options.ending_offsets), found)
    return between(there, start, end)


async def list_and_extents(
    client: Client, options: ReadOptions, name: str
) -> tuple[LedgerList, list[Extent]]:
    """The log, and its part that can be read now. Raises NoSuchLogError, NoSuchLedgerError (with failOnDataLoss), as
    extent_of."""
    found = (await StoredList(client.store, name).read()).value

    async def one(ledger: LedgerId) -> Extent | None:
        try:
            return await extent_of(client, ledger, options)
        except NoSuchLedgerError:
            if options.fail_on_data_loss:
                raise
            log.warning("left out: ledger %d of log %s, which is not there", ledger, name)
            return None

    for ledger in found.lost:
        log.warning("ledger %d of log %s was lost", ledger, name)
    left = [ledger for ledger in found.ledgers if ledger >= found.start.ledger_id]
    extents: list[Extent] = []
    for each in await bounded_gather(left, one, AT_ONCE):
        if each is None:
            continue
        extents.append(each)
        if not each.is_final:
            break
    warn_of_losses(extents)
    return found, between(extents, (found.start.ledger_id, found.start.entry_id), None)


def between(extents: Sequence[Extent], start: Place | None, end: Place | None) -> list[Extent]:
    """The parts of the extents from ``start`` to before ``end``; None: no bound."""
    found = []
    for each in extents:
        first, stop = each.first, each.stop
        if start is not None and each.ledger_id <= start[0]:
            first = max(first, start[1]) if each.ledger_id == start[0] else stop
        if end is not None and each.ledger_id >= end[0]:
            stop = min(stop, end[1]) if each.ledger_id == end[0] else first
        found.append(part_of(each, first, stop))
    return found


async def place_of(
    client: Client, extents: Sequence[Extent], options: ReadOptions, when_ms: int
) -> Place | None:
    """The first entry with a record of this time, in ms since 1970, or a later one; None: there is none yet. Raises as
    LedgerReader.read_entry."""
    starts = list(accumulate((each.stop - each.first for each in extents), initial=0))

    def place(index: int) -> Place:
        at = bisect_right(starts, index) - 1
        return extents[at].ledger_id, extents[at].first + index - starts[at]

    async def time_at(index: int) -> int | None:
        """The newest time in the first entry from here on that has records; None: there is none."""
        for each in range(index, starts[-1]):
            ledger, entry = place(each)
            reader = await client.open_ledger(ledger, options.password_of(ledger), recovery=False)
            await reader.read_explicit_last_add_confirmed()
            records = decode((await reader.read_entry(entry)).payload).records
            if records:
                return max(record.timestamp_ms for record in records)
        return None

    low, high = 0, starts[-1]
    while low < high:
        middle = (low + high) // 2
        time = await time_at(middle)
        if time is None or time >= when_ms:
            high = middle
        else:
            low = middle + 1
    return None if await time_at(low) is None else place(low)


def check_reached(options: ReadOptions, name: str) -> None:
    """Raises OperatorError if, by the options, a log without a record at or after ``startingTimestamp`` is an error."""
    if options.timestamp_strategy == "error":
        raise OperatorError(
            f"option startingTimestamp: the log {name} has no record of {options.starting_timestamp} ms since 1970 or "
            f"later. With startingOffsetsByTimestampStrategy = latest reading begins at its end"
        )


def _named(option: str, offsets: Mapping[int, int] | int, found: LedgerList) -> Place | None:
    """The one place that was named; None: no bound."""
    if isinstance(offsets, int):
        return None
    ledger = ledger_named(option, offsets, found)
    if option == "startingOffsets":
        return ledger, first_of(offsets, ledger, 0)
    return ledger, stop_of(offsets, ledger, MAX_ID)


def ledger_named(option: str, offsets: Mapping[int, int], found: LedgerList) -> int:
    """Raises ConfigError unless exactly one ledger is named, and the log has it."""
    if len(offsets) != 1:
        raise ConfigError([f"option {option} of a log names one ledger, and an entry of it"])
    (ledger,) = offsets
    if ledger not in found.ledgers:
        raise ConfigError([f"option {option}: ledger {ledger} is not in the log"])
    return ledger
