"""Reads entries of one ledger from the bookies that hold them.

An entry is accepted from the first bookie that has it *and* whose copy passes the digest, with the password and digest
type of the metadata: a corrupt copy must not spread. Runs of entries are read in batches; what a batch does not return
is read on its own, from every candidate.

A bookie that did not respond is asked last until it responds, so that a hung one costs one time-out or a few, and not
one for each entry. Bookies that are not registered are asked, too, but last: one that lost its registration may still
serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.connection.pool import BookiePool
from bkbox.client.connection.response_matcher import Reply
from bkbox.errors import NoSuchEntryError, UnknownEntryError
from bkbox.protocol.events import NoResponse, RequestStatus, describe
from bkbox.repair.copy.entry_batches import AddBatchBuilder, EntryBatch
from bkbox.wire.codes import Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata


class ReadFailure(NamedTuple):
    """Every candidate's response for an entry that none returned. ``is_unknown``: a registered bookie cannot say
    whether it has the entry; otherwise no bookie that is there has it.
    """

    statuses: Sequence[tuple[BookieId, RequestStatus]]
    is_unknown: bool

    def describe(self) -> str:
        """Text for the operator."""
        return describe(self.statuses) or "no other bookie holds it"

    def error(self, ledger: LedgerId, entry: int) -> NoSuchEntryError | UnknownEntryError:
        text = f"entry {entry} of ledger {ledger}: {self.describe()}"
        return UnknownEntryError(text) if self.is_unknown else NoSuchEntryError(text)


class ReadResult(NamedTuple):
    """Entries that were read, None if none was, and those that no candidate returned."""

    batch: EntryBatch | None
    failed: Mapping[int, ReadFailure]

    @property
    def finished(self) -> int:
        """The number of entries that were read or failed."""
        return len(self.failed) + (0 if self.batch is None else len(self.batch.entries))


class EntrySource:
    """The bookies of one ledger as sources; what is learnt about them serves all its fragments."""

    def __init__(
        self,
        pool: BookiePool,
        metadata: LedgerMetadata,
        registered: Collection[BookieId],
        distances: Mapping[BookieId, int],
    ) -> None:
        """``distances``: 0 where it is not in there. Raises MetadataError for metadata without digest type or
        password: nothing could be checked.
        """
        self.pool = pool
        self.metadata = metadata
        self._ledger = metadata.ledger_id
        self._packer = AddBatchBuilder(metadata, pool)
        self._registered = registered
        self._distances = distances
        self._unresponsive: set[BookieId] = set()
        self._without_batches: set[BookieId] = set()

    def order(self, holders: Iterable[BookieId]) -> list[BookieId]:
        """The order in which to ask bookies: the nearest first; last those that did not respond or are not
        registered.
        """
        return sorted(
            holders,
            key=lambda each: (
                each not in self._registered,
                each in self._unresponsive,
                self._distances.get(each, 0),
            ),
        )

    async def read_run(
        self, candidates: Sequence[BookieId], entries: range, size: int
    ) -> ReadResult:
        """Read the first entry of a run, and as many after it as come with it in ``size`` bytes; for ledgers where
        every bookie holds every entry.
        """
        if len(entries) > 1:
            for bookie in candidates:
                if (
                    bookie in self._registered
                    and bookie not in self._without_batches | self._unresponsive
                    and (found := await self._read_batch(bookie, entries, size)) is not None
                ):
                    return ReadResult(found, {})
        return await self.read_each({entries.start: candidates})

    async def read_each(self, candidates: Mapping[int, Sequence[BookieId]]) -> ReadResult:
        """Read all of these ascending entries, each from its candidates."""
        reads = [
            self.pool.read(bookies[0], self._ledger, entry, None) if bookies else None
            for entry, bookies in candidates.items()
        ]
        found: dict[int, memoryview | ReadFailure] = {}
        left: dict[int, Reply | None] = {}
        for (entry, bookies), coming in zip(candidates.items(), reads, strict=True):
            reply = None if coming is None else await coming
            data = None if reply is None else self._checked(bookies[0], entry, reply)
            if isinstance(data, memoryview):
                found[entry] = data
            else:
                left[entry] = reply
        if left:
            others = await asyncio.gather(
                *(self._read(candidates[entry], entry, reply) for entry, reply in left.items())
            )
            found.update(zip(left, others, strict=True))
        failed: dict[int, ReadFailure] = {}
        right: dict[int, memoryview] = {}
        for entry in candidates:
            data_or_failure = found[entry]
            if isinstance(data_or_failure, ReadFailure):
                failed[entry] = data_or_failure
            else:
                right[entry] = data_or_failure
        if not right:
            return ReadResult(None, failed)
        return ReadResult(self._packer.of_entries(list(right), list(right.values())), failed)

    async def _read_batch(self, bookie: BookieId, entries: range, size: int) -> EntryBatch | None:
        """The entries that come with the first one, None if that does not come."""
        reply = await self.pool.read_batch(bookie, self._ledger, entries.start, len(entries), size)
        if reply.status in (NoResponse.TIMEOUT, NoResponse.CONNECTION_LOST):
            self._without_batches.add(bookie)  # treated as one that does not know batch reads
        body = reply.response
        return self._packer.of_batch(body, entries) if isinstance(body, bytes) else None

    async def _read(
        self, candidates: Sequence[BookieId], entry: int, first: Reply | None
    ) -> memoryview | ReadFailure:
        """Read an entry; ``first``: the response of the first candidate, if it was asked already."""
        statuses: list[tuple[BookieId, RequestStatus]] = []
        is_unknown = False
        for bookie in candidates:
            if first is None:
                reply = await self.pool.read(bookie, self._ledger, EntryId(entry), None)
            else:
                reply, first = first, None
            found = self._checked(bookie, entry, reply)
            if isinstance(found, memoryview):
                return found
            statuses.append((bookie, found))
            has_none = found is NoResponse.BAD_DIGEST or found.evidence is Evidence.NEGATIVE
            is_unknown = is_unknown or (bookie in self._registered and not has_none)
        return ReadFailure(statuses, is_unknown)

    def _checked(self, bookie: BookieId, entry: int, reply: Reply) -> memoryview | RequestStatus:
        """The entry if it is right, else what the bookie answered."""
        if isinstance(reply.status, NoResponse):
            self._unresponsive.add(bookie)
        else:
            self._unresponsive.discard(bookie)
        if reply.entry is None:
            return reply.status
        # A bookie in limbo sends what it has with the code of its limbo.
        return reply.entry if self._packer.is_right(reply.entry, entry) else NoResponse.BAD_DIGEST
