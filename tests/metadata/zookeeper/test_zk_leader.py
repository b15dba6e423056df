"""The auditor's election as Pulsar's driver holds it: one ephemeral znode, ``underreplication/leader``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkbox.errors import ConfigError, MetadataError, OperatorError
from bkbox.metadata import connect, init_cluster
from bkbox.metadata.zookeeper import ZooKeeperStore
from tests.harness.zookeeper import CREATE, Proxy, ZooKeeper, expire, zookeeper

__all__ = ["zookeeper"]


def leader(zookeeper: ZooKeeper, root: str) -> tuple[str, bytes] | None:
    """Kind and data of the leader's znode."""
    return zookeeper.tree(f"{root}/underreplication/leader").get("")


def test_the_first_is_elected_and_the_next_when_it_goes(zookeeper: ZooKeeper) -> None:
    root = zookeeper.new_root()
    uri = zookeeper.uri(root, layout="metadata-store")

    async def scenario() -> None:
        await init_cluster(uri)
        async with await connect(uri) as store, await connect(uri) as other:
            assert await other.under_replication.auditor() is None
            mine = store.under_replication.candidacy("127.0.0.1:1")
            second = other.under_replication.candidacy("127.0.0.1:2")
            assert await mine.is_elected()
            assert await mine.is_elected()
            assert not await second.is_elected()
            assert leader(zookeeper, root) == ("ephemeral", b'"127.0.0.1:1"')
            assert await other.under_replication.auditor() == "127.0.0.1:1"
            changed = asyncio.create_task(second.changed(60))
            await mine.close()
            await changed
            assert await second.is_elected()
            assert not await mine.is_elected()
            await mine.close()  # leaves the other's
            assert leader(zookeeper, root) == ("ephemeral", b'"127.0.0.1:2"')

    asyncio.run(scenario())


def test_a_leader_that_is_deleted_by_hand_or_loses_its_session_stands_again(
    zookeeper: ZooKeeper,
) -> None:
    root = zookeeper.new_root()
    uri = zookeeper.uri(root, layout="metadata-store")

    async def scenario() -> None:
        await init_cluster(uri)
        async with await connect(uri) as store:
            assert isinstance(store, ZooKeeperStore)
            mine = store.under_replication.candidacy("a:1")
            assert await mine.is_elected()
            changed = asyncio.create_task(mine.changed(60))
            with zookeeper.client() as client:
                client.delete(f"{root}/underreplication/leader")
            await changed
            assert await mine.is_elected()
            expire(store)
            async with asyncio.timeout(60):
                while not await mine.is_elected():
                    await mine.changed(1)
            with zookeeper.client() as client:
                client.set(f"{root}/underreplication/leader", b"a:1")
            with pytest.raises(MetadataError, match="underreplication/leader: "):
                await store.under_replication.auditor()

    asyncio.run(scenario())


def test_a_leader_whose_response_was_lost_is_ours(zookeeper: ZooKeeper) -> None:
    root = zookeeper.new_root()

    async def scenario() -> None:
        await init_cluster(zookeeper.uri(root, layout="metadata-store"))
        async with Proxy(zookeeper.port) as proxy:
            uri = zookeeper.uri(root, layout="metadata-store", port=proxy.port)
            async with await connect(uri) as store:
                mine = store.under_replication.candidacy("a:1")
                await store.under_replication.set_recovery_delay_s(1)  # makes the parents
                proxy.lose_reply[CREATE] += 1
                assert await mine.is_elected()

    asyncio.run(scenario())


def test_what_a_driver_of_pulsar_s_would_not_find(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """A cluster whose root is the path that the URI names, and one with another layout."""
    with zookeeper.client() as client:
        client.ensure_path("/other")
    asyncio.run(init_cluster(zookeeper.uri("/other/ledgers")))
    uri = f"metadata-store:zk:{zookeeper.address}/other/ledgers"
    with pytest.raises(OperatorError, match=f"write zk://{zookeeper.address}/other/ledgers, or"):
        asyncio.run(connect(uri))
    root = zookeeper.new_root()
    asyncio.run(init_cluster(zookeeper.uri(root, layout="flat")))
    with pytest.raises(ConfigError, match="layout flat, and metadata-store: knows only hier"):
        asyncio.run(connect(zookeeper.uri(root, layout="metadata-store")))
