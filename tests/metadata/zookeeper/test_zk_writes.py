"""Writes whose answer is lost: every outcome against one small tree, then against a real ZooKeeper
behind a proxy that breaks connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import LedgerExistsError, VersionConflictError
from bkbox.metadata import connect, init_cluster
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.tree.nodes import (
    BadVersionError,
    LostReplyError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.nodes import Znode
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.harness.zookeeper import CREATE2, DELETE, MULTI, SET, SYNC, Proxy, ZooKeeper
from tests.metadata.metadata_peer import ledger_of

T = TypeVar("T")
BOOKIE = BookieId("b:1")


class Tree:
    """A tree of znodes that loses what it is told to: ``script`` has a word for each attempt.

    ``ok``, ``lost before`` it was carried out, ``lost after``; ``then`` runs right after a loss,
    before anybody can look.
    """

    def __init__(self, *script: str, then: Callable[[Tree], None] = lambda tree: None) -> None:
        self.nodes: dict[str, Znode] = {"/r": Znode(b"", 0, 0, 0, 0, 0, 0)}
        self.session_id = 7
        self._script = list(script)
        self._then = then
        self._clock = 0

    async def get(self, path: str) -> Znode:
        if path not in self.nodes:
            raise NoNodeError(path)
        return self.nodes[path]

    async def try_create(self, path: str, data: bytes, *, ephemeral: bool = False) -> Znode:
        return self._attempt(lambda: self.put(path, data, self.session_id if ephemeral else 0))

    async def try_set(self, path: str, data: bytes, version: int) -> Znode:
        return self._attempt(lambda: self.change(path, data, version))

    async def try_delete(self, path: str, version: int) -> None:
        self._attempt(lambda: self.remove(path, version))

    def put(self, path: str, data: bytes, owner: int = 0) -> Znode:
        if path.rpartition("/")[0] not in self.nodes:
            raise NoNodeError(path)
        if path in self.nodes:
            raise NodeExistsError(path)
        self._clock += 1
        self.nodes[path] = Znode(data, 0, self._clock, owner, 0, self._clock, 0)
        return self.nodes[path]

    def change(self, path: str, data: bytes, version: int) -> Znode:
        if path not in self.nodes:
            raise NoNodeError(path)
        if version not in (-1, self.nodes[path].version):
            raise BadVersionError(path)
        self.nodes[path] = replace(
            self.nodes[path], data=data, version=self.nodes[path].version + 1
        )
        return self.nodes[path]

    def remove(self, path: str, version: int = -1) -> None:
        if path not in self.nodes:
            raise NoNodeError(path)
        if version not in (-1, self.nodes[path].version):
            raise BadVersionError(path)
        if any(other.startswith(f"{path}/") for other in self.nodes):
            raise NotEmptyError(path)
        del self.nodes[path]

    def _attempt(self, act: Callable[[], T]) -> T:
        word = self._script.pop(0) if self._script else "ok"
        if word == "lost before":
            self._then(self)
            raise LostReplyError(word)
        result = act()
        if word == "lost after":
            self._then(self)
            raise LostReplyError(word)
        return result


def run(work: Awaitable[T]) -> T:
    async def wait() -> T:
        return await work

    return asyncio.run(wait())


LOSSES = [("lost before",), ("lost after",), ("lost before", "lost before", "lost after")]


@pytest.mark.parametrize("script", LOSSES)
@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_creation_succeeds_once(script: tuple[str, ...], ephemeral: bool) -> None:
    tree = Tree(*script)
    node = run(writes.create(tree, "/r/a", b"mine", ephemeral=ephemeral))
    assert node == tree.nodes["/r/a"]
    assert (node.data, node.version, node.owner) == (b"mine", 0, 7 if ephemeral else 0)


@pytest.mark.parametrize(
    ("data", "owner", "ephemeral"), [(b"theirs", 0, False), (b"mine", 8, True), (b"mine", 0, True)]
)
def test_a_creation_that_another_won_is_told_so(data: bytes, owner: int, ephemeral: bool) -> None:
    def other(tree: Tree) -> None:
        tree.put("/r/a", data, owner)

    with pytest.raises(NodeExistsError):
        run(writes.create(Tree("lost before", then=other), "/r/a", b"mine", ephemeral=ephemeral))


def test_what_exists_before_the_first_attempt_is_never_ours() -> None:
    tree = Tree()
    tree.put("/r/a", b"same")
    with pytest.raises(NodeExistsError):
        run(writes.create(tree, "/r/a", b"same"))


def test_the_caller_may_know_better_what_is_ours() -> None:
    with pytest.raises(NodeExistsError):
        run(writes.create(Tree("lost after"), "/r/a", b"same", is_ours=lambda found: False))


def test_a_creation_that_was_deleted_again_is_repeated() -> None:
    tree = Tree("lost after", then=lambda tree: tree.remove("/r/a"))
    run(writes.create(tree, "/r/a", b"mine"))
    assert tree.nodes["/r/a"].data == b"mine"


@pytest.mark.parametrize("script", LOSSES)
def test_a_change_happens_once(script: tuple[str, ...]) -> None:
    tree = Tree(*script)
    tree.put("/r/a", b"old")
    node = run(writes.set_data(tree, "/r/a", b"new", 0))
    assert (node.data, node.version) == (b"new", 1)
    assert tree.nodes["/r/a"] == node


@pytest.mark.parametrize("script", ["lost before", "lost after"])
def test_a_change_that_another_overtook_is_a_conflict(script: str) -> None:
    def other(tree: Tree) -> None:
        tree.change("/r/a", b"theirs", -1)

    tree = Tree(script, then=other)
    tree.put("/r/a", b"old")
    with pytest.raises(BadVersionError):
        run(writes.set_data(tree, "/r/a", b"new", 0))
    assert tree.nodes["/r/a"].data == b"theirs"


def test_a_wrong_version_is_a_conflict_even_with_the_same_bytes() -> None:
    tree = Tree()
    tree.put("/r/a", b"old")
    tree.change("/r/a", b"new", 0)
    for wrong in (0, 2, -1):
        with pytest.raises(BadVersionError):
            run(writes.set_data(tree, "/r/a", b"new", wrong))
    assert tree.nodes["/r/a"].version == 1


def test_a_change_of_what_was_deleted_meanwhile() -> None:
    tree = Tree("lost after", then=lambda tree: tree.remove("/r/a"))
    tree.put("/r/a", b"old")
    with pytest.raises(NoNodeError):
        run(writes.set_data(tree, "/r/a", b"new", 0))


@pytest.mark.parametrize("script", [("ok",), *LOSSES])
def test_gone_is_gone(script: tuple[str, ...]) -> None:
    tree = Tree(*script)
    seen = tree.put("/r/a", b"")
    run(writes.delete(tree, "/r/a", seen))
    assert "/r/a" not in tree.nodes
    run(writes.delete(tree, "/r/a"))


def test_a_deletion_that_is_repeated_does_not_hit_what_came_after() -> None:
    tree = Tree("lost after", then=lambda tree: tree.put("/r/a", b"new"))
    seen = tree.put("/r/a", b"")
    with pytest.raises(BadVersionError):
        run(writes.delete(tree, "/r/a", seen))
    assert tree.nodes["/r/a"].data == b"new"


def test_a_branch_is_made_below_its_root_and_taken_away_when_it_is_empty() -> None:
    tree = Tree("lost after", "lost before", "ok", "lost after")
    run(writes.create_branch(tree, "/r", "/r/1/2/3", b"leaf"))
    run(writes.create_branch(tree, "/r", "/r/1/other"))
    assert tree.nodes["/r/1/2/3"].data == b"leaf"
    tree.remove("/r/1/2/3")
    run(writes.delete_empty_parents(tree, "/r", "/r/1/2/3"))
    assert sorted(tree.nodes) == ["/r", "/r/1", "/r/1/other"]
    tree.remove("/r/1/other")
    run(writes.delete_empty_parents(tree, "/r", "/r/1/other"))
    assert sorted(tree.nodes) == ["/r"]


def test_a_root_that_is_missing_is_not_made() -> None:
    tree = Tree()
    with pytest.raises(NoNodeError):
        run(writes.create_branch(tree, "/x", "/x/1/2"))
    assert sorted(tree.nodes) == ["/r"]


# ---- the same, with ZooKeeper -------------------------------------------------------------------


@asynccontextmanager
async def behind_proxy(zookeeper: ZooKeeper) -> AsyncIterator[tuple[Proxy, MetadataStore, str]]:
    """The proxy, a store whose connection goes through it, and the URI of the same cluster."""
    root = zookeeper.new_root()
    await init_cluster(zookeeper.uri(root))
    async with (
        Proxy(zookeeper.port) as proxy,
        await connect(zookeeper.uri(root, port=proxy.port)) as store,
    ):
        yield proxy, store, zookeeper.uri(root)


def test_the_latest_metadata_is_not_asked_of_a_server_that_lags(zookeeper: ZooKeeper) -> None:
    """A new session may be with a server that does not know yet what others were told: it has to catch up first."""

    async def scenario() -> None:
        async with behind_proxy(zookeeper) as (proxy, store, _):
            created = await store.create_ledger(ledger_of(5))
            before = proxy.seen[SYNC]
            assert await store.read_ledger(LedgerId(5)) == created
            assert proxy.seen[SYNC] == before
            assert await store.read_ledger(LedgerId(5), linearizable=True) == created
            assert proxy.seen[SYNC] == before + 1

    asyncio.run(scenario())


def lose(proxy: Proxy, kind: int, when: str) -> None:
    (proxy.lose_reply if when == "after" else proxy.lose_request)[kind] += 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_every_write_of_a_ledger_survives_a_broken_connection(
    zookeeper: ZooKeeper, when: str
) -> None:
    async def scenario() -> None:
        async with behind_proxy(zookeeper) as (proxy, store, _):
            lose(proxy, CREATE2, when)
            created = await store.create_ledger(ledger_of(5, creator_token=77))
            assert created == await store.read_ledger(LedgerId(5))
            lose(proxy, SET, when)
            written = await store.write_ledger(created.value, 0)
            assert written.version == 1
            lose(proxy, DELETE, when)
            await store.delete_ledger(LedgerId(5))
            assert [page async for page in store.ledger_ranges()] == []
            assert not (proxy.lose_reply + proxy.lose_request), "every fault has happened"

    asyncio.run(scenario())


def test_a_ledger_without_token_is_not_taken_for_ours(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with behind_proxy(zookeeper) as (proxy, store, _):
            # The parents exist: the first creation is the ledger itself.
            await store.create_ledger(ledger_of(4))
            lose(proxy, CREATE2, "after")
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(ledger_of(5))

    asyncio.run(scenario())


def test_a_conflict_behind_a_lost_answer_is_a_conflict(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with behind_proxy(zookeeper) as (proxy, store, uri), await connect(uri) as other:
            created = await store.create_ledger(ledger_of(5))
            lose(proxy, SET, "before")
            proxy.is_away = True
            mine = asyncio.create_task(store.write_ledger(ledger_of(5, custom=(("a", b""),)), 0))
            while proxy.lose_request[SET]:
                await asyncio.sleep(0.01)
            theirs = await other.write_ledger(created.value, 0)
            proxy.is_away = False
            with pytest.raises(VersionConflictError, match="at version 1, not 0"):
                await mine
            assert await store.read_ledger(LedgerId(5)) == theirs

    asyncio.run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_cookies_and_registrations_survive_a_broken_connection(
    zookeeper: ZooKeeper, when: str
) -> None:
    async def scenario() -> None:
        async with behind_proxy(zookeeper) as (proxy, store, _):
            await store.write_cookie(BookieId("other:1"), b"", None)
            lose(proxy, CREATE2, when)
            assert (await store.write_cookie(BOOKIE, b"one", None)).version == 0
            lose(proxy, SET, when)
            assert (await store.write_cookie(BOOKIE, b"two", 0)).version == 1
            lose(proxy, CREATE2, when)
            await store.register(BOOKIE, rpc_service_info("b", 1), read_only=False)
            assert not (await store.bookies())[BOOKIE].read_only
            lose(proxy, DELETE, when)
            await store.delete_cookie(BOOKIE)
            assert await store.read_cookie(BOOKIE) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cluster_whose_first_answer_is_lost_is_made_once(zookeeper: ZooKeeper, when: str) -> None:
    async def scenario() -> None:
        async with Proxy(zookeeper.port) as proxy:
            root = zookeeper.new_root()
            lose(proxy, MULTI, when)
            await init_cluster(zookeeper.uri(root, port=proxy.port))
            assert proxy.seen[MULTI] == 2
            async with await connect(zookeeper.uri(root)) as store:
                assert len(await store.instance_id()) == 36

    asyncio.run(scenario())
