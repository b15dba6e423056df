"""The handle of a reader of a ledger.

A closed ledger is read up to its last entry, any other one up to the LAC that its bookies know.
The LAC travels with the entries after it, so that the newest acknowledged entry of an open ledger
becomes readable with the next one, or when the ledger is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from bkbox.client.driver import LedgerAccess, run
from bkbox.client.options import jittered
from bkbox.errors import BugError, NoSuchEntryError
from bkbox.ids import NO_ENTRY, EntryId, LedgerId, entry_id
from bkbox.protocol.effects import EntryFound, LacFound
from bkbox.protocol.lac import LacReader
from bkbox.protocol.reader import EntryReader
from bkbox.wire.digest import DigestManager, VerifiedEntry
from bkbox.wire.ledger import LedgerMetadata, LedgerState

Entry = VerifiedEntry
"""ledger_id, entry_id, lac, length (payload bytes of the ledger up to this entry), payload."""

READ_AHEAD_ENTRIES_MAX = 128


class LedgerReader:
    """Reads one ledger; made by ``Client.open_ledger``. Needs no closing."""

    def __init__(self, access: LedgerAccess, metadata: LedgerMetadata, version: int) -> None:
        self._access = access
        self._metadata = metadata
        self._version = version
        self._lac = NO_ENTRY

    @property
    def ledger_id(self) -> LedgerId:
        return self._access.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata that this reader has seen."""
        return self._metadata

    @property
    def digests(self) -> DigestManager:
        """``digests.package(e.entry_id, e.lac, e.length, e.payload)`` is entry e as bookies hold
        it."""
        return self._access.digests

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is closed, as far as this reader knows: its end is settled then."""
        return self._metadata.state is LedgerState.CLOSED

    @property
    def last_add_confirmed(self) -> EntryId:
        """The end of a closed ledger, or the highest LAC that this reader has heard of; -1 for
        none."""
        return self._metadata.last_entry if self.is_closed else self._lac

    async def read_last_add_confirmed(self) -> EntryId:
        """Ask the metadata store, and if the ledger is not closed the bookies.

        Raises UnknownEntryError if too few of them can tell, NoSuchLedgerError, MetadataError.
        """
        if not self.is_closed:
            found = await self._access.store.read_ledger(self.ledger_id)
            self._adopt(found.value, found.version)
        if not self.is_closed:
            outcome = await run(LacReader(self._metadata), self._access)
            if not isinstance(outcome, LacFound):
                raise BugError(f"a read of the LAC ended with {outcome}")
            self._lac = max(self._lac, outcome.lac)
        return self.last_add_confirmed

    async def read_entry(self, entry: int) -> Entry:
        """Read one entry.

        Raises NoSuchEntryError (also for an entry past the end or the LAC), UnknownEntryError,
        MetadataError; InvalidIdError for an id below 0.
        """
        await self._must_be_confirmed(entry_id(entry))
        return await self._read(EntryId(entry))

    async def read(self, first: int = 0, last: int | None = None) -> AsyncGenerator[Entry, None]:
        """The entries from ``first`` to ``last`` (None: the last there is), in order.

        Reads ahead of its consumer, within ``read_ahead_bytes``. Raises as ``read_entry``, after
        the entries before the one that failed.
        """
        start = entry_id(first)
        if last is None:
            last = await self.read_last_add_confirmed()
        elif start <= last:
            await self._must_be_confirmed(entry_id(last))
        ahead: deque[asyncio.Task[Entry]] = deque()
        next_entry = start
        largest = self._access.options.read_ahead_bytes
        loop = asyncio.get_running_loop()
        try:
            while next_entry <= last or ahead:
                room = self._access.options.read_ahead_bytes // largest
                while next_entry <= last and len(ahead) < min(max(room, 1), READ_AHEAD_ENTRIES_MAX):
                    ahead.append(loop.create_task(self._read(next_entry)))
                    next_entry = EntryId(next_entry + 1)
                entry = await ahead[0]
                ahead.popleft()
                size = max(len(entry.payload), 1)
                largest = size if entry.entry_id == start else max(largest, size)
                yield entry
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    async def tail(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        """The entries from ``first`` on, as they become readable, until the ledger is closed and
        read.

        Raises as ``read`` and ``read_last_add_confirmed``; NoSuchLedgerError once it is deleted.
        """
        next_entry = entry_id(first)
        while True:
            end = await self.read_last_add_confirmed()
            if next_entry <= end:
                async with aclosing(self.read(next_entry, end)) as entries:
                    async for entry in entries:
                        yield entry
                next_entry = EntryId(end + 1)
            elif self.is_closed:
                return
            else:
                options = self._access.options
                await asyncio.sleep(jittered(options.tail_poll_s, self._access.rng))

    async def _must_be_confirmed(self, entry: EntryId) -> None:
        if entry <= self.last_add_confirmed or entry <= await self.read_last_add_confirmed():
            return
        what = "its end" if self.is_closed else "what is confirmed"
        raise NoSuchEntryError(
            f"entry {entry} of ledger {self.ledger_id} lies past {what}: "
            f"entry {self.last_add_confirmed}"
        )

    async def _read(self, entry: EntryId) -> Entry:
        machine = EntryReader(self._metadata, self._version, entry)
        try:
            outcome = await run(machine, self._access, speculate=True)
        finally:
            self._adopt(machine.metadata, machine.version)
        if not isinstance(outcome, EntryFound):
            raise BugError(f"a read of entry {entry} ended with {outcome}")
        return outcome.entry

    def _adopt(self, metadata: LedgerMetadata, version: int) -> None:
        if version > self._version:
            self._metadata = metadata
            self._version = version
