"""The election of the auditor as Pulsar's driver holds it: whichever session owns the ephemeral znode
``underreplication/leader``. Its data is the winner's name, as a JSON string.

Candidates watch that znode; when it goes, with its session or by hand, the first to create it again wins. Source:
PulsarLedgerAuditorManager.java, LeaderElectionImpl.java.
"""

from __future__ import annotations

import json
from contextlib import suppress

from bkbox.errors import MetadataError
from bkbox.metadata.underreplication import Candidacy
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection, Watch
from bkbox.metadata.zookeeper.nodes import NodeExistsError


def leader_znode(root: str) -> str:
    """The znode that the auditor owns."""
    return f"{root}/underreplication/leader"


async def present_leader(zk: Connection, path: str) -> str | None:
    """The name of the session's owner; None without one. Raises MetadataError."""
    node = await zk.find(path)
    if node is None:
        return None
    try:
        name = json.loads(node.data)
    except ValueError as error:
        raise MetadataError(f"znode {path}: {error}") from error
    if not isinstance(name, str):
        raise MetadataError(f"znode {path}: the leader's name is not a string")
    return name


class LeaderCandidacy(Candidacy):
    """See Candidacy."""

    def __init__(self, zk: Connection, root: str, name: str) -> None:
        self._zk = zk
        self._root = root
        self._path = leader_znode(root)
        self._data = json.dumps(name).encode()
        self._watch = Watch()

    async def is_elected(self) -> bool:
        self._watch.fired.clear()
        async with self._zk.deadline():
            while (found := await self._zk.find(self._path, self._watch)) is None:
                await writes.ensure_branch(self._zk, self._root, self._path.rpartition("/")[0])
                with suppress(NodeExistsError):
                    await writes.create(self._zk, self._path, self._data, ephemeral=True)
        return found.owner == self._zk.session_id

    async def changed(self, wait_s: float) -> None:
        await self._watch.wait(wait_s)

    async def close(self) -> None:
        self._zk.forget(self._watch)
        async with self._zk.deadline():
            found = await self._zk.find(self._path)
            if found is not None and found.owner == self._zk.session_id:
                await writes.delete(self._zk, self._path, found)
