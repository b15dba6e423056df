"""Bringing the missing entries of one ledger back from its peers.

An entry is taken from the first peer that has it *and* whose copy passes the digest, with the password and digest type
of the metadata: a rotten peer must not spread its rot. It is stored under the bytes that the writer made, through this
bookie's own front-end as a recovery add, like any client's.

A peer that did not answer is asked last from then on, so that one that hangs costs a time-out or a few, and not one for
each entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bkbox.client.pool import Add, BookiePool
from bkbox.errors import DigestError, MetadataError
from bkbox.ids import BookieId, EntryId
from bkbox.jobs.work import Work
from bkbox.protocol.events import NoAnswer, describe
from bkbox.protocol.repair import peers
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
        work: Work,
        entries_in_flight: int,
    ) -> None:
        self._me = me
        self._pool = pool
        self._metadata = metadata
        self._work = work
        self._slots = asyncio.Semaphore(entries_in_flight)
        if metadata.digest_type is None or metadata.password is None:
            raise MetadataError(
                f"the metadata of ledger {metadata.ledger_id} has no digest type or no password: nothing that a peer "
                f"sends could be checked"
            )
        self._mute: set[BookieId] = set()
        self._digests = DigestManager(metadata.ledger_id, metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)

    async def copy(self, entries: Iterable[int]) -> CopyResult:
        """Copy each entry; entries that no peer gives are in the result. Raises JobCancelledError."""
        result = CopyResult()
        under_way: set[asyncio.Task[None]] = set()
        errors: list[BaseException] = []

        def ended(task: asyncio.Task[None]) -> None:
            under_way.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                errors.append(error)

        try:
            for entry in entries:
                await self._slots.acquire()
                if errors:
                    break
                task = asyncio.ensure_future(self._one(EntryId(entry), result))
                under_way.add(task)
                task.add_done_callback(ended)
            while under_way:
                await asyncio.wait(set(under_way))
        finally:
            for task in under_way:
                task.cancel()
        if errors:  # what raised was not copied, and is not in the result
            raise errors[0]
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
        for peer in sorted(candidates, key=self._mute.__contains__):
            reply = await self._pool.read(peer, self._metadata.ledger_id, entry, None)
            if isinstance(reply.answer, NoAnswer):
                self._mute.add(peer)
            if reply.answer is not Code.EOK or reply.entry is None:
                said.append(describe([(peer, reply.answer)]))
                continue
            try:
                self._digests.verify(reply.entry, entry)
            except DigestError as error:
                said.append(f"{peer}: {error}")
                continue
            size = len(reply.entry)
            await self._work.turn(disk_bytes=size, network_bytes=size)
            return await self._store(entry, reply.entry)
        return ", ".join(said) or "no other bookie holds it"

    async def _store(self, entry: EntryId, data: memoryview) -> str:
        add = Add(self._metadata.ledger_id, entry, self._key, data, recovery=True)
        reply = await self._pool.add(self._me, add)
        if reply.answer is not Code.EOK:
            return f"it could not be stored here: {describe([(self._me, reply.answer)])}"
        self._work.did(entries=1, size=len(data))
        return ""
