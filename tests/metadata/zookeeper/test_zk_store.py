"""The tree that the store keeps: the same znodes and bytes as BookKeeper's own processes leave."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import pytest

from bkbox.base.ids import MAX_ID, BookieId, LedgerId
from bkbox.errors import (
    ConfigError,
    MetadataError,
    NoSuchLedgerError,
    OperatorError,
)
from bkbox.metadata import connect, create, init_cluster
from bkbox.metadata.base import RANGE_LEDGERS_MAX, MetadataStore
from bkbox.metadata.zookeeper import ZooKeeperStore
from bkbox.wire.metadata import ledger_metadata
from bkbox.wire.metadata.ledger import LedgerState
from bkbox.wire.metadata.paths import PathLayout, ledger_path
from bkbox.wire.metadata.service_info import HostPort, ServiceInfo, rpc_service_info
from tests.harness.java import java_command
from tests.harness.zookeeper import Proxy, ZooKeeper
from tests.metadata.metadata_peer import ledger_of

FACTORY = "2\norg.apache.bookkeeper.meta.{}LedgerManagerFactory:1"
BOOKIE = BookieId("b:1")
BEYOND_INT = 2**31 - 1


def init(zookeeper: ZooKeeper, layout: str = "") -> str:
    """A new cluster; its root."""
    root = zookeeper.new_root()
    asyncio.run(init_cluster(zookeeper.uri(root, layout=layout)))
    return root


def put(zookeeper: ZooKeeper, path: str, data: bytes) -> None:
    with zookeeper.client() as client:
        client.ensure_path(path)
        client.set(path, data)


async def all_ledgers(store: MetadataStore) -> list[int]:
    return [ledger async for page in store.ledger_ranges() for ledger in page]


# ---- the root -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "factory"),
    [
        ("", "Hierarchical"),
        ("null", "Hierarchical"),
        ("hierarchical", "Hierarchical"),
        ("longhierarchical", "LongHierarchical"),
        ("flat", "Flat"),
    ],
)
def test_a_new_cluster_is_what_initnewcluster_leaves(
    zookeeper: ZooKeeper, layout: str, factory: str
) -> None:
    root = init(zookeeper, layout)
    tree = zookeeper.tree(root)
    kind, instance = tree.pop("/INSTANCEID")
    assert kind == "persistent"
    assert str(UUID(instance.decode())).encode() == instance
    assert UUID(instance.decode()).version == 4
    assert tree == {
        "": ("persistent", b""),
        "/LAYOUT": ("persistent", FACTORY.format(factory).encode()),
        "/available": ("persistent", b""),
        "/available/readonly": ("persistent", b""),
    }


def test_what_bookkeeper_made_is_used_and_what_it_finds_missing_is_made(
    zookeeper: ZooKeeper,
) -> None:
    root = zookeeper.new_root()
    with zookeeper.client() as client:
        client.create(f"{root}/available", makepath=True)
    uri = zookeeper.uri(root, layout="longhierarchical")

    async def scenario() -> None:
        async with await connect(uri) as store:
            with pytest.raises(MetadataError, match=f"no znode {root}/INSTANCEID"):
                await store.instance_id()

    asyncio.run(scenario())
    assert zookeeper.tree(root) == {
        "": ("persistent", b""),
        "/LAYOUT": ("persistent", FACTORY.format("LongHierarchical").encode()),
        "/available": ("persistent", b""),
        "/available/readonly": ("persistent", b""),
    }


def test_there_is_no_cluster(zookeeper: ZooKeeper) -> None:
    uri = zookeeper.uri(layout="flat")
    for opening in (connect, create):
        with pytest.raises(OperatorError, match=r"bkbox cluster init --metadata zk\+flat://127"):
            asyncio.run(opening(uri))


def test_a_layout_that_is_named_has_to_be_the_clusters(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper, "flat")
    with pytest.raises(ConfigError, match="layout flat, not hierarchical: write zk://"):
        asyncio.run(connect(zookeeper.uri(root, layout="hierarchical")))

    async def layout() -> PathLayout:
        async with await connect(zookeeper.uri(root, layout="null")) as store:
            assert isinstance(store, ZooKeeperStore)
            return store.layout

    assert asyncio.run(layout()) is PathLayout.FLAT


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"1\nhierarchical:1", PathLayout.HIERARCHICAL),
        (b"1\nflat:1", PathLayout.FLAT),
        (FACTORY.format("LegacyHierarchical").encode(), PathLayout.LEGACY_HIERARCHICAL),
        (FACTORY.format("LongHierarchical").encode() + b"\n", PathLayout.LONG_HIERARCHICAL),
        (FACTORY.format("MS").encode(), "MSLedgerManagerFactory, version 1, which bkbox does not"),
        (FACTORY.format("Flat").encode() + b"0", "version 10, which bkbox does not know"),
        (b"9\nx:1", "LAYOUT cannot be read"),
        (b"", "LAYOUT cannot be read"),
    ],
)
def test_layouts_that_are_found(
    zookeeper: ZooKeeper, data: bytes, expected: PathLayout | str
) -> None:
    root = init(zookeeper)
    put(zookeeper, f"{root}/LAYOUT", data)

    async def layout() -> PathLayout:
        async with await connect(zookeeper.uri(root)) as store:
            assert isinstance(store, ZooKeeperStore)
            return store.layout

    if isinstance(expected, PathLayout):
        assert asyncio.run(layout()) is expected
    else:
        with pytest.raises(MetadataError, match=f"{root}/LAYOUT.*{expected}"):
            asyncio.run(layout())


def test_an_instance_id_that_is_none(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper)
    put(zookeeper, f"{root}/INSTANCEID", b"cluster 1")

    async def scenario() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            with pytest.raises(MetadataError, match=f"{root}/INSTANCEID is no instance id"):
                await store.instance_id()

    asyncio.run(scenario())


# ---- ledgers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "paths"),
    [
        (
            "hierarchical",
            {
                1: "/00/0000/L0001",
                BEYOND_INT - 1: "/21/4748/L3646",
                BEYOND_INT: "/000/0000/0021/4748/L3647",
                MAX_ID: "/922/3372/0368/5477/L5807",
            },
        ),
        (
            "longhierarchical",
            {1: "/000/0000/0000/0000/L0001", MAX_ID: "/922/3372/0368/5477/L5807"},
        ),
        ("flat", {1: "/L0000000001", MAX_ID: f"/L{MAX_ID}"}),
    ],
)
def test_ledgers_lie_where_their_layout_says(
    zookeeper: ZooKeeper, layout: str, paths: dict[int, str]
) -> None:
    root = init(zookeeper, layout)
    before = zookeeper.tree(root)

    async def write() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            for ledger in reversed(paths):
                await store.create_ledger(ledger_of(ledger, creator_token=7))
            assert await all_ledgers(store) == list(paths)

    async def delete() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            for ledger in paths:
                await store.delete_ledger(LedgerId(ledger))
            assert await all_ledgers(store) == []

    asyncio.run(write())
    tree = zookeeper.tree(root)
    for ledger, path in paths.items():
        data = ledger_metadata.encode(ledger_of(ledger, creator_token=7))
        assert tree[path] == ("persistent", data)
    asyncio.run(delete())
    assert zookeeper.tree(root) == before, "with all parents that were left empty"


def test_the_old_layout_keeps_its_empty_folders(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper)
    put(zookeeper, f"{root}/LAYOUT", FACTORY.format("LegacyHierarchical").encode())

    async def scenario() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            await store.create_ledger(ledger_of(BEYOND_INT))
            assert await all_ledgers(store) == [BEYOND_INT]
            await store.delete_ledger(LedgerId(BEYOND_INT))

    asyncio.run(scenario())
    assert zookeeper.tree(root)["/21/4748"] == ("persistent", b"")


@pytest.mark.parametrize("version", [1, 2])
def test_an_update_keeps_the_format_of_the_ledger(zookeeper: ZooKeeper, version: int) -> None:
    root = init(zookeeper)
    changes = {"password": None, "digest_type": None, "ack_quorum": 3} if version == 1 else {}
    old = ledger_metadata.encode(ledger_of(1, format_version=version, **changes))
    put(zookeeper, f"{root}/00/0000/L0001", old)

    async def scenario() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            found = await store.read_ledger(LedgerId(1))
            assert found.version == 1, "put sets it once"
            if version == 2:
                assert found.value.ctime_ms > 0, "that of the znode"
            await store.write_ledger(found.value.with_state(LedgerState.IN_RECOVERY), 1)
            assert (await store.read_ledger(LedgerId(1))).value.state is LedgerState.IN_RECOVERY

    asyncio.run(scenario())
    data = zookeeper.tree(root)["/00/0000/L0001"][1]
    assert data.startswith(b"BookieMetadataFormatVersion\t%d\n" % version)


def test_a_root_that_was_removed_is_not_made_by_a_ledger(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper)

    async def scenario() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            with zookeeper.client() as client:
                client.delete(root, recursive=True)
            with pytest.raises(MetadataError, match=f"no znode {root}"):
                await store.create_ledger(ledger_of(1))
            with pytest.raises(MetadataError, match=f"no znode {root}"):
                await all_ledgers(store)

    asyncio.run(scenario())
    assert zookeeper.tree(root) == {}


GARBAGE = {
    "/00/0000/L0002": b"garbage",
    "/00/0000/L0003": b"",
    "/00/0000/L0004": b"BookieMetadataFormatVersion\t9\n\x00",
}
NO_LEDGERS = {
    "/00/0000/Lfoo": b"x",
    "/00/0000/0005": b"x",
    "/00/0000/L005": b"x",
    "/00/0000/L00006": b"x",
    "/00/foo/L0007": b"x",
    "/00/0000/L0001/L0008": b"x",
    "/000/0000/0000/0000/L0009": b"where an id below 2**31 - 1 is not looked for",
    "/disableHealthCheck": b"",
    "/1234/0000/L0010": b"x",
}


def test_znodes_that_are_not_what_they_should_be(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper)
    good = ledger_metadata.encode(ledger_of(1))
    for path, data in {"/00/0000/L0001": good, **GARBAGE, **NO_LEDGERS}.items():
        put(zookeeper, root + path, data)

    async def scenario() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            assert (await store.read_ledger(LedgerId(1))).value.ledger_id == 1
            for path in GARBAGE:
                ledger = LedgerId(int(path[-4:]))
                with pytest.raises(MetadataError, match=f"znode {root}{path}: "):
                    await store.read_ledger(ledger)
                with pytest.raises(MetadataError, match=f"znode {root}{path}: "):
                    await anext(store.watch_ledger(ledger))
            for number in (5, 6, 7, 8, 9, 10):
                with pytest.raises(NoSuchLedgerError):
                    await store.read_ledger(LedgerId(number))
            assert await all_ledgers(store) == [1, 2, 3, 4]
            await store.create_ledger(ledger_of(5))
            await store.delete_ledger(LedgerId(3))
            assert await all_ledgers(store) == [1, 2, 4, 5]

    asyncio.run(scenario())


def test_ranges_are_ascending_bounded_pages(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper)
    numbers = [
        *range(2 * RANGE_LEDGERS_MAX + 1),
        *(10_000, 99_990_000, 100_000_000, BEYOND_INT - 1, BEYOND_INT, 2**32, MAX_ID),
    ]
    with zookeeper.client() as client:
        for number in (0, *numbers[-7:]):
            path = ledger_path(root, PathLayout.HIERARCHICAL, number)
            client.ensure_path(path.rpartition("/")[0])
        for start in range(0, len(numbers), 500):
            transaction = client.transaction()
            for number in numbers[start : start + 500]:
                transaction.create(ledger_path(root, PathLayout.HIERARCHICAL, number), b"x")
            transaction.commit()

    async def scenario() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            pages = []
            async for page in store.ledger_ranges():
                assert 0 < len(page) <= RANGE_LEDGERS_MAX
                pages.append(page)
                await store.delete_ledger(page[0])  # behind: changes nothing of what comes
            assert [number for page in pages for number in page] == numbers

    asyncio.run(scenario())


# ---- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["hierarchical", "longhierarchical", "flat"])
def test_ids_count_and_leave_nothing(zookeeper: ZooKeeper, layout: str) -> None:
    root = init(zookeeper, layout)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            uri = zookeeper.uri(root)
            stores = [await stack.enter_async_context(await connect(uri)) for _ in range(2)]
            ids = [await store.new_ledger_id() for store in (*stores, *stores)]
            assert ids == sorted(set(ids))

    asyncio.run(scenario())
    left = {path for path in zookeeper.tree(root) if "ID-" in path}
    assert left == set()
    assert ("/idgen" in zookeeper.tree(root)) == (layout != "flat")


@pytest.mark.parametrize("number", [b"2147483647", b"-000000001"])
def test_ids_go_on_in_63_bits_when_31_are_used_up(zookeeper: ZooKeeper, number: bytes) -> None:
    root = init(zookeeper)

    async def scenario() -> None:
        async with (
            Proxy(zookeeper.port) as proxy,
            await connect(zookeeper.uri(root, port=proxy.port)) as store,
        ):
            assert await store.new_ledger_id() == 0
            proxy.rewrite[b"/idgen/ID-0000000001"] = b"/idgen/ID-" + number
            assert await store.new_ledger_id() == 2**32
            assert await store.new_ledger_id() == 2**32 + 1
            half = b"/idgen-long/HOB-0000000001/ID-"
            proxy.rewrite[half + b"0000000002"] = half + number
            assert await store.new_ledger_id() == 2 * 2**32
        async with await connect(zookeeper.uri(root)) as other:
            assert await other.new_ledger_id() == 2 * 2**32 + 1, "everybody draws there from now on"

    asyncio.run(scenario())
    tree = zookeeper.tree(root)
    assert {path for path in tree if path.startswith("/idgen")} == {
        "/idgen",
        "/idgen-long",
        "/idgen-long/HOB-0000000001",
        "/idgen-long/HOB-0000000002",
    }


def test_ids_of_the_flat_layout_end(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper, "flat")

    async def scenario() -> None:
        async with (
            Proxy(zookeeper.port) as proxy,
            await connect(zookeeper.uri(root, port=proxy.port)) as store,
        ):
            first = await store.new_ledger_id()
            proxy.rewrite[b"/ID-%010d" % (first + 1)] = b"/ID-2147483647"
            with pytest.raises(MetadataError, match="used up"):
                await store.new_ledger_id()

    asyncio.run(scenario())


# ---- bookies and cookies ------------------------------------------------------------------------


def test_names_that_are_no_bookies_and_payloads_that_nobody_can_read(zookeeper: ZooKeeper) -> None:
    root = init(zookeeper)
    put(zookeeper, f"{root}/available/good:1", b"")
    put(zookeeper, f"{root}/available/no bookie", b"")
    put(zookeeper, f"{root}/available/garbage:1", b"\xff")
    put(zookeeper, f"{root}/available/readonly/name", b"")
    put(zookeeper, f"{root}/cookies/good:1", b"any \x00 bytes")
    put(zookeeper, f"{root}/cookies/no bookie", b"")

    async def scenario() -> None:
        async with await connect(zookeeper.uri(root)) as store:
            found = await store.bookies()
            assert {str(name): each.read_only for name, each in found.items()} == {
                "good:1": False,
                "garbage:1": False,
                "name": True,
            }
            assert found[BookieId("good:1")].service_info.rpc == HostPort("good", 1)
            assert found[BookieId("garbage:1")].service_info == ServiceInfo()
            assert found[BookieId("name")].service_info == ServiceInfo()
            cookies = await store.cookies()
            assert {name: each.value for name, each in cookies.items()} == {
                "good:1": b"any \x00 bytes"
            }

    asyncio.run(scenario())


def test_java_reads_what_a_bookie_registers(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    root = init(zookeeper)
    configuration = tmp_path / "bk.conf"
    configuration.write_text(
        f"metadataServiceUri=zk+hierarchical://{zookeeper.address}{root}\nallowLoopback=true\n"
    )

    async def scenario() -> str:
        async with await connect(zookeeper.uri(root)) as store:
            info = rpc_service_info("bookie.example.com", 3181)
            await store.register(BookieId("bookie.example.com:3181"), info, read_only=False)
            shell = java_command(
                "org.apache.bookkeeper.bookie.BookieShell",
                *("-conf", str(configuration), "endpointinfo", "-b", "bookie.example.com:3181"),
            )
            process = await asyncio.create_subprocess_exec(
                *shell, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            output, _ = await process.communicate()
            return output.decode()

    output = asyncio.run(scenario())
    assert "bookie-rpc" in output, output
    assert "bookie.example.com" in output
    assert "bkbox.process" in output
