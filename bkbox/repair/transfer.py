"""Copies the entries of one fragment from the bookies that have them to others.

An entry is taken from the nearest bookie that has it *and* whose copy passes the digest, with the password and digest
type of the metadata: a rotten replica must not spread its rot. It is sent on under the bytes that the writer made, as a
recovery add. Where every bookie holds every entry, entries are read in batches; a window of bytes bounds what is on its
way, so that the network is busy whatever the size of entries.

Bookies that are not registered are asked, too, but last: one that lost its registration may still serve.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bkbox.client.matching import BATCH_ENTRIES_AT
from bkbox.client.pool import Add, BookiePool
from bkbox.errors import (
    AddFailedError,
    DigestError,
    MetadataError,
    NoSuchEntryError,
    UnknownEntryError,
)
from bkbox.ids import BookieId, EntryId
from bkbox.jobs.work import Work
from bkbox.protocol.events import Answer, NoAnswer, describe
from bkbox.protocol.rereplication import FragmentRepair, Transfer, sources, transfers
from bkbox.repair.window import ByteWindow
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.ledger import LedgerMetadata

_BATCH_BYTES = 1 << 20
_RUN_ENTRIES = 1_024
_GROUP_ENTRIES = 64
_FIRST_GUESS_BYTES = 64 << 10
"""What an entry is taken to have before one was seen."""

_ENTRY_OVERHEAD_BYTES = 4_096
"""What an entry on its way counts for beside its bytes: it bounds how many small ones wait in a bookie's queue."""

_TRIES_WHEN_CROWDED = 6
_CROWDED_PAUSE_S = 0.1

_SIZE = struct.Struct(">i")


class Sources:
    """Where the entries of one ledger come from; what was learnt of its bookies serves all its fragments."""

    def __init__(
        self,
        pool: BookiePool,
        metadata: LedgerMetadata,
        registered: Collection[BookieId],
        distances: Mapping[BookieId, int],
    ) -> None:
        """Raises MetadataError for metadata without digest type or password: nothing could be checked."""
        if metadata.digest_type is None or metadata.password is None:
            raise MetadataError(
                f"the metadata of ledger {metadata.ledger_id} has no digest type or no password: nothing that is "
                f"copied could be checked"
            )
        self.ledger = metadata.ledger_id
        self.write_quorum = metadata.write_quorum
        self.key = master_key(metadata.password)
        self._pool = pool
        self._registered = registered
        self._distances = distances
        self._digests = DigestManager(metadata.ledger_id, metadata.digest_type, metadata.password)
        self._mute: set[BookieId] = set()
        self._without_batches: set[BookieId] = set()

    def order(
        self, repair: FragmentRepair, entry: int, targets: Collection[BookieId]
    ) -> list[BookieId]:
        """Whom to ask for an entry: whoever did not answer before or is not registered last, else the nearest first."""
        return sorted(
            (each for each in sources(repair, self.write_quorum, entry) if each not in targets),
            key=lambda each: (
                each not in self._registered,
                each in self._mute,
                self._distances.get(each, 0),
            ),
        )

    async def read_run(
        self, candidates: Sequence[BookieId], entries: range
    ) -> list[memoryview | bytes]:
        """The entry at the beginning of a run and as many of those after it as come with it, as they are stored; where
        every bookie holds every entry.

        Raises NoSuchEntryError: no bookie that is there has it; UnknownEntryError: one of them cannot say.
        """
        if len(entries) > 1:
            for bookie in candidates:
                if (
                    bookie in self._registered
                    and bookie not in self._without_batches | self._mute
                    and (found := await self._batch(bookie, entries))
                ):
                    return found
        return [await self._read(candidates, EntryId(entries.start))]

    async def read_each(
        self, candidates: Mapping[int, Sequence[BookieId]]
    ) -> list[memoryview | bytes]:
        """All of these entries, each with whom to ask for it, in their order. Raises as ``read_run``."""
        asked = [
            self._pool.read(bookies[0], self.ledger, entry, None) if bookies else None
            for entry, bookies in candidates.items()
        ]
        found: list[memoryview | bytes] = []
        for (entry, bookies), reply in zip(candidates.items(), asked, strict=True):
            data: memoryview | bytes | None = None if reply is None else (await reply).entry
            if data is None or not self._is_right(data, entry):
                data = await self._read(bookies, EntryId(entry))
            found.append(data)
        return found

    def _is_right(self, data: memoryview | bytes, entry: int) -> bool:
        try:
            self._digests.verify(data, entry)
        except DigestError:
            return False
        return True

    async def _batch(self, bookie: BookieId, entries: range) -> list[memoryview | bytes]:
        reply = await self._pool.read_batch(
            bookie, self.ledger, entries.start, len(entries), _BATCH_BYTES
        )
        if reply.answer in (NoAnswer.TIMEOUT, NoAnswer.CONNECTION_LOST):
            self._without_batches.add(bookie)  # as of those that do not know batch reads
        body = reply.response
        if not isinstance(body, bytes):
            return []
        verified = self._digests.verify_batch(body, BATCH_ENTRIES_AT, entries.start, len(entries))
        view, at = memoryview(body), BATCH_ENTRIES_AT
        found: list[memoryview | bytes] = []
        for _ in verified:
            start = at + _SIZE.size
            at = start + _SIZE.unpack_from(body, at)[0]
            found.append(view[start:at])
        return found

    async def _read(self, candidates: Sequence[BookieId], entry: EntryId) -> memoryview | bytes:
        said: list[tuple[BookieId, Answer | None]] = []
        unsure = False
        for bookie in candidates:
            reply = await self._pool.read(bookie, self.ledger, entry, None)
            answer: Answer = reply.answer
            if isinstance(answer, NoAnswer):
                self._mute.add(bookie)
            else:
                self._mute.discard(bookie)
            if reply.entry is not None:
                if self._is_right(reply.entry, entry):
                    return reply.entry  # also beside the code of a bookie in limbo
                answer = NoAnswer.BAD_DIGEST
            said.append((bookie, answer))
            has_none = answer is NoAnswer.BAD_DIGEST or answer.evidence is Evidence.NEGATIVE
            unsure = unsure or (bookie in self._registered and not has_none)
        text = (
            f"entry {entry} of ledger {self.ledger}: {describe(said) or 'no other bookie holds it'}"
        )
        raise UnknownEntryError(text) if unsure else NoSuchEntryError(text)


class FragmentCopier:
    """Copies what one fragment needs."""

    def __init__(
        self,
        pool: BookiePool,
        given: Sources,
        repair: FragmentRepair,
        work: Work,
        window: ByteWindow,
    ) -> None:
        self._pool = pool
        self._sources = given
        self._repair = repair
        self._work = work
        self._window = window
        self._largest = _FIRST_GUESS_BYTES
        self._was_seen = False

    async def copy(self, new: Mapping[int, BookieId]) -> None:
        """Copy everything, or raise at the first entry that could not be. ``new``: the bookies for lost positions.

        Raises NoSuchEntryError, UnknownEntryError, AddFailedError, JobCancelledError.
        """
        under_way: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []

        def ended(task: asyncio.Task[None]) -> None:
            under_way.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                failures.append(error)

        try:
            for transfer in grouped(transfers(self._repair, self._sources.write_quorum, new)):
                size = self._guess(len(transfer.entries))
                await self._window.take(size)
                if failures:
                    self._window.give(size)
                    break
                task = asyncio.ensure_future(self._one(transfer, size))
                under_way.add(task)
                task.add_done_callback(ended)
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
        """What so many entries hold of the window."""
        return min(count * (self._largest + _ENTRY_OVERHEAD_BYTES), _BATCH_BYTES)

    async def _one(self, group: Group, held: int) -> None:
        try:
            if isinstance(group.entries, range):
                await self._copy_run(group.entries, group.targets)
            else:
                await self._copy_each(group.entries, group.targets)
        finally:
            self._window.give(held)

    async def _copy_run(self, entries: range, targets: Sequence[BookieId]) -> None:
        while entries:
            candidates = self._sources.order(self._repair, entries.start, targets)
            found = await self._sources.read_run(candidates, entries)
            await self._store(entries[: len(found)], found, targets)
            entries = entries[len(found) :]

    async def _copy_each(self, entries: Sequence[int], targets: Sequence[BookieId]) -> None:
        order = self._sources.order
        candidates = {entry: order(self._repair, entry, targets) for entry in entries}
        await self._store(entries, await self._sources.read_each(candidates), targets)

    async def _store(
        self,
        entries: Sequence[int],
        found: Sequence[memoryview | bytes],
        targets: Sequence[BookieId],
    ) -> None:
        size = sum(map(len, found))
        self._saw(max(map(len, found)))
        await self._work.turn(network_bytes=size * (1 + len(targets)))
        await asyncio.gather(*(self._store_at(each, entries, found) for each in targets))
        self._work.did(entries=len(found) * len(targets), size=size * len(targets))

    def _saw(self, size: int) -> None:
        self._largest = max(size, self._largest) if self._was_seen else size
        self._was_seen = True

    async def _store_at(
        self, target: BookieId, entries: Sequence[int], found: Sequence[memoryview | bytes]
    ) -> None:
        adds = [
            Add(self._sources.ledger, entry, self._sources.key, data, recovery=True)
            for entry, data in zip(entries, found, strict=True)
        ]
        for tries in range(_TRIES_WHEN_CROWDED):
            if tries:
                await asyncio.sleep(_CROWDED_PAUSE_S * 2**tries)
            answer = await self._send(target, adds)
            if answer is not Code.ETOOMANYREQUESTS:
                break
        if answer is not Code.EOK:
            which = (
                f"entries {entries[0]} to {entries[-1]}"
                if len(entries) > 1
                else f"entry {entries[0]}"
            )
            raise AddFailedError(
                f"{which} of ledger {self._sources.ledger} could not be written: {describe([(target, answer)])}"
            )

    async def _send(self, target: BookieId, adds: Sequence[Add]) -> Answer:
        """EOK if all of them are stored, else the first other answer."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        left = len(adds)
        worst: Answer = Code.EOK

        def answered(first: int, last: int, answer: Answer, _connection: int) -> None:
            nonlocal left, worst
            left -= last - first + 1
            if worst is Code.EOK:
                worst = answer
            if left == 0 and not done.done():
                done.set_result(worst)

        self._pool.add_packaged(target, adds, answered)
        return await done


class Group(NamedTuple):
    """Entries that go to the same bookies together: a run, or some that are apart, ascending."""

    entries: range | list[int]
    targets: tuple[BookieId, ...]


def grouped(given: Iterable[Transfer]) -> Iterator[Group]:
    """Long runs are cut, single entries for the same bookies put together."""
    waiting: dict[tuple[BookieId, ...], list[int]] = {}
    for entries, targets in given:
        if len(entries) > 1:
            for start in range(0, len(entries), _RUN_ENTRIES):
                yield Group(entries[start : start + _RUN_ENTRIES], targets)
            continue
        group = waiting.setdefault(targets, [])
        group.append(entries.start)
        if len(group) == _GROUP_ENTRIES:
            yield Group(waiting.pop(targets), targets)
    for targets, group in waiting.items():
        yield Group(group, targets)
