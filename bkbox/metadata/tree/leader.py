"""Elections as Pulsar's driver holds them: whichever session owns one ephemeral node is elected. Its data is the
winner's name, as a JSON string. The auditor's is ``underreplication/leader``.

Candidates watch that node; when it goes, with its session or by hand, the first to create it again wins. Source:
PulsarLedgerAuditorManager.java, LeaderElectionImpl.java.
"""

from __future__ import annotations

import json
from contextlib import suppress

from bkbox.errors import MetadataError
from bkbox.metadata.tree.election import Election
from bkbox.metadata.tree.nodes import NodeExistsError
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.tree.watches import Watch
from bkbox.metadata.underreplication import Candidacy

AUDITOR = "underreplication/leader"
"""The node, below the root, that the auditor owns."""


class LeaderElection(Election):
    """See Election. ``path``: its node, below ``root``."""

    def __init__(self, tree: Tree, root: str, path: str) -> None:
        self._tree = tree
        self._root = root
        self._path = f"{root}/{path}"

    def candidacy(self, name: str) -> Candidacy:
        return _LeaderCandidacy(self._tree, self._root, self._path, name)

    async def holder(self) -> str | None:
        node = await self._tree.find(self._path)
        if node is None:
            return None
        try:
            name = json.loads(node.data)
        except ValueError as error:
            raise MetadataError(f"{self._tree.noun} {self._path}: {error}") from error
        if not isinstance(name, str):
            raise MetadataError(
                f"{self._tree.noun} {self._path}: the leader's name is not a string"
            )
        return name


class _LeaderCandidacy(Candidacy):
    """See Candidacy."""

    def __init__(self, tree: Tree, root: str, path: str, name: str) -> None:
        self._tree = tree
        self._root = root
        self._path = path
        self._data = json.dumps(name).encode()
        self._watch = Watch()

    async def is_elected(self) -> bool:
        self._watch.fired.clear()
        async with self._tree.deadline():
            while (found := await self._tree.find(self._path, self._watch)) is None:
                with suppress(NodeExistsError):
                    await self._tree.create_branch(
                        self._root, self._path, self._data, ephemeral=True
                    )
        return self._tree.is_own(found)

    async def changed(self, wait_s: float) -> None:
        await self._watch.wait(wait_s)

    async def close(self) -> None:
        self._tree.forget(self._watch)
        async with self._tree.deadline():
            found = await self._tree.find(self._path)
            if found is not None and self._tree.is_own(found):
                await self._tree.delete(self._path, found)
