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
from bkbox.errors import AddFailedError, BugError, JobCancelledError, NoSuchEntryError
from bkbox.protocol.events import NoResponse
from bkbox.protocol.repair import joined
from bkbox.protocol.rereplication import FragmentRepair
from bkbox.repair.copy.byte_semaphore import ByteWindow
from bkbox.repair.copy.entry_source import EntrySource
from bkbox.repair.copy.fragment_copy import copy_fragment
from bkbox.repair.copy.local_copy import CopyResult, copy_to_local
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

    accepts_v2_adds = False

    def __init__(self, on_store: Callable[[int], None] = lambda _entry: None) -> None:
        self.stored: list[int] = []
        self.asked: list[tuple[BookieId, int]] = []
        self._on_store = on_store
        self._digests = DigestManager(LedgerId(3), DigestType.CRC32, b"")

    def entry(self, entry: int) -> bytes:
        return self._digests.package(entry, NO_ENTRY, 0, b"x" * 100)

    async def read_batch(self, *_asked: object) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(status=NoResponse.CONNECTION_LOST, response=None)

    def read(self, peer: BookieId, _ledger: int, entry: int, _key: object) -> asyncio.Future[Any]:
        self.asked.append((peer, entry))
        return asyncio.ensure_future(self._read(peer, entry))

    async def _read(self, _peer: BookieId, entry: int) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(status=Code.EOK, entry=memoryview(self.entry(entry)))

    def add_packaged(self, _me: BookieId, adds: Any, answered: Any) -> None:
        for add in adds:
            self._on_store(add.entry_id)
            self.stored.append(add.entry_id)
        answered(0, len(adds) - 1, Code.EOK, 1)


class BatchPool(Pool):
    """The same with batches, of which entry 4 is rotten, and frames for adds."""

    accepts_v2_adds = True

    async def read_batch(
        self, _peer: BookieId, _ledger: int, first: int, count: int, _size: int
    ) -> Any:
        await asyncio.sleep(0)
        body = bytes(BATCH_ENTRIES_AT)
        for entry in range(first, first + count):
            data = bytearray(self.entry(entry))
            data[-1] ^= entry == 4
            body += len(data).to_bytes(4, "big") + data
        return SimpleNamespace(status=Code.EOK, response=body)

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


def copy(
    pool: Pool,
    work: FreeWork,
    metadata: LedgerMetadata = METADATA,
    *,
    window: ByteWindow | None = None,
    missing: range = range(10),
    run_entries: int = 3,
) -> CopyResult:
    window = ByteWindow(10_000) if window is None else window

    async def go() -> CopyResult:
        try:
            return await copy_to_local(
                ME, cast(Any, pool), metadata, [missing], work, window, run_entries
            )
        finally:
            await asyncio.wait_for(window.acquire(10_000), 5)  # all room is given back

    return asyncio.run(go())


@pytest.mark.parametrize("kind", [Pool, BatchPool])
@pytest.mark.parametrize("digest", DigestType)
def test_every_entry_is_paid_for_and_counted(kind: type[Pool], digest: DigestType) -> None:
    work, pool = FreeWork(), kind()
    pool._digests = DigestManager(LedgerId(3), digest, b"")
    if digest is DigestType.DUMMY and kind is BatchPool:
        return  # nobody could tell that an entry is rotten
    assert copy(pool, work, replace(METADATA, digest_type=digest)).failed == {}
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
    failed = copy(pool, work).failed
    assert list(failed) == [5]
    assert "could not be stored here" in failed[5]
    assert sorted(pool.stored) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert work.done["entries"] == 9


def test_entries_apart() -> None:
    entries = (range(entry, entry + 1) for entry in [1, 2, 3, 7, 9, 10])
    assert list(joined(entries)) == [range(1, 4), range(7, 8), range(9, 11)]
    assert list(joined([])) == []


THIRD = BookieId("third:1")
STRIPED = replace(
    METADATA,
    ensemble_size=3,
    fragments=(Fragment(EntryId(0), (ME, PEER, THIRD)),),
    last_entry=EntryId(99),
)


class PartialPool(Pool):
    """``without``: the answer of a peer that gives no entries."""

    def __init__(self, without: dict[BookieId, Code | NoResponse]) -> None:
        super().__init__()
        self.without = without

    async def _read(self, peer: BookieId, entry: int) -> Any:
        if (answer := self.without.get(peer)) is None:
            return await super()._read(peer, entry)
        await asyncio.sleep(0)
        return SimpleNamespace(status=answer, entry=None)


def test_a_peer_that_hangs_is_asked_once_for_each_entry_of_the_first_group_only() -> None:
    metadata = replace(STRIPED, write_quorum=3)
    pool = PartialPool({PEER: NoResponse.TIMEOUT})
    found = copy(pool, FreeWork(), metadata, missing=range(100), run_entries=8)
    assert found.failed == {}
    assert sorted(pool.stored) == list(range(100))
    asked = [entry for peer, entry in pool.asked if peer == PEER]
    assert len(asked) == len(set(asked)) <= 4


def test_what_no_peer_has_is_told_and_stops_no_other() -> None:
    pool = PartialPool({THIRD: Code.ENOENTRY})
    found = copy(pool, FreeWork(), STRIPED, missing=range(12))
    assert sorted(found.failed) == [2, 5, 8, 11], "the two of us have them"
    assert found.failed[2] == "third:1 answered ENOENTRY"
    assert found.describe().startswith("entry 2: third:1 answered ENOENTRY; entry 5: ")
    assert found.describe().endswith("; and 1 more entry")
    assert sorted(pool.stored) == [entry for entry in range(12) if entry % 3 != 2]


class MeasuringPool(Pool):
    """Entries of 100 KB; counts how many are on their way, from the request to the answer of the add."""

    def __init__(self) -> None:
        super().__init__()
        self.in_flight = self.most = 0

    def entry(self, entry: int) -> bytes:
        return self._digests.package(entry, NO_ENTRY, 0, b"x" * 100_000)

    async def _read(self, peer: BookieId, entry: int) -> Any:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        for _ in range(5):
            await asyncio.sleep(0)
        return await super()._read(peer, entry)

    def add_packaged(self, me: BookieId, adds: Any, answered: Any) -> None:
        self.in_flight -= len(adds)
        super().add_packaged(me, adds, answered)


def test_scattered_entries_stay_within_the_window() -> None:
    pool = MeasuringPool()
    found = copy(
        pool,
        FreeWork(),
        STRIPED,
        window=ByteWindow(2 << 20),
        missing=range(100),
        run_entries=64,
    )
    assert found.failed == {}
    assert sorted(pool.stored) == list(range(100))
    assert 8 < pool.most <= (2 << 20) // 100_000


def fragment(pool: Pool, work: FreeWork) -> None:
    """Copy the first fragment to a new bookie in the place of the second."""

    async def go() -> None:
        source = EntrySource(cast(Any, pool), METADATA, [ME, PEER], {})
        repair = FragmentRepair(EntryId(0), range(10), (ME, PEER), (1,), {})
        await copy_fragment(source, repair, {1: THIRD}, work, ByteWindow(10_000))

    asyncio.run(go())


@pytest.mark.parametrize("kind", [Pool, BatchPool])
def test_a_fragment_is_paid_for_on_the_network_and_counted(kind: type[Pool]) -> None:
    work, pool = FreeWork(), kind()
    fragment(pool, work)
    assert sorted(pool.stored) == list(range(10))
    assert work.done["entries"] == 10
    assert work.network_bytes == 2 * work.done["size"] > 2000
    assert work.disk_bytes == 0


def test_a_fragment_ends_at_the_first_entry_that_cannot_be_copied() -> None:
    with pytest.raises(AddFailedError, match="entry 5 of ledger 3 could not be written: third:1"):
        fragment(RefusingPool(), FreeWork())
    pool = PartialPool({ME: Code.ENOENTRY, PEER: Code.ENOENTRY})
    with pytest.raises(NoSuchEntryError, match="entry 0 of ledger 3: me:1 answered ENOENTRY, peer"):
        fragment(pool, FreeWork())
    assert pool.stored == []
