"""ZooKeeper away: at the start, for a while, for good; the event loop goes on and nothing is left."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import HandleClosedError, MetadataUnavailableError
from bkbox.metadata import connect, init_cluster
from bkbox.metadata.zookeeper import ZooKeeperStore
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.harness.processes import free_port
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import Proxy, ZooKeeper, expire
from tests.metadata.metadata_peer import ledger_of
from tests.metadata.until import until_bookies
from tests.metadata.zookeeper.test_zk_registration import open_store

ONE = LedgerId(1)
BOOKIE = BookieId("b:1")


@pytest.fixture(autouse=True)
def nothing_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No thread stays behind, and nobody but bkbox writes to the log."""
    caplog.set_level(logging.DEBUG)
    before = set(threading.enumerate())
    yield
    wait_for(lambda: set(threading.enumerate()) <= before, "threads that are left")
    names = {record.name.partition(".")[0] for record in caplog.records}
    assert names <= {"bkbox", "asyncio"}
    assert not [record for record in caplog.records if record.exc_info]


@asynccontextmanager
async def new_store(zookeeper: ZooKeeper) -> AsyncIterator[ZooKeeperStore]:
    root = zookeeper.new_root()
    await init_cluster(zookeeper.uri(root))
    async with await open_store(zookeeper, root) as store:
        yield store


# ---- at the start -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["nobody listens", "no answer", "no such host"])
def test_away_at_the_start(zookeeper: ZooKeeper, how: str) -> None:
    uri = zookeeper.uri()
    if how == "nobody listens":
        uri = zookeeper.uri(port=free_port())
    elif how == "no such host":
        uri = "zk://host.invalid:2181/ledgers"

    async def scenario() -> None:
        text = r"ZooKeeper \(.*\) cannot be reached after 0.3 s: check"
        for opening in (connect, init_cluster):
            with pytest.raises(MetadataUnavailableError, match=text):
                await opening(uri, 0.3)

    if how == "no answer":
        zookeeper.suspend()
    try:
        asyncio.run(scenario())
    finally:
        zookeeper.resume()


def test_a_start_that_is_given_up(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        starting = asyncio.create_task(connect(zookeeper.uri(port=free_port()), 600))
        await asyncio.sleep(0.2)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(scenario())


def test_one_of_several_servers_is_enough(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        root = zookeeper.new_root()
        await init_cluster(zookeeper.uri(root))
        uri = f"zk://127.0.0.1:{free_port()};{zookeeper.address}{root}"
        async with await connect(uri, 20) as store:
            await store.create_ledger(ledger_of(1))

    asyncio.run(scenario())


# ---- for a while --------------------------------------------------------------------------------


def test_for_a_while_under_one_session(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as store:
            created = await store.create_ledger(ledger_of(1))
            await store.register(BOOKIE, rpc_service_info("b", 1), read_only=False)
            watch = store.watch_ledger(ONE)
            assert await anext(watch) == created
            session = store._zk.session_id
            zookeeper.suspend()
            patience, store._zk.wait_s = store._zk.wait_s, 0.3
            try:
                turns = 0

                async def tick() -> None:
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0.001)

                ticking = asyncio.create_task(tick())
                for attempt in (
                    store.read_ledger(ONE),
                    store.write_ledger(ledger_of(1), 0),
                    store.bookies(),
                    store.new_ledger_id(),
                    anext(store.ledger_ranges()),
                ):
                    with pytest.raises(MetadataUnavailableError, match=r"after 0.3 s") as raised:
                        await attempt
                    assert raised.value.may_have_taken_effect
                assert turns > 10, "the event loop goes on"
                ticking.cancel()
                waiting = asyncio.ensure_future(anext(watch))
            finally:
                zookeeper.resume()
            store._zk.wait_s = patience
            # The write that was given up was on its way: it did take effect, and the watch tells.
            async with asyncio.timeout(20):
                changed = await waiting
            assert changed is not None
            assert changed.version == 1
            async with store._zk.deadline():
                await store._zk.sync("/")
            assert await store.read_ledger(ONE) == changed
            assert store._zk.session_id == session
            assert BOOKIE in await store.bookies()
            await watch.aclose()

    asyncio.run(scenario())


def test_for_longer_than_the_session(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        root = zookeeper.new_root()
        await init_cluster(zookeeper.uri(root))
        async with (
            Proxy(zookeeper.port) as proxy,
            await open_store(
                zookeeper, root, port=proxy.port, wait_s=20, session_timeout_s=0.4
            ) as store,
            await connect(zookeeper.uri(root)) as observer,
        ):
            created = await store.create_ledger(ledger_of(1))
            mine = await store.register(BOOKIE, rpc_service_info("b", 1), read_only=True)
            session = store._zk.session_id
            watch = store.watch_ledger(ONE)
            assert await anext(watch) == created
            waiting = asyncio.ensure_future(anext(watch))
            proxy.is_away = True
            proxy.cut()
            await store._zk.until_disconnected()
            reading = asyncio.create_task(store.read_ledger(ONE))
            writing = asyncio.create_task(store.write_ledger(ledger_of(1), 0))
            await until_bookies(observer, lambda found: BOOKIE not in found)
            assert mine.unregistered_s() > 0
            assert not reading.done()
            proxy.is_away = False
            await reading
            assert (await writing).version == 1
            assert await waiting == await writing
            await until_bookies(observer, lambda found: BOOKIE in found)
            assert (await observer.bookies())[BOOKIE].read_only
            assert store._zk.session_id != session
            await watch.aclose()

    asyncio.run(scenario())
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [text for text in said if "is lost" in text]
    assert [text for text in said if "has expired" in text]
    assert [text for text in said if "is back" in text]
    assert len(said) < 20, "a line for each thing that happens, and no more"


def test_watches_go_on_after_an_expiry(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with (
            new_store(zookeeper) as store,
            new_store(zookeeper) as elsewhere,
        ):
            watch = store.watch_ledger(ONE)
            assert await anext(watch) is None
            waiting = asyncio.ensure_future(anext(watch))
            expire(store)
            created = await store.create_ledger(ledger_of(1))
            assert await waiting == created
            await watch.aclose()
            assert await anext(elsewhere.watch_ledger(ONE)) is None

    asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("slow", ["", "_notify_pending", "_reset"])
def test_a_thread_of_kazoo_that_dies_is_replaced(
    zookeeper: ZooKeeper, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last steps may take a while on a busy machine; what they tell of comes through all the same."""

    async def scenario() -> None:
        root = zookeeper.new_root()
        await init_cluster(zookeeper.uri(root))
        async with (
            Proxy(zookeeper.port) as proxy,
            await connect(zookeeper.uri(root, port=proxy.port), 20) as store,
        ):
            await store.register(BOOKIE, rpc_service_info("b", 1), read_only=False)
            watch = store.watch_ledger(ONE)
            assert await anext(watch) is None
            assert isinstance(store, ZooKeeperStore)
            if slow:
                delay(monkeypatch, store._zk._client, slow, 0.2)
                delay(monkeypatch, store._zk._client.handler, "queue_impl", 0.4)
            proxy.garble = True
            created = await store.create_ledger(ledger_of(1, creator_token=5))
            assert await anext(watch) == created
            await until_bookies(store, lambda found: BOOKIE in found)
            await watch.aclose()

    asyncio.run(scenario())


def delay(patch: pytest.MonkeyPatch, owner: Any, method: str, seconds: float) -> None:
    run = getattr(owner, method)

    def delayed(*arguments: object) -> object:
        time.sleep(seconds)
        return run(*arguments)

    patch.setattr(owner, method, delayed)


# ---- for good -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "suspended"])
def test_for_good(zookeeper: ZooKeeper, how: str) -> None:
    async def scenario() -> None:
        root = zookeeper.new_root()
        await init_cluster(zookeeper.uri(root))
        store = await open_store(zookeeper, root)
        await store.register(BOOKIE, rpc_service_info("b", 1), read_only=False)
        watch = store.watch_ledger(ONE)
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch, "ended"))
        if how == "killed":
            zookeeper.kill()
        else:
            zookeeper.suspend()
        store._zk.wait_s = 0.3
        with pytest.raises(MetadataUnavailableError):
            await store.instance_id()
        stuck = asyncio.create_task(store._zk.sync("/"))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(HandleClosedError):
            await stuck
        assert await waiting == "ended"
        assert len(asyncio.all_tasks()) == 1

    try:
        asyncio.run(scenario())
    finally:
        if how == "killed":
            zookeeper.start()
        else:
            zookeeper.resume()


# ---- watches that nobody waits for --------------------------------------------------------------


def test_a_watch_that_is_left_is_taken_away(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as store:
            await store.create_ledger(ledger_of(1))
            before = zookeeper.watches()
            watches = [store.watch_ledger(LedgerId(number)) for number in (1, 1, 2)]
            for watch in watches:
                await anext(watch)
            assert zookeeper.watches() == before + 2, "the first two share one"
            await watches[0].aclose()
            await store.instance_id()
            assert zookeeper.watches() == before + 2
            written = await store.write_ledger(ledger_of(1), 0)
            assert await anext(watches[1]) == written
            for watch in watches:
                await watch.aclose()
            await store.instance_id()
            assert zookeeper.watches() == before
            assert not store._zk._watches
            assert not store._zk._client._data_watchers
            assert not store._zk._client._child_watchers

    asyncio.run(scenario())


def test_a_new_watch_of_what_another_leaves_sees_the_change(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as store:
            version = (await store.create_ledger(ledger_of(1))).version
            old = store.watch_ledger(ONE)
            await anext(old)
            for _ in range(20):
                new = store.watch_ledger(ONE)
                first = asyncio.ensure_future(anext(new))
                await asyncio.sleep(0)
                await old.aclose()
                await first
                version = (await store.write_ledger(ledger_of(1), version)).version
                async with asyncio.timeout(20):
                    found = await anext(new)
                assert found is not None
                assert found.version == version
                old = new
            await old.aclose()

    asyncio.run(scenario())
