"""Copies the entries of one fragment from source bookies to target bookies.

An entry is accepted from the nearest bookie that has it *and* whose copy passes the digest, with the password and
digest type of the metadata: a corrupt replica must not spread. It is sent on with the bytes that the writer made, as
a recovery add. Where every bookie holds every entry, entries are read in batches. A window bounds the bytes in
flight, so that the network is busy whatever the size of entries.

Bookies that are not registered are asked, too, but last: one that lost its registration may still serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bkbox.base.ids import BookieId, EntryId
from bkbox.base.words import counted
from bkbox.client.connection.pool import BookiePool
from bkbox.errors import AddFailedError, NoSuchEntryError, UnknownEntryError
from bkbox.jobs.context import JobContext
from bkbox.protocol.events import Answer, NoAnswer, describe
from bkbox.protocol.rereplication import FragmentRepair, Transfer, sources, transfers
from bkbox.repair.copy.byte_semaphore import ByteWindow
from bkbox.repair.copy.entry_batches import (
    BATCH_BYTES,
    FIRST_ENTRIES,
    AddBatchBuilder,
    EntryBatch,
    batch_bytes,
    batch_entries,
    round_robin,
    store,
)
from bkbox.wire.codes import Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata

_RUN_ENTRIES = 1_024
_GROUP_ENTRIES = 64
_FIRST_GUESS_BYTES = 64 << 10
"""Assumed size of an entry, in bytes, before one was seen."""

_ENTRY_OVERHEAD_BYTES = 4_096
"""Overhead, in bytes, of an entry in flight: it bounds how many small ones wait in a bookie's queue."""


class Sources:
    """The source bookies of one ledger's entries; what is learnt about them serves all its fragments."""

    def __init__(
        self,
        pool: BookiePool,
        metadata: LedgerMetadata,
        registered: Collection[BookieId],
        distances: Mapping[BookieId, int],
    ) -> None:
        """Raises MetadataError for metadata without digest type or password: nothing could be checked."""
        self.ledger = metadata.ledger_id
        self.write_quorum = metadata.write_quorum
        self._packer = AddBatchBuilder(metadata, pool)
        self._pool = pool
        self._registered = registered
        self._distances = distances
        self._unresponsive: set[BookieId] = set()
        self._without_batches: set[BookieId] = set()

    def order(
        self, repair: FragmentRepair, entry: int, targets: Collection[BookieId]
    ) -> list[BookieId]:
        """The order in which to ask bookies for an entry: the nearest first; last those that did not respond before
        or are not registered.
        """
        return sorted(
            (each for each in sources(repair, self.write_quorum, entry) if each not in targets),
            key=lambda each: (
                each not in self._registered,
                each in self._unresponsive,
                self._distances.get(each, 0),
            ),
        )

    async def read_run(
        self, candidates: Sequence[BookieId], entries: range, size: int
    ) -> EntryBatch:
        """Read the first entry of a run, and as many after it as come with it in ``size`` bytes; for ledgers where
        every bookie holds every entry.

        Raises NoSuchEntryError: no bookie that is there has it; UnknownEntryError: one of them cannot say.
        """
        if len(entries) > 1:
            for bookie in candidates:
                if (
                    bookie in self._registered
                    and bookie not in self._without_batches | self._unresponsive
                    and (found := await self._batch(bookie, entries, size)) is not None
                ):
                    return found
        first = await self._read(candidates, EntryId(entries.start))
        return self._packer.of_entries(entries[:1], [first])

    async def read_each(self, candidates: Mapping[int, Sequence[BookieId]]) -> EntryBatch:
        """Read all of these entries, each from its candidates. Raises as ``read_run``."""
        asked = [
            self._pool.read(bookies[0], self.ledger, entry, None) if bookies else None
            for entry, bookies in candidates.items()
        ]
        found: list[memoryview | bytes] = []
        for (entry, bookies), reply in zip(candidates.items(), asked, strict=True):
            data: memoryview | bytes | None = None if reply is None else (await reply).entry
            if data is None or not self._packer.is_right(data, entry):
                data = await self._read(bookies, EntryId(entry))
            found.append(data)
        return self._packer.of_entries(list(candidates), found)

    async def _batch(self, bookie: BookieId, entries: range, size: int) -> EntryBatch | None:
        reply = await self._pool.read_batch(bookie, self.ledger, entries.start, len(entries), size)
        if reply.answer in (NoAnswer.TIMEOUT, NoAnswer.CONNECTION_LOST):
            self._without_batches.add(bookie)  # treated as one that does not know batch reads
        body = reply.response
        return self._packer.of_batch(body, entries) if isinstance(body, bytes) else None

    async def _read(self, candidates: Sequence[BookieId], entry: EntryId) -> memoryview | bytes:
        said: list[tuple[BookieId, Answer | None]] = []
        unsure = False
        for bookie in candidates:
            reply = await self._pool.read(bookie, self.ledger, entry, None)
            answer: Answer = reply.answer
            if isinstance(answer, NoAnswer):
                self._unresponsive.add(bookie)
            else:
                self._unresponsive.discard(bookie)
            if reply.entry is not None:
                if self._packer.is_right(reply.entry, entry):
                    return reply.entry  # also sent with the code of a bookie in limbo
                answer = NoAnswer.BAD_DIGEST
            said.append((bookie, answer))
            has_none = answer is NoAnswer.BAD_DIGEST or answer.evidence is Evidence.NEGATIVE
            unsure = unsure or (bookie in self._registered and not has_none)
        text = (
            f"entry {entry} of ledger {self.ledger}: {describe(said) or 'no other bookie holds it'}"
        )
        raise UnknownEntryError(text) if unsure else NoSuchEntryError(text)


class FragmentCopier:
    """Copies the entries that one fragment needs."""

    def __init__(
        self,
        pool: BookiePool,
        given: Sources,
        repair: FragmentRepair,
        work: JobContext,
        window: ByteWindow,
    ) -> None:
        self._pool = pool
        self._sources = given
        self._repair = repair
        self._work = work
        self._window = window
        self._largest = _FIRST_GUESS_BYTES
        self._was_seen = False
        self._has_begun = False

    async def copy(self, new: Mapping[int, BookieId]) -> None:
        """Copy everything, or raise at the first entry that could not be copied. ``new``: the bookies for lost
        positions.

        Raises NoSuchEntryError, UnknownEntryError, AddFailedError, JobCancelledError.
        """
        under_way: dict[asyncio.Task[None], int] = {}
        failures: list[BaseException] = []

        def ended(task: asyncio.Task[None]) -> None:
            self._window.give(
                under_way.pop(task)
            )  # here: a task that is cancelled may never have started
            if not task.cancelled() and (error := task.exception()) is not None:
                failures.append(error)

        try:
            needed = transfers(self._repair, self._sources.write_quorum, new)
            for transfer in grouped(needed, self._most):
                size = self._guess(len(transfer.entries))
                await self._window.take(size, self._work.allowance())
                if failures:
                    self._window.give(size)
                    break
                task = asyncio.ensure_future(self._one(transfer))
                under_way[task] = size
                task.add_done_callback(ended)
                if not self._has_begun:
                    await asyncio.wait({task})
                    self._has_begun = True
            while under_way and not failures:
                await asyncio.wait(set(under_way), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = set(under_way)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if failures:
            raise failures[0]

    def _guess(self, count: int) -> int:
        """Estimated bytes of the window that so many entries use."""
        return min(count * (self._largest + _ENTRY_OVERHEAD_BYTES), BATCH_BYTES)

    def _most(self) -> int:
        most = _RUN_ENTRIES if self._has_begun else FIRST_ENTRIES
        return batch_entries(self._work, self._largest, most)

    async def _one(self, group: CopyGroup) -> None:
        if isinstance(group.entries, range):
            await self._copy_run(group.entries, group.targets)
        else:
            await self._copy_each(group.entries, group.targets)

    async def _copy_run(self, entries: range, targets: Sequence[BookieId]) -> None:
        while entries:
            candidates = self._sources.order(self._repair, entries.start, targets)
            found = await self._sources.read_run(candidates, entries, batch_bytes(self._work))
            await self._store(found, targets)
            entries = entries[len(found.entries) :]

    async def _copy_each(self, entries: Sequence[int], targets: Sequence[BookieId]) -> None:
        order = self._sources.order
        candidates = {entry: order(self._repair, entry, targets) for entry in entries}
        await self._store(await self._sources.read_each(candidates), targets)

    async def _store(self, run: EntryBatch, targets: Sequence[BookieId]) -> None:
        self._largest = max(run.largest, self._largest) if self._was_seen else run.largest
        self._was_seen = True
        async for part in round_robin(run, self._work, disk=0, network=1 + len(targets)):
            await asyncio.gather(*(self._store_at(each, part) for each in targets))
            copies = len(targets)
            self._work.did(entries=len(part.entries) * copies, size=part.size * copies)

    async def _store_at(self, target: BookieId, run: EntryBatch) -> None:
        refused = await store(self._pool, target, run)
        if refused:
            first, answer = min(refused.items())
            more = f" and {counted(len(refused) - 1, 'more entry')}" if len(refused) > 1 else ""
            raise AddFailedError(
                f"entry {first}{more} of ledger {self._sources.ledger} could not be written: "
                f"{describe([(target, answer)])}"
            )


class CopyGroup(NamedTuple):
    """Entries that go to the same bookies together: a run, or scattered ones, ascending."""

    entries: range | list[int]
    targets: tuple[BookieId, ...]


def grouped(given: Iterable[Transfer], most: Callable[[], int]) -> Iterator[CopyGroup]:
    """Cut long runs, and combine single entries for the same bookies. ``most``: how many may go together now."""
    waiting: dict[tuple[BookieId, ...], list[int]] = {}
    for entries, targets in given:
        if len(entries) > 1:
            while entries:
                count = most()
                yield CopyGroup(entries[:count], targets)
                entries = entries[count:]
            continue
        group = waiting.setdefault(targets, [])
        group.append(entries.start)
        if len(group) >= min(most(), _GROUP_ENTRIES):
            yield CopyGroup(waiting.pop(targets), targets)
    for targets, group in waiting.items():
        yield CopyGroup(group, targets)
