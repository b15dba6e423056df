"""ZooKeeper as a tree of nodes: reads of connection.py, and the certain writes of writes.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from bkbox.metadata.tree.nodes import Node
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.tree.watches import Watch
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.nodes import Znode


class ZooKeeperTree(Tree):
    """See Tree."""

    noun = "znode"

    def __init__(self, zk: Connection) -> None:
        self._zk = zk
        self.wait_s = zk.wait_s
        self.session_timeout_s = zk.session_timeout_s

    # ---- the session ------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._zk.connected

    @property
    def disconnected_since(self) -> float | None:
        return self._zk.disconnected_since

    @property
    def session(self) -> object:
        return self._zk.session_id

    def is_own(self, node: Node) -> bool:
        return node.owner == self._zk.session_id

    def is_former(self, node: Node) -> bool:
        return node.owner in self._zk.sessions and not self.is_own(node)

    def owner_text(self, node: Node) -> str:
        assert isinstance(node.owner, int)
        return f"the ZooKeeper session 0x{node.owner & (2**64 - 1):x}"

    def deadline(self, wait_s: float | None = None) -> AbstractAsyncContextManager[None]:
        return self._zk.deadline(wait_s)

    async def until_disconnected(self) -> None:
        await self._zk.until_disconnected()

    async def close(self) -> None:
        await self._zk.close()

    # ---- reads ------------------------------------------------------------------------------

    async def get(self, path: str) -> Node:
        return await self._zk.get(path)

    async def find(self, path: str, watch: Watch | None = None) -> Node | None:
        return await self._zk.find(path, watch)

    async def exists(self, path: str) -> Node | None:
        return await self._zk.exists(path)

    async def children(self, folder: str) -> list[str]:
        return (await self._zk.children(folder))[0]

    async def children_state(self, folder: str) -> object:
        found = await self._zk.exists(folder)
        return None if found is None else found.children_version

    async def sync(self, path: str) -> None:
        await self._zk.sync(path)

    async def sync_children(self, folder: str) -> None:
        await self._zk.sync(folder)

    def forget(self, watch: Watch) -> None:
        self._zk.forget(watch)

    # ---- writes -----------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        is_ours: Callable[[Node], bool] | None = None,
    ) -> Node:
        return await writes.create(self._zk, path, data, ephemeral=ephemeral, is_ours=is_ours)

    async def create_branch(
        self,
        root: str,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        is_ours: Callable[[Node], bool] | None = None,
    ) -> Node:
        return await writes.create_branch(
            self._zk, root, path, data, ephemeral=ephemeral, is_ours=is_ours
        )

    async def set_data(self, path: str, data: bytes, version: int | None) -> Node:
        return await writes.set_data(self._zk, path, data, version)

    async def delete(self, path: str, seen: Node | None = None) -> None:
        assert seen is None or isinstance(seen, Znode)
        await writes.delete(self._zk, path, seen)

    async def delete_empty_parents(self, root: str, path: str) -> None:
        await writes.delete_empty_parents(self._zk, root, path)
