"""What the store leaves in Oxia, key by key, as Pulsar's driver does; and how it gets along with faults.

The servers are a stand-in (tests/harness/oxia_server.py): these tests show what the store does when servers behave as
Oxia's source says. They do not show that real ones do. Where OXIA_SERVER names a real one, the contract of every
store runs against it, too (tests/metadata/conftest.py).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.config.metadata_uri import OxiaUri, parse
from bkbox.errors import (
    ConfigError,
    HandleClosedError,
    MetadataError,
    MetadataUnavailableError,
    OperatorError,
    VersionConflictError,
)
from bkbox.metadata import connect, init_cluster
from bkbox.metadata.oxia import OxiaStore
from bkbox.metadata.tree.registration import PROCESS_PROPERTY
from bkbox.wire.metadata.service_info import decode, rpc_service_info
from tests.harness.oxia import Oxia
from tests.metadata.metadata_peer import ledger_of
from tests.metadata.until import until_bookies

BOOKIE = BookieId("127.0.0.1:3181")
INFO = rpc_service_info("127.0.0.1", 3181)
ONE = LedgerId(1)
MARK = "/ledgers/underreplication/ledgers/0000/0000/0000/2710/urL0000010000"


@asynccontextmanager
async def store_in(
    oxia: Oxia, namespace: str, *, wait_s: float = 20.0, session_timeout_s: float = 10.0
) -> AsyncIterator[OxiaStore]:
    """A store; the cluster is created unless it exists."""
    uri = oxia.uri(namespace)
    if "/ledgers/INSTANCEID" not in oxia.records(namespace):
        await init_cluster(uri)
    parsed = parse(uri)
    assert isinstance(parsed, OxiaUri)
    async with await OxiaStore.open(
        parsed, wait_s=wait_s, session_timeout_s=session_timeout_s
    ) as store:
        yield store


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


# ---- records ------------------------------------------------------------------------------------


def test_a_cluster_as_pulsars_driver_leaves_it(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            identity = (await store.instance_id()).encode()
            expected = {"/ledgers": (b"", False), "/ledgers/INSTANCEID": (identity, False)}
            assert oxia.records(namespace) == expected

            assert [await store.new_ledger_id() for _ in range(3)] == [1, 2, 3]
            expected["/ledgers/idgen"] = (b"", False)
            assert oxia.records(namespace) == expected

            await store.create_ledger(ledger_of(1))
            await store.create_ledger(ledger_of(2**31 - 1))
            found = oxia.records(namespace)
            for parent in ("/00", "/00/0000", "/000", "/000/0000", "/000/0000/0021"):
                assert found[f"/ledgers{parent}"] == (b"", False), "Java finds ledgers by folders"
            stored = found["/ledgers/00/0000/L0001"][0]
            assert stored.startswith(b"BookieMetadataFormatVersion\t3\n")
            assert "/ledgers/000/0000/0021/4748/L3647" in found

            registration = await store.register(BOOKIE, INFO, read_only=False)
            data, ephemeral = oxia.records(namespace)[f"/ledgers/available/{BOOKIE}"]
            assert ephemeral
            info = decode(BOOKIE, data)
            assert info.rpc == INFO.rpc
            assert [name for name, _ in info.properties] == [PROCESS_PROPERTY]
            await registration.set_read_only(True)
            found = oxia.records(namespace)
            assert f"/ledgers/available/{BOOKIE}" not in found
            assert found[f"/ledgers/available/readonly/{BOOKIE}"] == (data, True)

            await store.write_cookie(BOOKIE, b"cookie", None)
            marks = store.under_replication
            await marks.mark(LedgerId(10_000), ["a:1"], now_ms=1)
            lock = await marks.lock(LedgerId(10_000), "host")
            assert lock is not None
            candidacy = marks.candidacy("a:1")
            assert await candidacy.is_elected()
            await marks.set_enabled(False)
            await marks.set_recovery_delay_s(60)
            found = oxia.records(namespace)
            below = "/ledgers/underreplication"
            assert found[f"/ledgers/cookies/{BOOKIE}"] == (b"cookie", False)
            assert found[MARK] == (b'replica: "a:1"\nctime: 1\n', False)
            assert found[f"{below}/locks/urL0000010000"] == (b'bookieId: "host"\n', True)
            assert found[f"{below}/leader"] == (b'"a:1"', True)
            assert found[f"{below}/LAYOUT"] == (b'type: "BASIC"\nversion: 1\n', False)
            assert found[f"{below}/disable"] == (b"", False)
            assert found[f"{below}/lostBookieRecoveryDelay"] == (b"60", False)
            assert "/ledgers/LAYOUT" not in found
        left = {key for key, (_, is_ephemeral) in oxia.records(namespace).items() if is_ephemeral}
        assert not left
        assert oxia.do("sessions", namespace=namespace) == 0

    run(scenario)


def test_folders_stay_when_they_are_empty(oxia: Oxia) -> None:
    """A record that another client creates in one at that moment would be in no list."""
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            await store.create_ledger(ledger_of(1))
            await store.delete_ledger(ONE)
            marks = store.under_replication
            task = await marks.claim(LedgerId(10_000), ["a:1"], 1, "host")
            assert task is not None
            assert await marks.finish(task)
            found = oxia.records(namespace)
            assert "/ledgers/00/0000" in found
            assert MARK not in found
            assert MARK.rpartition("/")[0] in found
            assert [page async for page in store.ledger_ranges()] == []

    run(scenario)


def test_ids_go_on_in_the_long_form(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            assert await store.new_ledger_id() == 1
            tree = store._tree
            await tree.create_branch("/ledgers", "/ledgers/idgen-long/HOB-0000000002")
        async with store_in(oxia, namespace) as store:
            assert await store.new_ledger_id() == (2 << 32) + 1

    run(scenario)


def test_many_ledgers_of_both_lengths_are_listed_in_order(oxia: Oxia) -> None:
    namespace = oxia.new_namespace(5)

    async def scenario() -> None:
        ledgers = [LedgerId(number * 7_919) for number in range(1, 90)]
        ledgers += [LedgerId(2**31 - 1 + number * 10**9) for number in range(40)]
        async with store_in(oxia, namespace) as store:
            await asyncio.gather(*(store.create_ledger(ledger_of(each)) for each in ledgers))
            await store._tree.create("/ledgers/00/0000/other")
            assert [each async for page in store.ledger_ranges() for each in page] == ledgers

    run(scenario)


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
            assert registration.unregistered_s() == 0.0
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
            assert mine.unregistered_s() == 0.0

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


# ---- refusals -----------------------------------------------------------------------------------


def test_what_is_no_cluster(oxia: Oxia) -> None:
    async def scenario() -> None:
        namespace = oxia.new_namespace()
        with pytest.raises(
            OperatorError, match=f"no cluster at /ledgers in the namespace {namespace}"
        ):
            await connect(oxia.uri(namespace))
        with pytest.raises(MetadataError, match="namespace not found"):
            await connect(oxia.uri("missing"))
        natural = oxia.new_namespace(kind="natural")
        await init_cluster(oxia.uri(natural))
        with pytest.raises(ConfigError, match="not sorted hierarchically"):
            await connect(oxia.uri(natural))
        silent = oxia.new_namespace(kind="silent")
        async with store_in(oxia, silent) as store:
            with pytest.raises(MetadataError, match="notifications not enabled"):
                await anext(store.watch_ledger(ONE))
        with pytest.raises(MetadataUnavailableError, match=r"cannot be reached after 0\.5 s"):
            await connect("metadata-store:oxia://127.0.0.1:1/x", wait_s=0.5)

    run(scenario)


def test_other_stores_do_not_load_grpc(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from bkbox.metadata import create
from bkbox.metadata import zookeeper
import bkbox.supervisor.supervisor
async def go():
    async with await create("sqlite:{tmp_path}/x.db"):
        pass
asyncio.run(go())
assert not {{"grpc", "xxhash"}} & {{*sys.modules}}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_libraries_the_extra_is_named() -> None:
    code = """
import asyncio, sys
sys.modules["grpc"] = None
from bkbox.metadata import connect
try:
    asyncio.run(connect("metadata-store:oxia://127.0.0.1:1/x"))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("ConfigError")
    assert "pip install 'bkbox[oxia]'" in done.stdout
