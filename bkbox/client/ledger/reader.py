"""The handle of a reader of a ledger.

A closed ledger is read up to its last entry, an open one up to the LAC that its bookies know. The LAC travels with
later entries. So the newest acknowledged entry of an open ledger becomes readable with the next one, when the ledger
is closed, or by the explicit LAC of its writer.

Where every bookie holds every entry, ``read`` uses batch reads (batch.py), several in flight at a time, so that some
arrive while another is consumed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from bkbox.base.backoff import JITTER_AROUND, jittered
from bkbox.base.ids import NO_ENTRY, EntryId, LedgerId
from bkbox.client import arguments
from bkbox.client.inner import Inner
from bkbox.client.ledger.batch import BatchReads
from bkbox.client.ledger.driver import LedgerAccess, run
from bkbox.client.ledger.durable_copies import durable_upto
from bkbox.client.ledger.ledger_watch import LedgerWatch
from bkbox.client.ledger.read_order import ReadOrder
from bkbox.errors import BugError, LedgerError, MetadataError, NoSuchEntryError, UnknownEntryError
from bkbox.protocol.effects import EntryFound, LacFound, Polled
from bkbox.protocol.lac import LacReader
from bkbox.protocol.longpoll import LongPoll
from bkbox.protocol.reader import EntryReader
from bkbox.wire.batch_reads import largest_payload
from bkbox.wire.digest import DigestManager, EntryColumns, VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

Entry = VerifiedEntry
"""ledger_id, entry_id, lac, length (payload bytes of the ledger up to this entry), payload."""

SINGLES_AHEAD_MAX = 128
ENTRIES_AHEAD_MAX = 4096
"""Reads in flight ahead of the consumer of ``read``: single entries, and batches."""

_RUNS_AHEAD = 4
_RUN_ENTRIES_MAX = 512
"""Batch reads in flight at least, as far as there is space, and entries of one at most."""

_FRAME_OVERHEAD_BYTES = 128
"""Bytes of an entry in the response to a batch read beside its payload, at most."""


class LedgerReader:
    """Reads one ledger; made by ``Client.open_ledger``. It needs no closing, and is unusable once its client is
    closed.
    """

    def __init__(
        self, access: LedgerAccess, metadata: LedgerMetadata, version: int, order: ReadOrder
    ) -> None:
        self._access = access
        self._order = order
        self._metadata = metadata
        self._version = version
        self._lac = NO_ENTRY
        self._batches = BatchReads(access, order)

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger's id."""
        return self._access.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata that this reader has seen."""
        return self._metadata

    @property
    def digests(self) -> DigestManager:
        """``digests.package(e.entry_id, e.lac, e.length, e.payload)`` is entry e as bookies hold it."""
        return self._access.digests

    @property
    def is_closed(self) -> bool:
        """True if the ledger is known to be closed: its end is settled then."""
        return self._metadata.state is LedgerState.CLOSED

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry of a closed ledger, or the highest LAC that this reader has seen; -1 for none."""
        return self._metadata.last_entry if self.is_closed else self._lac

    # ---- last add confirmed ---------------------------------------------------------------------

    async def read_last_add_confirmed(self, *, persisted: bool = False) -> EntryId:
        """Ask the metadata store, and if the ledger is not closed the bookies.

        ``persisted``: have the bookies sync what they hold, also of a closed ledger, and return the last entry up to
        which every entry is known to be on the disks of an ack quorum (durable_copies.py). Raises UnknownEntryError
        if too few of them can tell, NoSuchLedgerError, MetadataError.
        """
        arguments.flag("persisted", persisted)
        lac = await self._ask_for_lac(explicit=False)
        return await durable_upto(self._access, self._metadata, lac) if persisted else lac

    async def read_explicit_last_add_confirmed(self) -> EntryId:
        """The same, including the explicit LAC that an idle writer stores on its bookies (``ClientOptions.
        explicit_lac_interval_s``).
        """
        return await self._ask_for_lac(explicit=True)

    async def _ask_for_lac(self, *, explicit: bool) -> EntryId:
        await self._refresh()
        if not self.is_closed:
            outcome = await run(LacReader(self._metadata, explicit=explicit), self._access)
            if not isinstance(outcome, LacFound):
                raise BugError(f"a read of the LAC ended with {outcome}")
            self._lac = max(self._lac, outcome.lac)
        return self.last_add_confirmed

    async def read_last_add_confirmed_and_entry(
        self, entry: int, timeout_s: float
    ) -> tuple[EntryId, Entry | None]:
        """Wait until ``entry`` is confirmed, for about ``timeout_s`` at most, and read it.

        Returns the LAC, and the entry; None instead of the entry after a time-out, or if the ledger is closed before
        it. Raises UnknownEntryError if no bookie can tell, NoSuchLedgerError, MetadataError, and as ``read_entry``.
        """
        number = arguments.entry(entry)
        wait_s = arguments.seconds("timeout_s", timeout_s)
        await self._refresh()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        async with self._watch() as watch:
            while number > self.last_add_confirmed and not self.is_closed:
                left_s = max(deadline - loop.time(), 0.0)
                polled = await watch.unless_changed(self._poll(number, left_s))
                if polled is not None and polled.entry is not None:
                    return self.last_add_confirmed, polled.entry
                if polled is not None:
                    break
        found = await self._read(number) if number <= self.last_add_confirmed else None
        return self.last_add_confirmed, found

    async def _poll(self, entry: EntryId, wait_s: float) -> Polled:
        outcome = await run(
            LongPoll(self._metadata, entry),
            self._access,
            speculate_s=self._access.options.speculative_poll_s,
            wait_s=wait_s,
        )
        if not isinstance(outcome, Polled):
            raise BugError(f"a long poll ended with {outcome}")
        self._lac = max(self._lac, outcome.lac)
        return outcome

    async def _must_be_confirmed(self, entry: EntryId) -> None:
        if entry <= self.last_add_confirmed or entry <= await self.read_last_add_confirmed():
            return
        what = "its end" if self.is_closed else "what is confirmed"
        raise NoSuchEntryError(
            f"entry {entry} of ledger {self.ledger_id} lies past {what}: "
            f"entry {self.last_add_confirmed}"
        )

    # ---- entries --------------------------------------------------------------------------------

    async def read_entry(self, entry: int) -> Entry:
        """Read one entry.

        Raises NoSuchEntryError (also for an entry past the end or the LAC), UnknownEntryError,
        MetadataError; InvalidIdError for an id below 0.
        """
        number = arguments.entry(entry)
        await self._must_be_confirmed(number)
        return await self._read(number)

    async def read_last(self) -> Entry | None:
        """The last confirmed entry, None if there is none. Raises as ``read_entry``."""
        last = await self.read_last_add_confirmed()
        return None if last == NO_ENTRY else await self._read(last)

    async def read_batch(
        self, first: int, max_count: int, max_bytes: int | None = None
    ) -> list[Entry]:
        """The entries from ``first`` on: one at least, at most ``max_count``, and beyond one no more than fit into a
        frame of ``max_bytes`` (None: the largest). It may always return fewer.

        One request where every bookie holds every entry, else a read of one entry. Raises as ``read_entry``.
        """
        start, max_count, max_bytes = self._batch(first, max_count, max_bytes)
        await self._must_be_confirmed(start)
        count = min(max_count, self.last_add_confirmed - start + 1)
        return await self._read_some(start, count, max_bytes)

    async def read_columns(
        self, first: int, max_count: int, max_bytes: int | None = None
    ) -> EntryColumns | None:
        """The same as columns, without an object for each entry, for callers that read ahead themselves.

        None if columns cannot be had: with a striped ledger, with digests that the compiled code does not know, or if
        no bookie gave the first entry, in which case ``read_batch`` finds the reason. Raises as
        ``read_last_add_confirmed``; NoSuchEntryError for an entry past the end or the LAC.
        """
        start, max_count, max_bytes = self._batch(first, max_count, max_bytes)
        await self._must_be_confirmed(start)
        self._access.binding.check()
        count = min(max_count, self.last_add_confirmed - start + 1)
        return await self._batches.read_columns(self._metadata, start, count, max_bytes)

    def _batch(self, first: int, max_count: int, max_bytes: int | None) -> tuple[EntryId, int, int]:
        """The arguments of a batch read, checked."""
        start = arguments.entry(first)
        count = arguments.integer("max_count", max_count, 0)
        if max_bytes is None:
            return start, count, self._access.options.frame_bytes_max
        return start, count, arguments.integer("max_bytes", max_bytes, 0)

    def read(self, first: int = 0, last: int | None = None) -> AsyncGenerator[Entry, None]:
        """The entries from ``first`` to ``last`` (None: the last there is), in order.

        Reads ahead of its consumer, within ``read_ahead_bytes``. Raises as ``read_entry``, after
        the entries before the one that failed.
        """
        return _each(self.read_batches(first, last))

    def __aiter__(self) -> AsyncGenerator[Entry, None]:
        """``read()``: ``async for entry in reader``."""
        return self.read()

    def read_batches(
        self, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[list[Entry], None]:
        """The same entries in lists as they arrive, none of them empty; for callers that can use many at once."""
        end = None if last is None else arguments.last_entry(last)
        return self._confirmed(arguments.entry(first), end)

    async def _confirmed(
        self, start: EntryId, last: EntryId | None
    ) -> AsyncGenerator[list[Entry], None]:
        if last is None:
            last = await self.read_last_add_confirmed()
        elif start <= last:
            await self._must_be_confirmed(last)
        async with Inner(self._read_all(start, last)) as batches:
            async for entries in batches:
                yield entries

    def read_unconfirmed(self, first: int, last: int) -> AsyncGenerator[Entry, None]:
        """The entries from ``first`` to ``last`` as far as any bookie has them, confirmed or not.

        An unconfirmed entry may not be in the ledger once it is closed. Raises as ``read_entry``, NoSuchEntryError if
        no bookie has one.
        """
        return _each(self._read_all(arguments.entry(first), arguments.last_entry(last)))

    async def _read_all(self, start: EntryId, last: int) -> AsyncGenerator[list[Entry], None]:
        ahead: deque[tuple[range, asyncio.Task[list[Entry]]]] = deque()
        next_entry = start
        largest = self._access.options.read_ahead_bytes
        loop = asyncio.get_running_loop()
        try:
            while next_entry <= last or ahead:
                space, run_length = self._read_ahead(largest)
                while next_entry <= last and (
                    not ahead or next_entry + run_length - ahead[0][0].start <= space
                ):
                    entries = range(next_entry, min(next_entry + run_length, last + 1))
                    ahead.append((entries, loop.create_task(self._read_run(entries))))
                    next_entry = EntryId(entries.stop)
                entries, task = ahead[0]
                found = await task
                while entries:
                    size = max(1, largest_payload(found))
                    largest = size if entries.start == start else max(largest, size)
                    yield found
                    entries = entries[len(found) :]
                    found = await self._read_run(entries) if entries else []
                ahead.popleft()
        finally:
            for _, task in ahead:
                task.cancel()
            await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)

    def _read_ahead(self, largest: int) -> tuple[int, int]:
        """The number of entries to buffer, and to request at once, if each has ``largest`` bytes."""
        space = self._access.options.read_ahead_bytes // largest
        if not self._batches.help_with(self._metadata):
            return min(max(space, 1), SINGLES_AHEAD_MAX), 1
        space = min(max(space, 1), ENTRIES_AHEAD_MAX)
        fit = self._access.options.frame_bytes_max // (largest + _FRAME_OVERHEAD_BYTES)
        return space, max(min(space // _RUNS_AHEAD, _RUN_ENTRIES_MAX, fit), 1)

    async def _read_run(self, entries: range) -> list[Entry]:
        """These entries, or those before the first one that cannot be read, if there are any."""
        found: list[Entry] = []
        max_bytes = self._access.options.frame_bytes_max
        try:
            while len(found) < len(entries):
                remaining = entries[len(found) :]
                found += await self._read_some(EntryId(remaining.start), len(remaining), max_bytes)
        except (LedgerError, MetadataError):
            if not found:
                raise
        return found

    async def _read_some(self, first: EntryId, count: int, max_bytes: int) -> list[Entry]:
        self._access.binding.check()
        if count > 1 and self._batches.help_with(self._metadata):
            found = await self._batches.read(self._metadata, first, count, max_bytes)
            if found:
                return found
        return [await self._read(first)]

    async def _read(self, entry: EntryId) -> Entry:
        self._access.binding.check()
        machine = EntryReader(self._metadata, self._version, entry, self._order)
        pause_s = self._access.options.speculative_read_s
        try:
            outcome = await run(machine, self._access, speculate_s=pause_s)
        finally:
            self._adopt(machine.metadata, machine.version)
        if not isinstance(outcome, EntryFound):
            raise BugError(f"a read of entry {entry} ended with {outcome}")
        return outcome.entry

    def tail(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        """The entries from ``first`` on, as they become readable, until the ledger is closed and read to its end.

        Bookies hold the long poll for the next entry until it exists. Raises as ``read`` and
        ``read_last_add_confirmed``; NoSuchLedgerError once the ledger is deleted.
        """
        return self._tail(arguments.entry(first))

    async def _tail(self, next_entry: EntryId) -> AsyncGenerator[Entry, None]:
        await self.read_last_add_confirmed()
        async with self._watch() as watch:
            while True:
                end = self.last_add_confirmed
                if next_entry <= end:
                    async with Inner(self.read(next_entry, end)) as entries:
                        async for entry in entries:
                            yield entry
                    next_entry = EntryId(end + 1)
                elif self.is_closed:
                    return
                elif (found := await watch.unless_changed(self._next(next_entry))) is not None:
                    yield found
                    next_entry = EntryId(next_entry + 1)

    async def _next(self, entry: EntryId) -> Entry | None:
        """The entry if it comes with a long poll; None if the poll ended otherwise.

        Bookies that do not hold the long poll (the ledger is fenced or unknown there, or the bookie does not know
        long polls) are asked only after a pause.
        """
        options = self._access.options
        loop = asyncio.get_running_loop()
        pause_over = loop.time() + jittered(options.tail_poll_s, self._access.rng, JITTER_AROUND)
        try:
            polled = await self._poll(entry, options.tail_wait_s)
        except UnknownEntryError:
            await self.read_last_add_confirmed()
        else:
            if polled.entry is not None:
                return polled.entry
        if entry > self.last_add_confirmed:
            await asyncio.sleep(pause_over - loop.time())
        return None

    # ---- metadata -------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        self._access.binding.check()
        if not self.is_closed:
            found = await self._access.store.read_ledger(self.ledger_id)
            self._adopt(found.value, found.version)

    def _watch(self) -> LedgerWatch:
        return LedgerWatch(self._access.store, self.ledger_id, self._version, self._adopt)

    def _adopt(self, metadata: LedgerMetadata, version: int) -> None:
        if version > self._version:
            self._metadata = metadata
            self._version = version


async def _each(batches: AsyncGenerator[list[Entry], None]) -> AsyncGenerator[Entry, None]:
    async with Inner(batches) as lists:
        async for entries in lists:
            for entry in entries:
                yield entry
