"""Copies the missing entries of one ledger from its peers to this bookie.

An entry is accepted from the first peer that has it *and* whose copy passes the digest, with the password and digest
type of the metadata: a corrupt copy must not spread. It is stored under the bytes that the writer made, through this
bookie's own front-end as a recovery add, like any client's.

Where every bookie holds every entry, entries are read in batches. An entry that a batch does not return is read on
its own, from every peer. A peer that did not respond is asked last from then on, so that a hung peer costs one
time-out or a few, and not one for each entry. The bytes in flight are bounded by one window for all ledgers that are
worked on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bkbox.base.ids import BookieId, EntryId
from bkbox.base.words import counted
from bkbox.client.connection.pool import BookiePool
from bkbox.jobs.context import JobContext
from bkbox.protocol.events import NoAnswer, describe
from bkbox.protocol.repair import peers
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
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerMetadata

_FIRST_GUESS_BYTES = 4 << 10
"""Assumed size of an entry, in bytes, before one was seen."""

_ENTRY_OVERHEAD_BYTES = 1_024
"""Overhead, in bytes, that an entry in flight counts for in addition to its own bytes."""


@dataclass(slots=True)
class CopyResult:
    """The entries that could not be copied, each with what each peer responded."""

    failed: dict[int, str] = field(default_factory=dict)

    def describe(self) -> str:
        """Text for the operator: the first few entries and the responses for each."""
        shown = [f"entry {entry}: {why}" for entry, why in sorted(self.failed.items())[:3]]
        rest = len(self.failed) - len(shown)
        return "; ".join(shown) + (f"; and {counted(rest, 'more entry')}" if rest else "")


class Copier:
    """Copies entries of one ledger to this bookie. ``at_once``: how many are requested concurrently."""

    def __init__(
        self,
        me: BookieId,
        pool: BookiePool,
        metadata: LedgerMetadata,
        work: JobContext,
        at_once: int,
        window: ByteWindow,
    ) -> None:
        """Raises MetadataError for metadata without digest type or password: nothing could be checked."""
        self._me = me
        self._pool = pool
        self._metadata = metadata
        self._packer = AddBatchBuilder(metadata, pool)
        self._work = work
        self._at_once = at_once
        self._window = window
        self._largest = _FIRST_GUESS_BYTES
        self._was_seen = False
        self._has_begun = False
        self._unresponsive: set[BookieId] = set()
        self._without_batches: set[BookieId] = set()

    async def copy(self, missing: Iterable[range]) -> CopyResult:
        """Copy each entry; entries that no peer has are in the result. Raises JobCancelledError."""
        result = CopyResult()
        under_way: dict[asyncio.Task[None], int] = {}
        errors: list[BaseException] = []

        def ended(task: asyncio.Task[None]) -> None:
            self._window.give(
                under_way.pop(task)
            )  # here: a task that is cancelled may never have started
            if not task.cancelled() and (error := task.exception()) is not None:
                errors.append(error)

        try:
            for entries in self._pieces(missing):
                size = self._guess(entries)
                await self._window.take(size, self._work.allowance())
                if errors:
                    self._window.give(size)
                    break
                task = asyncio.ensure_future(self._piece(entries, result))
                under_way[task] = size
                task.add_done_callback(ended)
                if not self._has_begun:
                    await asyncio.wait({task})
                    self._has_begun = True
            while under_way:
                await asyncio.wait(set(under_way))
        finally:
            left = set(under_way)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if errors:  # entries whose task raised were not copied, and are not in the result
            raise errors[0]
        return result

    def _pieces(self, missing: Iterable[range]) -> Iterator[range | list[int]]:
        """Ranges where entries can be read in batches, else lists of scattered entries."""
        if self._metadata.write_quorum == self._metadata.ensemble_size:
            for part in missing:
                while part:
                    most = self._most()
                    yield part[:most]
                    part = part[most:]
            return
        together: list[int] = []
        for part in missing:
            for entry in part:
                together.append(entry)
                if len(together) >= self._most():
                    yield together
                    together = []
        if together:
            yield together

    def _most(self) -> int:
        most = self._at_once if self._has_begun else min(FIRST_ENTRIES, self._at_once)
        return batch_entries(self._work, self._largest, most)

    def _guess(self, entries: Sequence[int]) -> int:
        size = len(entries) * (self._largest + _ENTRY_OVERHEAD_BYTES)
        return min(size, BATCH_BYTES) if isinstance(entries, range) else size

    async def _piece(self, entries: range | list[int], result: CopyResult) -> None:
        if isinstance(entries, range):
            await self._run(entries, result)
        else:
            await self._each(entries, result)

    async def _run(self, entries: range, result: CopyResult) -> None:
        while entries:
            found = await self._batch(entries) if len(entries) > 1 else None
            if found is None:  # every peer is asked for the first entry
                await self._each(entries[:1], result)
                entries = entries[1:]
            else:
                await self._store(found, result)
                entries = entries[len(found.entries) :]

    async def _batch(self, entries: range) -> EntryBatch | None:
        """Read a batch from the first peer that returns any of it; None where none does."""
        for peer in self._order(entries.start):
            if peer in self._without_batches | self._unresponsive:
                continue
            size = batch_bytes(self._work)
            reply = await self._pool.read_batch(
                peer, self._metadata.ledger_id, entries.start, len(entries), size
            )
            if reply.answer in (NoAnswer.TIMEOUT, NoAnswer.CONNECTION_LOST):
                self._without_batches.add(peer)  # treated as a peer that does not know batch reads
            if isinstance(reply.response, bytes):
                found = self._packer.of_batch(reply.response, entries)
                if found is not None:
                    return found
        return None

    async def _each(self, entries: Sequence[int], result: CopyResult) -> None:
        found = await asyncio.gather(*map(self._from_peers, entries))
        right = {
            entry: data
            for entry, data in zip(entries, found, strict=True)
            if not isinstance(data, str)
        }
        result.failed |= {
            entry: why for entry, why in zip(entries, found, strict=True) if isinstance(why, str)
        }
        if right:
            await self._store(self._packer.of_entries(list(right), list(right.values())), result)

    async def _from_peers(self, entry: int) -> memoryview | str:
        """The entry's bytes, or the reason why no peer returned it."""
        said: list[str] = []
        for peer in self._order(entry):
            reply = await self._pool.read(peer, self._metadata.ledger_id, EntryId(entry), None)
            if isinstance(reply.answer, NoAnswer):
                self._unresponsive.add(peer)
            if reply.answer is not Code.EOK or reply.entry is None:
                said.append(describe([(peer, reply.answer)]))
            elif self._packer.is_right(reply.entry, entry):
                return reply.entry
            else:
                said.append(describe([(peer, NoAnswer.BAD_DIGEST)]))
        return ", ".join(said) or "no other bookie holds it"

    def _order(self, entry: int) -> list[BookieId]:
        return sorted(peers(self._metadata, entry, self._me), key=self._unresponsive.__contains__)

    async def _store(self, run: EntryBatch, result: CopyResult) -> None:
        self._largest = max(run.largest, self._largest) if self._was_seen else run.largest
        self._was_seen = True
        async for part in round_robin(run, self._work, disk=1, network=1):
            refused = await store(self._pool, self._me, part)
            for entry, answer in refused.items():
                why = f"it could not be stored here: {describe([(self._me, answer)])}"
                result.failed[entry] = why
            stored = len(part.entries) - len(refused)
            self._work.did(entries=stored, size=part.size * stored // len(part.entries))


def in_runs(entries: Iterable[int]) -> Iterator[range]:
    """Group ascending entries into ranges of consecutive ones."""
    held = range(0)
    for entry in entries:
        if held and entry == held.stop:
            held = range(held.start, entry + 1)
            continue
        if held:
            yield held
        held = range(entry, entry + 1)
    if held:
        yield held
