"""Bringing the missing entries of one ledger back from its peers.

An entry is taken from the first peer that has it *and* whose copy passes the digest, with the password and digest type
of the metadata: a rotten peer must not spread its rot. It is stored under the bytes that the writer made, through this
bookie's own front-end as a recovery add, like any client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bkbox.client.pool import Add, BookiePool
from bkbox.errors import DigestError
from bkbox.ids import BookieId, EntryId
from bkbox.protocol.events import describe
from bkbox.protocol.repair import peers
from bkbox.repair.progress import Progress
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.ledger import LedgerMetadata


@dataclass(slots=True)
class CopyResult:
    """What could not be copied, and what each peer said of it."""

    failed: dict[int, str] = field(default_factory=dict)

    def describe(self) -> str:
        """For people: the first few entries and their answers."""
        shown = [f"entry {entry}: {why}" for entry, why in sorted(self.failed.items())[:3]]
        rest = len(self.failed) - len(shown)
        return "; ".join(shown) + (f"; and {rest} more entries" if rest else "")


class Copier:
    """Copies entries of one ledger to this bookie."""

    def __init__(
        self,
        me: BookieId,
        pool: BookiePool,
        metadata: LedgerMetadata,
        progress: Progress,
        pace: Callable[[int], Awaitable[None]],
        entries_in_flight: int,
    ) -> None:
        self._me = me
        self._pool = pool
        self._metadata = metadata
        self._progress = progress
        self._pace = pace
        self._slots = asyncio.Semaphore(entries_in_flight)
        assert metadata.digest_type is not None
        assert metadata.password is not None
        self._digests = DigestManager(metadata.ledger_id, metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)

    async def copy(self, entries: Iterable[int]) -> CopyResult:
        """Copy each entry; entries that no peer gives are in the result."""
        result = CopyResult()
        under_way: set[asyncio.Task[None]] = set()
        try:
            for entry in entries:
                await self._slots.acquire()
                task = asyncio.ensure_future(self._one(EntryId(entry), result))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            while under_way:
                await asyncio.wait(set(under_way))
        finally:
            for task in under_way:
                task.cancel()
        return result

    async def _one(self, entry: EntryId, result: CopyResult) -> None:
        try:
            why = await self._from_peers(entry, peers(self._metadata, entry, self._me))
            if why:
                result.failed[entry] = why
        finally:
            self._slots.release()

    async def _from_peers(self, entry: EntryId, candidates: Sequence[BookieId]) -> str:
        """Empty once the entry is stored here; else why not."""
        said: list[str] = []
        for peer in candidates:
            reply = await self._pool.read(peer, self._metadata.ledger_id, entry, None)
            if reply.answer is not Code.EOK or reply.entry is None:
                said.append(describe([(peer, reply.answer)]))
                continue
            try:
                self._digests.verify(reply.entry, entry)
            except DigestError as error:
                said.append(f"{peer}: {error}")
                continue
            await self._pace(len(reply.entry))
            return await self._store(entry, reply.entry)
        return ", ".join(said) or "no other bookie holds it"

    async def _store(self, entry: EntryId, data: memoryview) -> str:
        add = Add(self._metadata.ledger_id, entry, self._key, data, recovery=True)
        reply = await self._pool.add(self._me, add)
        if reply.answer is not Code.EOK:
            return f"it could not be stored here: {describe([(self._me, reply.answer)])}"
        self._progress.entries_copied += 1
        self._progress.bytes_copied += len(data)
        return ""
