"""Bringing the missing entries of one ledger back from its peers.

An entry is taken from the first peer that has it *and* whose copy passes the digest, with the password and digest type
of the metadata: a rotten peer must not spread its rot. It is stored under the bytes that the writer made, through this
bookie's own front-end as a recovery add, like any client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bkbox.client.transport import Connections
from bkbox.errors import DigestError, PeerError
from bkbox.ids import BookieId, EntryId
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
        connections: Connections,
        metadata: LedgerMetadata,
        progress: Progress,
        pace: Callable[[int], Awaitable[None]],
        entries_in_flight: int,
    ) -> None:
        self._me = me
        self._connections = connections
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
            try:
                code, data = await self._connections.read(peer, self._metadata.ledger_id, entry)
                if code is not Code.EOK or data is None:
                    said.append(f"{peer} answered {code.name}")
                    continue
                self._digests.verify(data, entry)
            except (PeerError, DigestError) as error:
                said.append(f"{peer}: {error}")
                continue
            await self._pace(len(data))
            return await self._store(data)
        return ", ".join(said) or "no other bookie holds it"

    async def _store(self, data: bytes) -> str:
        try:
            code = await self._connections.add(self._me, self._key, data, recovery=True)
        except PeerError as error:
            return f"it could not be stored here: {error}"
        if code is not Code.EOK:
            return f"it could not be stored here: {code.name}"
        self._progress.entries_copied += 1
        self._progress.bytes_copied += len(data)
        return ""
