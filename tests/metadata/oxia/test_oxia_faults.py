"""Faults of Oxia's servers: lost responses, leaders that change, sessions that expire, shards that are split, servers
that are away. They are those of a stand-in: see test_oxia_store.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bkbox.base.ids import LedgerId
from bkbox.errors import (
    HandleClosedError,
    MetadataUnavailableError,
    VersionConflictError,
)
from tests.harness.oxia import Oxia
from tests.metadata.metadata_peer import ledger_of
from tests.metadata.oxia.stores import BOOKIE, INFO, ONE, run, store_in
from tests.metadata.until import until_bookies

# ---- lost responses -----------------------------------------------------------------------------

LOSSES = [("lose request",), ("lose response",), ("lose request", "lose response")]


@pytest.mark.parametrize("losses", LOSSES)
def test_every_write_has_a_certain_outcome(oxia: Oxia, losses: tuple[str, ...]) -> None:
    namespace = oxia.new_namespace()

    def lose(key: str) -> None:
        for kind in losses:
            oxia.do("fault", kind=kind, key=key)

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            lose("/00/0000/L0001")
            created = await store.create_ledger(ledger_of(1))
            assert created.version == 0
            lose("/00/0000/L0001")
            written = await store.write_ledger(ledger_of(1, custom=(("a", b"b"),)), 0)
            assert written.version == 1
            assert await store.read_ledger(ONE) == written
            with pytest.raises(VersionConflictError):
                await store.write_ledger(ledger_of(1, custom=(("a", b"b"),)), 0)
            lose("/00/0000/L0001")
            await store.delete_ledger(ONE)
            assert [page async for page in store.ledger_ranges()] == []

            lose("/cookies/")
            assert (await store.write_cookie(BOOKIE, b"one", None)).version == 0
            lose("/cookies/")
            assert (await store.write_cookie(BOOKIE, b"two", 0)).version == 1

            lose("/available/")
            registration = await store.register(BOOKIE, INFO, read_only=False)
            assert BOOKIE in await store.bookies()
            lose("/available/readonly/")
            await registration.set_read_only(True)
            assert (await store.bookies())[BOOKIE].read_only

            marks = store.under_replication
            lose("/urL")
            await marks.mark(ONE, ["a:1"], 1)
            lose("/locks/")
            lock = await marks.lock(ONE, "host")
            assert lock is not None
            lose("/locks/")
            await marks.unlock(lock)
            assert not await marks.locked()
            lose("/leader")
            candidacy = marks.candidacy("a:1")
            assert await candidacy.is_elected()
            lose("/idgen")
            ids = [await store.new_ledger_id() for _ in range(3)]
            assert ids == sorted(set(ids))
            assert oxia.do("faults") == []

    run(scenario)


def test_a_repeated_creation_that_another_won_is_told_so(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store, store_in(oxia, namespace) as other:
            oxia.do("fault", kind="lose request", key="/cookies/")
            mine = asyncio.create_task(store.write_cookie(BOOKIE, b"same", None))
            while oxia.do("faults"):
                await asyncio.sleep(0.005)
            await other.write_cookie(BOOKIE, b"same", None)
            with pytest.raises(VersionConflictError):
                await mine

    run(scenario)


def test_a_deletion_does_not_hit_what_came_after(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store, store_in(oxia, namespace) as other:
            marks, theirs = store.under_replication, other.under_replication
            await marks.mark(LedgerId(10_000), ["a:1"], 1)
            task = await marks.acquire(LedgerId(10_000), "host")
            assert task is not None
            oxia.do("fault", kind="lose response", key="/urL")
            finishing = asyncio.create_task(marks.finish(task))
            while await theirs.find(LedgerId(10_000)) is not None:
                await asyncio.sleep(0.001)
            await theirs.mark(LedgerId(10_000), ["a:1"], 1)  # the same bytes at the same version
            await finishing
            assert await theirs.find(LedgerId(10_000)) is not None

    run(scenario)


# ---- leaders, sessions, shards ------------------------------------------------------------------


@pytest.mark.parametrize("tell", [True, False])
def test_a_leader_changes(oxia: Oxia, tell: bool) -> None:
    """``tell``: the new map comes at once, and servers say who leads; or neither does, for a while."""
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            watch = store.watch_ledger(ONE)
            assert await anext(watch) is None
            created = await store.create_ledger(ledger_of(1))
            assert await anext(watch) == created
            registration = await store.register(BOOKIE, INFO, read_only=False)
            oxia.do("move", namespace=namespace, tell=tell)
            writing = asyncio.create_task(store.write_ledger(ledger_of(1), 0))
            if not tell:
                done, _ = await asyncio.wait([writing], timeout=0.3)
                assert not done
                oxia.do("tell")
            written = await writing
            assert await anext(watch) == written
            while registration.unregistered_s():
                await asyncio.sleep(0.01)
            assert BOOKIE in await store.bookies(), "sessions outlive their leader"

    run(scenario)


def test_an_expired_session_is_replaced_and_the_bookie_registers_again(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace, session_timeout_s=2.0) as store:
            await store.register(BOOKIE, INFO, read_only=False)
            lock = await store.under_replication.lock(ONE, "host")
            assert lock is not None
            candidacy = store.under_replication.candidacy("a:1")
            assert await candidacy.is_elected()
            before = oxia.records(namespace)
            oxia.do("expire", namespace=namespace)
            await until_bookies(store, lambda found: BOOKIE in found)
            after = oxia.records(namespace)
            key = f"/ledgers/available/{BOOKIE}"
            assert after[key] == before[key]
            await candidacy.changed(20.0)
            while not await candidacy.is_elected():
                await candidacy.changed(20.0)
            again = await store.under_replication.lock(ONE, "host")
            assert again is not None
            await store.under_replication.unlock(lock)
            assert await store.under_replication.locked() == {ONE}, "the old lock is not the new"

    run(scenario)


def test_a_registration_of_a_session_that_is_not_yet_known_to_be_lost(oxia: Oxia) -> None:
    """Records of an expired session of this connection are taken over at once, before the servers drop them."""
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace, session_timeout_s=300.0) as store:
            mine = await store.register(BOOKIE, INFO, read_only=False)
            tree = store._tree
            found = await tree.find(f"/ledgers/available/{BOOKIE}")
            assert found is not None
            tree._sessions.expired(found.owner)  # type: ignore[attr-defined]
            assert tree.is_former(found)
            while (
                now := await tree.find(f"/ledgers/available/{BOOKIE}")
            ) is None or not tree.is_own(now):
                await asyncio.sleep(0.01)
            while mine.unregistered_s():  # it learns of that a moment later
                await asyncio.sleep(0.01)

    run(scenario)


def test_shards_are_split(oxia: Oxia) -> None:
    namespace = oxia.new_namespace(2)

    async def scenario() -> None:
        ledgers = [LedgerId(number) for number in range(1, 30)]
        async with store_in(oxia, namespace) as store:
            for ledger in ledgers:
                await store.create_ledger(ledger_of(ledger))
            await store.register(BOOKIE, INFO, read_only=False)
            watch = store.watch_ledger(ONE)
            await anext(watch)
            oxia.do("split", namespace=namespace)
            for ledger in ledgers:
                await store.write_ledger(ledger_of(ledger), 0)
            assert (await anext(watch)) is not None
            assert [each async for page in store.ledger_ranges() for each in page] == ledgers
            await until_bookies(store, lambda found: BOOKIE in found)

    run(scenario)


def test_all_servers_are_away_for_a_while(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace, wait_s=1.0, session_timeout_s=2.0) as store:
            registration = await store.register(BOOKIE, INFO, read_only=False)
            watch = store.watch_ledger(ONE)
            assert await anext(watch) is None
            oxia.do("away", servers=[0, 1, 2])
            try:
                with pytest.raises(MetadataUnavailableError, match="does not answer after 1 s"):
                    await store.create_ledger(ledger_of(1))
                while not registration.unregistered_s():
                    await asyncio.sleep(0.01)
                with pytest.raises(MetadataUnavailableError):
                    await store.bookies()
            finally:
                oxia.do("away", servers=[])
            while registration.unregistered_s():
                await asyncio.sleep(0.01)
            await until_bookies(store, lambda found: BOOKIE in found)
            created = await store.create_ledger(ledger_of(1))
            assert await anext(watch) == created

    run(scenario)


def test_one_server_is_away(oxia: Oxia) -> None:
    """The server that the URI names: the leaders say what the shards are."""
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            oxia.do("away", servers=[0])
            try:
                oxia.do("move", namespace=namespace, tell=True)
                oxia.do("move", namespace=namespace, tell=True)
                oxia.do("move", namespace=namespace, tell=True)
                writing = asyncio.gather(
                    *(store.create_ledger(ledger_of(number)) for number in range(1, 20))
                )
                done, _ = await asyncio.wait([writing], timeout=0.2)
                assert not done, "one of the shards is led by the server that is away"
                oxia.do("move", namespace=namespace, tell=True)
            finally:
                oxia.do("away", servers=[])
            await writing

    run(scenario)


def test_whoever_waits_learns_that_the_store_was_closed(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            oxia.do("away", servers=[0, 1, 2])
            try:
                waiting = [
                    asyncio.create_task(store.instance_id()),
                    asyncio.create_task(store.create_ledger(ledger_of(1))),
                    asyncio.create_task(store.cookies()),
                ]
                await asyncio.sleep(0.1)
                await store.close()
                found = await asyncio.gather(*waiting, return_exceptions=True)
            finally:
                oxia.do("away", servers=[])
            assert [type(each) for each in found] == [HandleClosedError] * 3

    run(scenario)


def test_a_watch_costs_no_calls_while_nothing_changes(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store, store_in(oxia, namespace) as other:
            created = await store.create_ledger(ledger_of(1))
            watch = store.watch_ledger(ONE)
            assert await anext(watch) == created
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0.2)
            oxia.do("calls")
            await asyncio.sleep(0.5)
            assert oxia.do("calls") == []
            written = await other.write_ledger(replace(created.value, ctime_ms=0), 0)
            assert (await waiting) is not None
            assert (await store.read_ledger(ONE)).version == written.version

    run(scenario)
