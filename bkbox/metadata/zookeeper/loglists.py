"""Lists of logs in ZooKeeper: ``underreplication/logs/<name>``; the votes of elections are below
``underreplication/logelections/<name>``.

Below ``underreplication`` Java reads only names that it knows; below the root of the ledgers it lists every name.
These znodes are below the root all the same, so that they go with the cluster. (Formatting a cluster keeps them: a
list names the cluster of its ledgers.)
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from bkbox.errors import VersionConflictError
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.underreplication import Candidacy
from bkbox.metadata.versioned import Versioned
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection, Watch
from bkbox.metadata.zookeeper.election import ZooKeeperCandidacy, present_holder
from bkbox.metadata.zookeeper.nodes import BadVersionError, NodeExistsError, NoNodeError
from bkbox.metadata.zookeeper.watches import follow


class ZooKeeperLogLists(LogLists):
    """See LogLists."""

    def __init__(self, zk: Connection, root: str) -> None:
        self._zk = zk
        self._root = root
        self._folder = f"{root}/underreplication/logs"

    async def find(self, name: str, *, linearizable: bool = False) -> Versioned[bytes] | None:
        async with self._zk.deadline():
            if linearizable:
                await self._zk.sync(self._folder)
            return await self._find(name)

    async def write(self, name: str, data: bytes, expected_version: int | None) -> int:
        path = f"{self._folder}/{name}"
        async with self._zk.deadline():
            try:
                if expected_version is None:
                    await writes.create_branch(self._zk, self._root, path, data)
                    return 0
                return (await writes.set_data(self._zk, path, data, expected_version)).version
            except (NodeExistsError, BadVersionError, NoNodeError) as error:
                raise VersionConflictError(
                    f"the list of log {name} was changed by another client"
                ) from error

    def watch(self, name: str) -> AsyncIterator[Versioned[bytes] | None]:
        return follow(self._zk, lambda watch: self._find(name, watch))

    async def names(self) -> list[str]:
        async with self._zk.deadline():
            try:
                return (await self._zk.children(self._folder))[0]
            except NoNodeError:
                return []

    def candidacy(self, name: str, candidate: str) -> Candidacy:
        return ZooKeeperCandidacy(self._zk, self._root, self._election(name), candidate)

    async def leader(self, name: str) -> str | None:
        async with self._zk.deadline():
            return await present_holder(self._zk, self._election(name))

    def _election(self, name: str) -> str:
        return f"{self._root}/underreplication/logelections/{name}"

    async def _find(self, name: str, watch: Watch | None = None) -> Versioned[bytes] | None:
        node = await self._zk.find(f"{self._folder}/{name}", watch)
        return None if node is None else Versioned(node.data, node.version)
