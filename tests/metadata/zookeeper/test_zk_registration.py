"""A bookie's ephemeral znode: whose it is, when it is taken over, and that it comes back."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from bkbox.base.ids import BookieId
from bkbox.config import metadata_uri
from bkbox.errors import OperatorError
from bkbox.metadata import init_cluster
from bkbox.metadata.liveness import Process, this_process
from bkbox.metadata.tree.registration import PROCESS_PROPERTY, TreeRegistration, payload, process_of
from bkbox.metadata.zookeeper import ZooKeeperStore
from bkbox.wire.metadata.service_info import Endpoint, ServiceInfo, decode, encode, rpc_service_info
from tests.harness.zookeeper import ZooKeeper, expire
from tests.metadata.metadata_peer import peer
from tests.metadata.until import until_bookies

BOOKIE = BookieId("127.0.0.1:3181")
INFO = rpc_service_info("127.0.0.1", 3181)
JAVA = encode(rpc_service_info("java", 3181))


async def open_store(
    zookeeper: ZooKeeper,
    root: str,
    *,
    port: int | None = None,
    session_timeout_s: float = 10.0,
    wait_s: float = 20.0,
) -> ZooKeeperStore:
    uri = metadata_uri.parse(zookeeper.uri(root, port=port))
    assert isinstance(uri, metadata_uri.ZooKeeperUri)
    return await ZooKeeperStore.open(uri, wait_s=wait_s, session_timeout_s=session_timeout_s)


@asynccontextmanager
async def new_store(
    zookeeper: ZooKeeper, session_timeout_s: float = 10.0
) -> AsyncIterator[tuple[ZooKeeperStore, str]]:
    """A store of a new cluster, and its root."""
    root = zookeeper.new_root()
    await init_cluster(zookeeper.uri(root))
    async with await open_store(zookeeper, root, session_timeout_s=session_timeout_s) as store:
        yield store, root


def lists(client: KazooClient, root: str) -> tuple[bool, bool]:
    """Whether the bookie is among the writable ones, and among the read-only ones."""
    return (
        client.exists(f"{root}/available/{BOOKIE}") is not None,
        client.exists(f"{root}/available/readonly/{BOOKIE}") is not None,
    )


async def until_registered(store: ZooKeeperStore, *, read_only: bool) -> None:
    await until_bookies(
        store, lambda found: BOOKIE in found and found[BOOKIE].read_only == read_only
    )


# ---- payload ------------------------------------------------------------------------------------


def test_the_payload_names_the_process() -> None:
    me = this_process()
    info = ServiceInfo(
        (Endpoint("bookie", 1, "h", "bookie-rpc", extensions=("tls",)),),
        (("rack", "r1"), (PROCESS_PROPERTY, "of an earlier run")),
    )
    data = payload(BOOKIE, info, me)
    assert process_of(BOOKIE, data) == me
    read_back = decode(BOOKIE, data)
    assert read_back.endpoints == info.endpoints
    assert [key for key, _ in read_back.properties] == ["rack", PROCESS_PROPERTY]
    # An empty info stands for the address in the id, and has to go on doing so.
    assert decode(BOOKIE, payload(BOOKIE, ServiceInfo(), me)).rpc == ("127.0.0.1", 3181)


@pytest.mark.parametrize("text", ["", "boot", "boot 1 2", "boot 1 2 3 4", "boot 1 x 3"])
def test_a_payload_that_names_no_process(text: str) -> None:
    assert process_of(BOOKIE, encode(replace(INFO, properties=((PROCESS_PROPERTY, text),)))) is None
    assert process_of(BOOKIE, JAVA) is None
    assert process_of(BOOKIE, b"\xff") is None


# ---- whose it is --------------------------------------------------------------------------------


def test_it_is_on_one_list_at_least_at_every_moment(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with (
            new_store(zookeeper) as (store, root),
            await open_store(zookeeper, root) as observer,
        ):
            mine = await store.register(BOOKIE, INFO, read_only=False)

            async def turn() -> None:
                for count in range(30):
                    await mine.set_read_only(count % 2 == 0)

            turning = asyncio.create_task(turn())
            seen = set()
            while not turning.done():
                seen.add((await observer.bookies())[BOOKIE].read_only)
            await turning
            assert seen == {True, False}
            with zookeeper.client() as client:
                assert lists(client, root) == (True, False)
                await mine.close()
                assert lists(client, root) == (False, False)

    asyncio.run(scenario())


def test_what_a_dead_process_left_is_taken_over_on_both_lists(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            with peer(zookeeper.uri(root), "register", BOOKIE, "other:1") as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "registered\n"
                process.send_signal(signal.SIGKILL)
                process.wait()
                await store.register(BOOKIE, INFO, read_only=True)
                left = await store.bookies()
                assert BookieId("other:1") in left, "its session has not ended"
            with zookeeper.client() as client:
                assert lists(client, root) == (False, True)

    asyncio.run(scenario())


def other_hosts() -> Process:
    return replace(this_process(), boot_id="00000000-0000-0000-0000-000000000000")


def other_containers() -> Process:
    me = this_process()
    return replace(me, pid_namespace=me.pid_namespace + 1)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("data", "named"),
    [
        (JAVA, "session 0x"),
        (b"\xff", "session 0x"),
        (payload(BOOKIE, INFO, other_hosts()), "process"),
        (payload(BOOKIE, INFO, other_containers()), "process"),
    ],
)
def test_somebody_elses_is_waited_for_and_then_refused(
    zookeeper: ZooKeeper, data: bytes, named: str, read_only: bool
) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper, session_timeout_s=0.2) as (store, root):
            with zookeeper.client() as client:
                path = f"{root}/available/{BOOKIE}"
                client.create(path, data, ephemeral=True)
                loop = asyncio.get_running_loop()
                began = loop.time()
                with pytest.raises(OperatorError, match=f"{named}.*{path}.*alive: stop it"):
                    await store.register(BOOKIE, INFO, read_only=read_only)
                assert loop.time() - began >= 0.4, "two session timeouts"
                assert client.get(path)[0] == data

    asyncio.run(scenario())


def test_somebody_elses_that_vanishes_makes_room(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            with zookeeper.client() as client:
                client.create(f"{root}/available/{BOOKIE}", JAVA, ephemeral=True)
                waiting = asyncio.create_task(store.register(BOOKIE, INFO, read_only=False))
                await asyncio.wait([waiting], timeout=0.2)
                assert not waiting.done()
            await waiting
            assert (await store.bookies())[BOOKIE].service_info.rpc == INFO.rpc

    asyncio.run(scenario())


def test_a_persistent_znode_in_our_place_is_named(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper, session_timeout_s=0.2) as (store, root):
            with zookeeper.client() as client:
                client.create(f"{root}/available/{BOOKIE}", b"")
            with pytest.raises(OperatorError, match="a persistent znode"):
                await store.register(BOOKIE, INFO, read_only=False)

    asyncio.run(scenario())


def test_what_an_earlier_session_of_ours_left_is_taken_over(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            await store.register(BOOKIE, INFO, read_only=False)
            with zookeeper.client() as client:
                path = f"{root}/available/{BOOKIE}"
                client.delete(path)
                await until_owned(client, path, store)
                # As if the session of this client had been ours.
                store._zk.sessions.add(client.client_id[0])
                transaction = client.transaction()
                transaction.delete(path)
                transaction.create(path, JAVA, ephemeral=True)
                transaction.commit()
                await until_owned(client, path, store)
                assert process_of(BOOKIE, client.get(path)[0]) == this_process()

    asyncio.run(scenario())


async def until_owned(client: KazooClient, path: str, store: ZooKeeperStore) -> None:
    async with asyncio.timeout(20):
        while True:
            found = client.exists(path)
            if found is not None and found.ephemeralOwner == store._zk.session_id:
                return
            await asyncio.sleep(0.01)


# ---- that it comes back -------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
def test_an_expired_session_is_followed_by_the_same_registration(
    zookeeper: ZooKeeper, read_only: bool
) -> None:
    async def scenario() -> None:
        async with (
            new_store(zookeeper) as (store, root),
            await open_store(zookeeper, root) as observer,
        ):
            mine = await store.register(BOOKIE, INFO, read_only=not read_only)
            await mine.set_read_only(read_only)
            before = store._zk.session_id
            expire(store)
            assert BOOKIE not in await observer.bookies()
            await until_registered(observer, read_only=read_only)
            assert store._zk.session_id != before
            async with asyncio.timeout(20):
                while mine.unregistered_s():
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_while_zookeeper_is_away_the_wish_changes_and_nothing_is_raised(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        async with new_store(zookeeper) as (store, _):
            mine = await store.register(BOOKIE, INFO, read_only=False)
            zookeeper.kill()
            try:
                async with asyncio.timeout(20):
                    await store._zk.until_disconnected()
                    await mine.set_read_only(False)
                    await mine.set_read_only(True)
                first = mine.unregistered_s()
                await asyncio.sleep(0.05)
                assert mine.unregistered_s() - first >= 0.05
            finally:
                zookeeper.start()
            await until_registered(store, read_only=True)
            async with asyncio.timeout(20):
                while mine.unregistered_s():
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())
    mine = [record for record in caplog.records if record.name.startswith("bkbox")]
    assert [record.getMessage().split(")")[1].split(" after")[0] for record in mine] == [
        " is lost",
        " is back",
    ]


def test_a_bookie_whose_registration_has_a_fault_knows_that_it_is_not_registered(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fault(*_: object) -> None:
        raise ZeroDivisionError("of no use")

    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            mine = await store.register(BOOKIE, INFO, read_only=False)
            monkeypatch.setattr(TreeRegistration, "_claim", fault)
            with zookeeper.client() as client:
                client.delete(f"{root}/available/{BOOKIE}")
            async with asyncio.timeout(60):
                while not mine.unregistered_s():
                    await asyncio.sleep(0.01)
            assert "the registration has ended, which is a fault" in caplog.text

    asyncio.run(scenario())


def test_who_lost_the_id_says_so_and_leaves_it_to_the_other(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)

    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            mine = await store.register(BOOKIE, INFO, read_only=False)
            path = f"{root}/available/{BOOKIE}"
            with zookeeper.client() as client:
                transaction = client.transaction()
                transaction.delete(path)
                transaction.create(path, JAVA, ephemeral=True)
                transaction.commit()
                async with asyncio.timeout(20):
                    while not mine.unregistered_s():
                        await asyncio.sleep(0.01)
                await mine.set_read_only(True)
                assert lists(client, root) == (True, False)
                await mine.close()
                assert client.get(path)[0] == JAVA
            assert "was registered by the ZooKeeper session" in caplog.text

    asyncio.run(scenario())


def test_a_znode_that_somebody_deletes_comes_back(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            await store.register(BOOKIE, INFO, read_only=True)
            with zookeeper.client() as client:
                client.delete(f"{root}/available/readonly/{BOOKIE}")
            await until_registered(store, read_only=True)

    asyncio.run(scenario())
