"""Position of a stream in its source, and how far it can go: offsets are dictionaries that Spark keeps as JSON.

``{"7": 100}`` is for listed ledgers: the next entry of each. They are followed side by side.

``{"ledger": 7, "entry": 100}`` is for a log: the next entry; everything before it was read. A log is followed from
ledger to ledger: an open one may still grow, so ledgers after it are not read before it is closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from bkbox.audit.selection import parse_ledgers
from bkbox.client.client import Client
from bkbox.client.log.stored import StoredList
from bkbox.errors import ConfigError, NoSuchEntryError, NoSuchLedgerError, UnauthorizedError
from bkbox.repair.bounded_gather import bounded_gather
from pyspark_bookkeeper.extents import AT_ONCE, extent_of, part_of, warn_of_losses
from pyspark_bookkeeper.logs import check_reached, ledger_named, list_and_extents, place_of
from pyspark_bookkeeper.offsets import EARLIEST, first_of, starting
from pyspark_bookkeeper.options import ReadOptions
from pyspark_bookkeeper.planning import Extent

Offset = dict[str, int]

_NOWHERE = (-1, 0)
"""The beginning of a log that has no ledger yet."""


@dataclass(frozen=True)
class ReadBudget:
    """The size limits of a batch; None: no bound. One entry is always allowed, or the stream would never proceed."""

    entries: int | None = None
    size: int | None = None

    def part(self, extent: Extent) -> int:
        """The number of the extent's entries that fit."""
        count = extent.stop - extent.first
        fits = count
        if self.entries is not None:
            fits = min(fits, self.entries)
        if self.size is not None and extent.size:
            fits = min(fits, int(self.size / (extent.size / count)))
        return max(fits, 0)

    def without(self, extent: Extent, count: int) -> ReadBudget:
        """The limits that remain after ``count`` entries of the extent."""
        whole = extent.stop - extent.first
        size = extent.size * count / whole if whole else 0
        return ReadBudget(
            None if self.entries is None else self.entries - count,
            None if self.size is None else int(self.size - size),
        )


class Tail(ABC):
    """A source that a stream follows."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @abstractmethod
    async def initial(self, client: Client) -> Offset:
        """The offset of ``startingOffsets``. Raises ConfigError, MetadataError, …"""

    @abstractmethod
    async def latest(self, client: Client, start: Offset, budget: ReadBudget) -> Offset:
        """The offset up to which the source can be read now; ``start`` itself if there is nothing new."""

    @abstractmethod
    async def newest(self, client: Client) -> Offset:
        """The present end."""

    @abstractmethod
    def earlier(self, one: Offset, other: Offset) -> Offset:
        """The smaller offset; for ledgers side by side, for each of them."""

    @abstractmethod
    async def between(self, client: Client, start: Offset, end: Offset) -> list[Extent]:
        """The extents between two offsets, the same at each call."""


def tail_of(options: ReadOptions) -> Tail:
    """Raises ConfigError if the options name nothing that can be followed."""
    if options.log is not None:
        return LogTail(options, options.log)
    if options.ledgers is not None:
        return LedgersTail(options, parse_ledgers(options.ledgers))
    raise ConfigError(["a stream follows a log or ledgers: give the option log or ledgers"])


class LedgersTail(Tail):
    """Ledgers side by side."""

    def __init__(self, options: ReadOptions, ledgers: Sequence[int]) -> None:
        super().__init__(options)
        self._ledgers = ledgers

    async def initial(self, client: Client) -> Offset:
        offsets = starting(self._options.starting_offsets, streaming=True)
        found = await self._extents(client, self._ledgers)
        warn_of_losses(found.values())
        return {
            str(ledger): min(first_of(offsets, ledger, found[ledger].stop), found[ledger].stop)
            for ledger in self._ledgers
        }

    async def latest(self, client: Client, start: Offset, budget: ReadBudget) -> Offset:
        found = await self._extents(client, [int(ledger) for ledger in start])
        left = {
            ledger: part_of(found[int(ledger)], first, found[int(ledger)].stop)
            for ledger, first in start.items()
            if found[int(ledger)].stop > first
        }
        return {**start, **shared(left, budget)}

    async def newest(self, client: Client) -> Offset:
        found = await self._extents(client, self._ledgers)
        return {str(ledger): found[ledger].stop for ledger in self._ledgers}

    def earlier(self, one: Offset, other: Offset) -> Offset:
        return {ledger: min(entry, other.get(ledger, entry)) for ledger, entry in one.items()}

    async def between(self, client: Client, start: Offset, end: Offset) -> list[Extent]:
        bounds = {int(ledger): (start.get(ledger, 0), stop) for ledger, stop in end.items()}
        moved = [ledger for ledger, (first, stop) in bounds.items() if stop > first]
        found = await self._extents(client, moved)
        # Up to the planned end, even if a ledger is gone: reading it raises the error.
        return [
            Extent(
                ledger,
                *bounds[ledger],
                part_of(found[ledger], *bounds[ledger]).size,
                found[ledger].cuts,
            )
            for ledger in moved
        ]

    async def _extents(self, client: Client, ledgers: Sequence[int]) -> Mapping[int, Extent]:
        async def one(ledger: int) -> Extent:
            try:
                return await extent_of(client, ledger, self._options)
            except NoSuchLedgerError:
                if self._options.fail_on_data_loss:
                    raise
                return Extent(ledger, 0, 0, 0)
            except UnauthorizedError:
                if not self._options.skip_unauthorized:
                    raise
                return Extent(ledger, 0, 0, 0)

        return dict(zip(ledgers, await bounded_gather(ledgers, one, AT_ONCE), strict=True))


def shared(left: Mapping[str, Extent], budget: ReadBudget) -> Offset:
    """The end of each ledger if the batch's limits are shared out by what is left of them, so that none waits for
    another."""
    entries = sum(extent.stop - extent.first for extent in left.values())
    size = sum(extent.size for extent in left.values())
    ends: Offset = {}
    for ledger, extent in left.items():
        count = extent.stop - extent.first
        if budget.entries is not None and entries > budget.entries:
            count = min(count, ceil(count * budget.entries / entries))
        if budget.size is not None and size > budget.size:
            count = min(count, ceil((extent.stop - extent.first) * budget.size / size))
        ends[ledger] = extent.first + max(count, 1)
    return ends


class LogTail(Tail):
    """A log, from ledger to ledger."""

    def __init__(self, options: ReadOptions, name: str) -> None:
        super().__init__(options)
        self._name = name

    async def initial(self, client: Client) -> Offset:
        options = self._options
        found, there = await list_and_extents(client, options, self._name)
        end = _place(there[-1].ledger_id, there[-1].stop) if there else _place(*_NOWHERE)
        if options.starting_timestamp is not None:
            place = await place_of(client, there, options, options.starting_timestamp)
            if place is None:
                check_reached(options, self._name)
                return end
            return _place(*place)
        offsets = starting(options.starting_offsets, streaming=True)
        if isinstance(offsets, Mapping):
            ledger = ledger_named("startingOffsets", offsets, found)
            stops = [each.stop for each in there if each.ledger_id == ledger]
            return _place(ledger, first_of(offsets, ledger, stops[0] if stops else 0))
        if offsets == EARLIEST and there:
            return _place(there[0].ledger_id, there[0].first)
        return end

    async def latest(self, client: Client, start: Offset, budget: ReadBudget) -> Offset:
        reached = start
        for ledger in await self._from(client, start):
            first = reached["entry"] if ledger == reached["ledger"] else 0
            try:
                found = await extent_of(client, ledger, self._options)
            except NoSuchLedgerError:
                if self._options.fail_on_data_loss:
                    raise
                continue
            left = part_of(found, first, found.stop)
            count = left.stop - left.first
            fits = budget.part(left) if count else 0
            if count and not fits and reached == start:
                fits = 1
            reached = _place(ledger, first + fits)
            budget = budget.without(left, fits)
            if fits < count or not found.is_final:
                break
        return reached

    async def newest(self, client: Client) -> Offset:
        return await self.latest(client, _place(*_NOWHERE), ReadBudget())

    def earlier(self, one: Offset, other: Offset) -> Offset:
        return min(one, other, key=lambda place: (place["ledger"], place["entry"]))

    async def between(self, client: Client, start: Offset, end: Offset) -> list[Extent]:
        found: list[Extent] = []
        for ledger in await self._from(client, start):
            if ledger > end["ledger"]:
                break
            first = start["entry"] if ledger == start["ledger"] else 0
            try:
                whole = await extent_of(client, ledger, self._options)
            except NoSuchLedgerError:
                if self._options.fail_on_data_loss:
                    raise
                continue
            warn_of_losses([whole])
            stop = end["entry"] if ledger == end["ledger"] else whole.stop
            size = part_of(whole, first, stop).size
            found.append(Extent(ledger, first, max(first, stop), size, whole.cuts))
        return found

    async def _from(self, client: Client, start: Offset) -> list[int]:
        """The ledgers of the log from this offset on. Raises NoSuchEntryError if unread ledgers before them are gone,
        unless that is not an error."""
        ledgers = (await StoredList(client.store, self._name).read()).value.ledgers
        first = start["ledger"]
        if ledgers and 0 <= first < ledgers[0] and self._options.fail_on_data_loss:
            raise NoSuchEntryError(
                f"the log {self._name} was truncated behind ledger {first}, entry {start['entry']}, where this query "
                f"is: what was truncated may not have been read. With failOnDataLoss = false the query goes on with "
                f"what is left"
            )
        return [ledger for ledger in ledgers if ledger >= first]


def _place(ledger: int, entry: int) -> Offset:
    return {"ledger": ledger, "entry": entry}
