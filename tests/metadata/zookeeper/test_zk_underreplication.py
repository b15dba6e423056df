"""Marks and locks of under-replicated ledgers, as Java's auditor and workers keep them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from bkbox.base.ids import LedgerId
from bkbox.errors import MetadataError, MetadataUnavailableError
from bkbox.metadata.underreplication import UnderReplication
from bkbox.metadata.zookeeper import ZooKeeperStore, writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.wire.metadata.paths import PathLayout
from bkbox.wire.metadata.underreplication import UnderreplicatedLedger
from tests.harness.zookeeper import CREATE, CREATE2, DELETE, Proxy, ZooKeeper, expire
from tests.metadata.zookeeper.test_zk_registration import new_store

LEDGER = LedgerId(10_000)
MARK = "/underreplication/ledgers/0000/0000/0000/2710/urL0000010000"
LOCK = "/underreplication/locks/urL0000010000"
EMPTY_TREE = {
    "/underreplication": ("persistent", b""),
    "/underreplication/LAYOUT": ("persistent", b'type: "BASIC"\nversion: 1\n'),
    "/underreplication/ledgers": ("persistent", b""),
    "/underreplication/locks": ("persistent", b""),
}


@asynccontextmanager
async def tree_of(zookeeper: ZooKeeper) -> AsyncIterator[tuple[UnderReplication, str]]:
    async with new_store(zookeeper) as (store, root):
        yield store.under_replication, root


def under_replication_of(zk: Connection, root: str) -> UnderReplication:
    return ZooKeeperStore(zk, root, PathLayout.HIERARCHICAL).under_replication


def below(zookeeper: ZooKeeper, root: str) -> dict[str, tuple[str, bytes]]:
    tree = zookeeper.tree(root)
    return {path: node for path, node in tree.items() if path.startswith("/underreplication")}


def test_a_mark_behind_a_lost_answer_stays(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root), Proxy(zookeeper.port) as proxy:
            zk = await Connection.open([f"127.0.0.1:{proxy.port}"], wait_s=20)
            mine = under_replication_of(zk, root)
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            task = await mine.acquire(LEDGER, "host")
            assert task is not None
            proxy.lose_reply[DELETE] += 1
            proxy.is_away = True
            finishing = asyncio.create_task(mine.finish(task))
            while await tree.find(LEDGER) is not None:
                await asyncio.sleep(0.01)
            await tree.mark(LEDGER, ["b:2"], now_ms=2)  # a new znode, at the version of the old one
            proxy.is_away = False
            await finishing
            assert await tree.find(LEDGER) == UnderreplicatedLedger(("b:2",), 2)
            await zk.close()

    asyncio.run(scenario())


def test_the_lock_of_a_session_that_was_lost_is_not_ours_any_more(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            tree = store.under_replication
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            expire(store)
            with zookeeper.client() as client:
                client.create(root + LOCK, b'bookieId: "java"\n', ephemeral=True)
                await tree.release(task)
                await tree.finish(task)
                assert below(zookeeper, root)[LOCK] == ("ephemeral", b'bookieId: "java"\n')

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [b'type: "OTHER"\nversion: 1\n', b'type: "BASIC"\nversion: 2\n'])
def test_a_layout_that_is_not_known_is_refused(zookeeper: ZooKeeper, data: bytes) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            with zookeeper.client() as client:
                client.create(f"{root}/underreplication/LAYOUT", data, makepath=True)
            with pytest.raises(MetadataError, match="is not known"):
                await tree.mark(LEDGER, ["a:1"], now_ms=1)

    asyncio.run(scenario())


def test_the_nodes_of_marks_and_locks(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            await tree.mark(LEDGER, ["a:1"], now_ms=1000)
            await tree.mark(LEDGER, ["b:2"], now_ms=2000)
            data = b'replica: "a:1"\nreplica: "b:2"\nctime: 2000\n'
            assert below(zookeeper, root)[MARK] == ("persistent", data)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            assert below(zookeeper, root)[LOCK] == ("ephemeral", b'bookieId: "host"\n')
            await tree.finish(task)
            assert below(zookeeper, root) == EMPTY_TREE

    asyncio.run(scenario())


def test_what_is_no_mark_is_passed_over(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            for ledger in range(5):
                await tree.mark(LedgerId(ledger), ["a:1"], now_ms=1)
            with zookeeper.client() as client:
                base = f"{root}/underreplication/ledgers/0000/0000/0000"
                client.set(f"{base}/0003/urL0000000003", b"garbage")
                client.create(f"{base}/0004/urLx", b"")
                client.create(f"{base}/0004/urL0000000005", b"")
                client.create(f"{base}/other", b"")
                client.create(f"{root}/underreplication/locks/urLx", b"")
            assert [ledger async for ledger in tree.ledgers()] == [0, 1, 2, 3, 4]
            assert await tree.locked() == frozenset()
            for call in (tree.find(LedgerId(3)), tree.acquire(LedgerId(3), "host")):
                with pytest.raises(MetadataError, match="urL0000000003"):
                    await call
            assert await tree.locked() == frozenset()

    asyncio.run(scenario())


def test_the_nodes_of_the_switches(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            await tree.set_enabled(False)
            await tree.set_recovery_delay_s(60)
            await tree.set_last_full_check_ms(5)
            assert below(zookeeper, root) == EMPTY_TREE | {
                "/underreplication/disable": ("persistent", b""),
                "/underreplication/lostBookieRecoveryDelay": ("persistent", b"60"),
                "/underreplication/checkallledgersctime": ("persistent", b"\x08\x05"),
            }
            with zookeeper.client() as client:
                client.set(f"{root}/underreplication/lostBookieRecoveryDelay", b"soon")
                client.set(f"{root}/underreplication/checkallledgersctime", b"\xff")
            with pytest.raises(MetadataError, match="lostBookieRecoveryDelay"):
                await tree.recovery_delay()
            with pytest.raises(MetadataError, match="checkallledgersctime"):
                await tree.last_full_check_ms()

    asyncio.run(scenario())


def votes(zookeeper: ZooKeeper, root: str) -> dict[str, tuple[str, bytes]]:
    prefix = "/underreplication/auditorelection"
    tree = below(zookeeper, root)
    return {path.removeprefix(prefix): node for path, node in tree.items() if prefix in path}


def test_the_lowest_vote_is_the_auditor_s(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            election = f"{root}/underreplication/auditorelection"
            with zookeeper.client() as client:
                client.create(election, b'bookieId: "old:1"\n', makepath=True)
                assert await tree.auditor() is None
                client.create(f"{election}/V_", b'bookieId: "java:1"\n', sequence=True)
                mine = tree.candidacy("a:1")
                assert not await mine.is_elected()
                assert await tree.auditor() == "java:1"
                assert votes(zookeeper, root)["/V_0000000001"] == (
                    "ephemeral",
                    b'bookieId: "a:1"\n',
                )
                changed = asyncio.create_task(mine.changed(20.0))
                client.delete(f"{election}/V_0000000000")
                await changed
                assert await mine.is_elected()
                assert await tree.auditor() == "a:1"
                assert votes(zookeeper, root)[""] == ("persistent", b'bookieId: "a:1"\n')
                client.set(f"{election}/V_0000000001", b"garbage")
                with pytest.raises(MetadataError, match="V_0000000001"):
                    await tree.auditor()

    asyncio.run(scenario())


def test_a_vote_that_is_gone_is_noticed_and_given_anew(zookeeper: ZooKeeper) -> None:
    """Deleted by hand, or with its session."""

    async def scenario() -> None:
        async with new_store(zookeeper) as (store, root):
            mine = store.under_replication.candidacy("a:1")
            assert await mine.is_elected()
            changed = asyncio.create_task(mine.changed(20.0))
            with zookeeper.client() as client:
                client.delete(f"{root}/underreplication/auditorelection/V_0000000000")
            await changed
            assert await mine.is_elected()
            assert list(votes(zookeeper, root)) == ["", "/V_0000000001"]
            expire(store)
            async with asyncio.timeout(20):
                while "/V_0000000002" not in votes(zookeeper, root):
                    await mine.is_elected()
            assert await mine.is_elected()

    asyncio.run(scenario())


def test_a_vote_whose_answer_was_lost_is_ours(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (_, root), Proxy(zookeeper.port) as proxy:
            zk = await Connection.open([f"127.0.0.1:{proxy.port}"], wait_s=20)
            mine = under_replication_of(zk, root).candidacy("a:1")
            await writes.ensure_branch(zk, root, f"{root}/underreplication/auditorelection")
            proxy.lose_reply[CREATE] += 1
            assert await mine.is_elected()
            assert list(votes(zookeeper, root)) == ["", "/V_0000000000"]
            await mine.close()
            assert list(votes(zookeeper, root)) == [""]
            await zk.close()

    asyncio.run(scenario())


def test_a_lock_given_up_during_an_outage_is_given_back_later(zookeeper: ZooKeeper) -> None:
    """Its request was carried out, and nobody heard of it in time."""

    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root), Proxy(zookeeper.port) as proxy:
            address = [f"127.0.0.1:{proxy.port}"]
            zk = await Connection.open(address, wait_s=2, session_timeout_s=30)
            mine = under_replication_of(zk, root)
            lock = await mine.lock(LedgerId(1), "host")
            assert lock is not None
            await mine.unlock(lock)
            proxy.lose_reply[CREATE2] += 1
            proxy.is_away = True
            with pytest.raises(MetadataUnavailableError):
                await mine.lock(LEDGER, "host")
            assert await tree.locked() == {LEDGER}
            proxy.is_away = False
            async with asyncio.timeout(20):
                while await tree.locked():
                    with suppress(MetadataUnavailableError):
                        await mine.locked()
            await zk.close()

    asyncio.run(scenario())
