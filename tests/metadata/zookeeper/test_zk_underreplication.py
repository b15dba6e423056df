"""Marks and locks of under-replicated ledgers, as Java's auditor and workers keep them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from test_zk_registration import new_store

from bkbox.errors import MetadataError
from bkbox.ids import LedgerId
from bkbox.metadata.zookeeper import UnderReplication
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.wire.underreplication import UnderreplicatedLedger
from tests.harness.zookeeper import DELETE, Proxy, ZooKeeper, expire

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


def below(zookeeper: ZooKeeper, root: str) -> dict[str, tuple[str, bytes]]:
    tree = zookeeper.tree(root)
    return {path: node for path, node in tree.items() if path.startswith("/underreplication")}


def test_marks_add_up(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            assert await tree.find(LEDGER) is None
            await tree.mark(LEDGER, ["a:1"], now_ms=1000)
            assert below(zookeeper, root)[MARK] == ("persistent", b'replica: "a:1"\nctime: 1000\n')
            await tree.mark(LEDGER, ["b:2", "a:1", "b:2"], now_ms=2000)
            await tree.mark(LEDGER, ["b:2"], now_ms=3000)
            assert below(zookeeper, root)[MARK] == (
                "persistent",
                b'replica: "a:1"\nreplica: "b:2"\nctime: 2000\n',
            )
            await tree.mark(LedgerId(2**40), [], now_ms=5)
            await asyncio.gather(*(tree.mark(LedgerId(7), [f"c:{n}"], n) for n in range(10)))
            marked = {ledger: mark async for ledger, mark in tree.marked()}
            assert list(marked) == [7, 10_000, 2**40]
            assert set(marked[LedgerId(7)].replicas) == {f"c:{n}" for n in range(10)}
            assert marked[LedgerId(2**40)] == UnderreplicatedLedger((), 5)
            assert await tree.count() == 3

    asyncio.run(scenario())


def test_a_ledger_is_taken_by_one_and_finished(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            assert await tree.acquire(LEDGER, "host") is None
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            assert task.missing == UnderreplicatedLedger(("a:1",), 1)
            assert below(zookeeper, root)[LOCK] == ("ephemeral", b'bookieId: "host"\n')
            assert await tree.acquire(LEDGER, None) is None
            assert await tree.acquire_any("other", random.Random(1)) is None
            await tree.release(task)
            again = await tree.acquire_any("other", random.Random(1))
            assert again is not None
            await tree.finish(again)
            assert below(zookeeper, root) == EMPTY_TREE

    asyncio.run(scenario())


def test_what_is_marked_again_meanwhile_stays(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            await tree.mark(LEDGER, ["b:2"], now_ms=2)
            await tree.finish(task)
            assert MARK in below(zookeeper, root)
            assert LOCK not in below(zookeeper, root)

    asyncio.run(scenario())


def test_a_mark_behind_a_lost_answer_stays(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root), Proxy(zookeeper.port) as proxy:
            zk = await Connection.open([f"127.0.0.1:{proxy.port}"], wait_s=20)
            mine = UnderReplication(zk, root)
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


def test_workers_meet_seldom_and_skip_what_they_cannot_read(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            for ledger in range(20):
                await tree.mark(LedgerId(ledger), ["a:1"], now_ms=1)
            with zookeeper.client() as client:
                base = f"{root}/underreplication/ledgers/0000/0000/0000"
                client.set(f"{base}/0003/urL0000000003", b"garbage")
                client.create(f"{base}/0004/urLx", b"")
                client.create(f"{base}/0004/urL0000000005", b"")
                client.create(f"{base}/other", b"")
            rng = random.Random(5)
            taken = []
            while (task := await tree.acquire_any("host", rng)) is not None:
                taken.append(int(task.ledger))
            assert sorted(taken) == [n for n in range(20) if n != 3]
            assert taken != sorted(taken)
            with pytest.raises(MetadataError, match="urL0000000003"):
                await tree.find(LedgerId(3))
            assert await tree.count() == 20

    asyncio.run(scenario())


def test_the_switch(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            assert await tree.enabled()
            await tree.set_enabled(True)
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            await tree.set_enabled(False)
            await tree.set_enabled(False)
            assert not await tree.enabled()
            assert below(zookeeper, root)["/underreplication/disable"] == ("persistent", b"")
            assert await tree.acquire_any("host", random.Random(1)) is None
            await tree.set_enabled(True)
            assert await tree.acquire_any("host", random.Random(1)) is not None

    asyncio.run(scenario())


def test_who_is_auditor(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            assert await tree.auditor() is None
            election = f"{root}/underreplication/auditorelection"
            with zookeeper.client() as client:
                client.create(election, b'bookieId: "old:1"\n', makepath=True)
                assert await tree.auditor() is None
                client.create(f"{election}/V_0000000010", b'bookieId: "b:2"\n')
                client.create(f"{election}/V_0000000009", b'bookieId: "a:1"\n')
                assert await tree.auditor() == "a:1"
                client.set(f"{election}/V_0000000009", b"garbage")
                with pytest.raises(MetadataError, match="V_0000000009"):
                    await tree.auditor()

    asyncio.run(scenario())


def test_the_delay_before_a_lost_bookie_counts(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with tree_of(zookeeper) as (tree, root):
            assert await tree.lost_bookie_recovery_delay_s() is None
            for seconds in (0, 60, 60):
                await tree.set_lost_bookie_recovery_delay_s(seconds)
            assert await tree.lost_bookie_recovery_delay_s() == 60
            path = f"{root}/underreplication/lostBookieRecoveryDelay"
            with zookeeper.client() as client:
                data, stat = client.get(path)
                assert (data, stat.version) == (b"60", 2), "the same value is written again"
                client.set(path, b"soon")
            with pytest.raises(MetadataError, match="lostBookieRecoveryDelay"):
                await tree.lost_bookie_recovery_delay_s()

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
