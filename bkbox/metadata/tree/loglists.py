"""Lists of logs in a tree: ``underreplication/logs/<name>``; elections are at ``underreplication/logelections/<name>``.

Below ``underreplication`` Java reads only names that it knows; below the root of the ledgers it lists every name.
These nodes are below the root all the same, so that they go with the cluster. (Formatting a cluster keeps them: a
list names the cluster of its ledgers.)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from bkbox.errors import VersionConflictError
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.tree.election import Election
from bkbox.metadata.tree.nodes import BadVersionError, NodeExistsError, NoNodeError
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.tree.watches import Watch, follow
from bkbox.metadata.underreplication import Candidacy
from bkbox.metadata.versioned import Versioned

_ELECTIONS = "underreplication/logelections"


class TreeLogLists(LogLists):
    """See LogLists."""

    def __init__(self, tree: Tree, root: str, election: Callable[[str], Election]) -> None:
        """``election``: the one whose path, below the root, is named."""
        self._tree = tree
        self._root = root
        self._election = election
        self._folder = f"{root}/underreplication/logs"

    async def find(self, name: str, *, linearizable: bool = False) -> Versioned[bytes] | None:
        async with self._tree.deadline():
            if linearizable:
                await self._tree.sync(f"{self._folder}/{name}")
            return await self._find(name)

    async def write(self, name: str, data: bytes, expected_version: int | None) -> int:
        path = f"{self._folder}/{name}"
        async with self._tree.deadline():
            try:
                if expected_version is None:
                    await self._tree.create_branch(self._root, path, data)
                    return 0
                return (await self._tree.set_data(path, data, expected_version)).version
            except (NodeExistsError, BadVersionError, NoNodeError) as error:
                raise VersionConflictError(
                    f"the list of log {name} was changed by another client"
                ) from error

    def watch(self, name: str) -> AsyncIterator[Versioned[bytes] | None]:
        return follow(self._tree, lambda watch: self._find(name, watch))

    async def names(self) -> list[str]:
        async with self._tree.deadline():
            return await self._tree.children_or_none(self._folder)

    def candidacy(self, name: str, candidate: str) -> Candidacy:
        return self._election(f"{_ELECTIONS}/{name}").candidacy(candidate)

    async def leader(self, name: str) -> str | None:
        async with self._tree.deadline():
            return await self._election(f"{_ELECTIONS}/{name}").holder()

    async def _find(self, name: str, watch: Watch | None = None) -> Versioned[bytes] | None:
        node = await self._tree.find(f"{self._folder}/{name}", watch)
        return None if node is None else Versioned(node.data, node.version)
