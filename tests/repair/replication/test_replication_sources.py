"""Where copies come from: never from a rotten one, and not from one that hangs while another has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.connection.response_matcher import Reply
from bkbox.errors import LedgerError, NoSuchEntryError, UnknownEntryError
from bkbox.protocol.events import NoResponse
from bkbox.protocol.rereplication import FragmentRepair
from bkbox.repair.copy.byte_semaphore import ByteWindow
from bkbox.repair.copy.entry_source import EntrySource
from bkbox.repair.copy.fragment_copy import copy_fragment
from bkbox.repair.operator_hints import advice_for
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from tests.harness import raw
from tests.harness.processes import BookieProcess
from tests.jobs.works import FreeWork
from tests.repair.copies import PASSWORD, Cluster, Hands, hands


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("sources"))
    found.start(3)
    yield found
    found.close()


async def one_lost(our: Hands, entries: int = 40, *sizes: int) -> tuple[LedgerId, list[str]]:
    """A ledger one of whose three bookies is lost, the first, and the others."""
    ledger = await our.closed(entries, *sizes)
    await our.misname(ledger, "127.0.0.1:1")
    members = (await our.metadata(ledger)).fragments[0].ensemble
    await our.store.under_replication.mark(ledger, ["127.0.0.1:1"], 1)
    return ledger, [each for each in members if each != "127.0.0.1:1"]


def rot(bookie: str, ledger: int, entry: int) -> None:
    """Its copy has a wrong digest from now on: the raw client makes CRC32 where the ledger has CRC32C."""
    with raw.RawClient(int(bookie.rpartition(":")[2])) as client:
        flags = raw.RECOVERY | raw.HIGH_PRIORITY
        key = raw.master_key(PASSWORD)
        assert client.add(ledger, entry, b"rotten", flags, key) == raw.EOK


@pytest.mark.parametrize("entry", [0, 17, 39])
def test_a_rotten_copy_is_not_spread(bookies: Cluster, entry: int) -> None:
    async def scenario() -> None:
        async with hands(bookies.uri) as our:
            ledger, holders = await one_lost(our)
            rot(holders[0], ledger, entry)
            await our.work_off(our.worker())
            metadata = await our.metadata(ledger)
            (new,) = metadata.bookies() - set(holders)
            for bookie in (holders[1], new):
                await our.assert_copy(metadata, bookie, range(40))

    asyncio.run(scenario())


@pytest.mark.parametrize("write_quorum", [2, 3])
def test_where_all_copies_are_rotten_it_is_hopeless(bookies: Cluster, write_quorum: int) -> None:
    """Entry 17 of the striped ledger is on its last bookie and on the first, which is lost."""

    async def scenario() -> None:
        async with hands(bookies.uri) as our:
            ledger, holders = await one_lost(our, 40, 3, write_quorum, 2)
            for bookie in holders[1 - write_quorum :]:
                rot(bookie, ledger, 17)
            before = await our.store.read_ledger(ledger)
            work = FreeWork()
            worker = our.worker(work)
            for _ in range(3):
                assert not await worker.round()
            assert await our.store.read_ledger(ledger) == before, (
                "no bookie is named that has not all"
            )
            reason, _ = work.blockers[ledger]
            assert "entry 17 " in reason
            assert reason.count("the digest does not match") == write_quorum - 1
            assert "quarantined" in work.steps[-1]
            assert await our.store.under_replication.count() == 1
            await our.store.delete_ledger(ledger)
            await our.work_off(our.worker())

    asyncio.run(scenario())


def test_whoever_hangs_is_not_waited_for_entry_by_entry(bookies: Cluster) -> None:
    """It cannot say that it has no copy, either: no entry is given up while it hangs. As a bookie that hangs takes no
    new ledgers after a while, there may be none to copy to until it is back."""

    async def scenario() -> None:
        async with hands(bookies.uri, read_timeout_s=1.0, connect_timeout_s=1.0) as our:
            ledger, holders = await one_lost(our, 60)
            striped = await our.closed(60, 3, 2, 2, digest=DigestType.HMAC)
            await our.misname(striped, "127.0.0.1:1")
            await our.store.under_replication.mark(striped, ["127.0.0.1:1"], 1)
            hanging = process_of(bookies, holders[0])
            stopped = hanging.children()  # its registration stays, however long this takes
            for process in stopped:
                process.suspend()
            work = FreeWork()
            worker = our.worker(work)
            began = time.monotonic()
            advices = set()
            try:
                for _ in range(3):
                    await worker.round()
                    advices |= {advice for _, advice in work.blockers.values()}
            finally:
                for process in stopped:
                    process.resume()
            assert time.monotonic() - began < 60
            assert advice_for(NoSuchEntryError("")) not in advices
            await our.work_off(worker)
            await our.assert_whole(ledger, 60)
            await our.assert_whole(striped, 60)
            assert work.blockers == {}

    asyncio.run(scenario())


NO, LIMBO, LATE = Code.ENOENTRY, Code.EUNKNOWNLEDGERSTATE, NoResponse.TIMEOUT


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ((NO, NO), NoSuchEntryError),
        ((NO, LATE), UnknownEntryError),
        ((LATE, NO), UnknownEntryError),
        ((NO, LIMBO), UnknownEntryError),
        ((Code.EIO, NO), UnknownEntryError),
    ],
)
def test_what_somebody_may_have_is_not_hopeless(
    answers: tuple[Code | NoResponse, ...], error: type[LedgerError]
) -> None:
    """Who is not registered need not be waited for."""
    names = [BookieId("a:1"), BookieId("b:1")]
    metadata = LedgerMetadata(
        LedgerId(3),
        2,
        2,
        2,
        LedgerState.CLOSED,
        (Fragment(EntryId(0), tuple(names)),),
        last_entry=EntryId(0),
        digest_type=DigestType.CRC32C,
    )

    def read(bookie: BookieId, *_asked: object) -> asyncio.Future[Reply]:
        reply = asyncio.get_running_loop().create_future()
        reply.set_result(Reply(answers[names.index(bookie)]))
        return reply

    async def copy(registered: list[BookieId]) -> None:
        source = EntrySource(pool, metadata, registered, {})
        repair = FragmentRepair(EntryId(0), range(1), tuple(names), (1,), {})
        await copy_fragment(source, repair, {1: BookieId("c:1")}, FreeWork(), ByteWindow(1000))

    pool: Any = SimpleNamespace(accepts_v2_adds=True, read=read)
    with pytest.raises(error):
        asyncio.run(copy(names))
    with pytest.raises(NoSuchEntryError):
        asyncio.run(copy([]))


def process_of(cluster: Cluster, bookie: str) -> BookieProcess:
    return next(each for each in cluster.bookies if each.bookie_id == bookie)
