"""Copying the entries of one ledger, over a pool of the test's own: what went wrong is never taken for copied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from bkbox.client.connection.adds import AddFrames
from bkbox.client.connection.response_matcher import BATCH_ENTRIES_AT
from bkbox.errors import BugError, JobCancelledError
from bkbox.protocol.events import NoAnswer
from bkbox.repair.copy.byte_semaphore import ByteWindow
from bkbox.repair.copy.copier import Copier, in_runs
from bkbox.wire import v2
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from tests.jobs.works import FreeWork

ME, PEER = BookieId("me:1"), BookieId("peer:1")
METADATA = LedgerMetadata(
    LedgerId(3),
    2,
    2,
    1,
    LedgerState.CLOSED,
    (Fragment(EntryId(0), (ME, PEER)),),
    last_entry=EntryId(9),
    length=1000,
    digest_type=DigestType.CRC32,
)


class Pool:
    """Peers have every entry, and no batches; what was stored here is in ``stored``."""

    takes_v2_adds = False

    def __init__(self, on_store: Callable[[int], None] = lambda _entry: None) -> None:
        self.stored: list[int] = []
        self._on_store = on_store
        self._digests = DigestManager(LedgerId(3), DigestType.CRC32, b"")

    def entry(self, entry: int) -> bytes:
        return self._digests.package(entry, NO_ENTRY, 0, b"x" * 100)

    async def read_batch(self, *_asked: object) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(answer=NoAnswer.CONNECTION_LOST, response=None)

    async def read(self, _peer: BookieId, _ledger: int, entry: EntryId, _key: object) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(answer=Code.EOK, entry=memoryview(self.entry(entry)))

    def add_packaged(self, _me: BookieId, adds: Any, answered: Any) -> None:
        for add in adds:
            self._on_store(add.entry_id)
            self.stored.append(add.entry_id)
        answered(0, len(adds) - 1, Code.EOK, 1)


class BatchPool(Pool):
    """The same with batches, of which entry 4 is rotten, and frames for adds."""

    takes_v2_adds = True

    async def read_batch(
        self, _peer: BookieId, _ledger: int, first: int, count: int, _size: int
    ) -> Any:
        await asyncio.sleep(0)
        body = bytes(BATCH_ENTRIES_AT)
        for entry in range(first, first + count):
            data = bytearray(self.entry(entry))
            data[-1] ^= entry == 4
            body += len(data).to_bytes(4, "big") + data
        return SimpleNamespace(answer=Code.EOK, response=body)

    def add_run(self, _me: BookieId, frames: AddFrames, answered: Any) -> None:
        for place, entry in enumerate(frames.entries):
            frame = bytes(frames.data[frames.offsets[place] : frames.offsets[place + 1]])
            request = v2.decode_request(memoryview(frame)[4:])
            assert isinstance(request, v2.AddRequest)
            assert request.recovery
            assert request.master_key == master_key(b"")
            assert bytes(request.entry) == self.entry(entry)
            self.stored.append(entry)
        answered(0, len(frames.entries) - 1, Code.EOK, 1)


def copy(pool: Pool, work: FreeWork, metadata: LedgerMetadata = METADATA) -> dict[int, str]:
    async def go() -> dict[int, str]:
        window = ByteWindow(10_000)
        copier = Copier(ME, cast(Any, pool), metadata, work, 3, window)
        try:
            return (await copier.copy([range(10)])).failed
        finally:
            await asyncio.wait_for(window.take(10_000), 5)  # all room is given back

    return asyncio.run(go())


@pytest.mark.parametrize("kind", [Pool, BatchPool])
@pytest.mark.parametrize("digest", DigestType)
def test_every_entry_is_paid_for_and_counted(kind: type[Pool], digest: DigestType) -> None:
    work, pool = FreeWork(), kind()
    pool._digests = DigestManager(LedgerId(3), digest, b"")
    if digest is DigestType.DUMMY and kind is BatchPool:
        return  # nobody could tell that an entry is rotten
    assert copy(pool, work, replace(METADATA, digest_type=digest)) == {}
    assert sorted(pool.stored) == list(range(10))
    assert work.done["entries"] == 10
    assert work.done["size"] == work.network_bytes == work.disk_bytes > 1000


@pytest.mark.parametrize("kind", [Pool, BatchPool])
def test_a_cancelled_copy_is_no_success(kind: type[Pool]) -> None:
    work, pool = FreeWork(cancel_at=3), kind()
    with pytest.raises(JobCancelledError):
        copy(pool, work)
    assert len(pool.stored) < 10


def test_a_fault_is_no_success_either() -> None:
    def fail(entry: int) -> None:
        if entry == 5:
            raise BugError("oh")

    with pytest.raises(BugError, match="oh"):
        copy(Pool(fail), FreeWork())


class RefusingPool(Pool):
    """This bookie cannot store entry 5."""

    def add_packaged(self, _me: BookieId, adds: Any, answered: Any) -> None:
        for place, add in enumerate(adds):
            if add.entry_id != 5:
                self.stored.append(add.entry_id)
            answered(place, place, Code.EIO if add.entry_id == 5 else Code.EOK, 1)


def test_what_cannot_be_stored_here_is_told_and_stops_no_other() -> None:
    work, pool = FreeWork(), RefusingPool()
    failed = copy(pool, work)
    assert list(failed) == [5]
    assert "could not be stored here" in failed[5]
    assert sorted(pool.stored) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert work.done["entries"] == 9


def test_entries_apart() -> None:
    assert list(in_runs([1, 2, 3, 7, 9, 10])) == [range(1, 4), range(7, 8), range(9, 11)]
    assert list(in_runs([])) == []
