"""Maintenance windows in ZooKeeper: ``underreplication/resting/<bookie id>``, in the encoding of maintenance.py.

Below ``underreplication`` Java reads only names that it knows; below the root of the ledgers it lists every name.
"""

from __future__ import annotations

from bkbox.base.ids import BookieId, bookie_id
from bkbox.errors import EncodingError, InvalidIdError, MetadataError
from bkbox.metadata.maintenance import MaintenanceWindow, MaintenanceWindows, decode, encode
from bkbox.metadata.underreplication import UnderReplication
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.nodes import NodeExistsError, NoNodeError


class ZooKeeperMaintenanceWindows(MaintenanceWindows):
    """See MaintenanceWindows."""

    def __init__(self, zk: Connection, root: str, java: UnderReplication) -> None:
        self.java = java
        self._zk = zk
        self._root = root
        self._folder = f"{root}/underreplication/resting"

    async def all(self) -> dict[BookieId, MaintenanceWindow]:
        found: dict[BookieId, MaintenanceWindow] = {}
        async with self._zk.deadline():
            try:
                names, _ = await self._zk.children(self._folder)
            except NoNodeError:
                return {}
            for name in names:
                node = await self._zk.find(f"{self._folder}/{name}")
                if node is not None:
                    try:
                        found[bookie_id(name)] = decode(node.data)
                    except (EncodingError, InvalidIdError) as error:
                        raise MetadataError(f"znode {self._folder}/{name}: {error}") from error
        return found

    async def put(self, bookie: BookieId, window: MaintenanceWindow) -> None:
        path, data = f"{self._folder}/{bookie}", encode(window)
        async with self._zk.deadline():
            while True:
                try:
                    await writes.create_branch(self._zk, self._root, path, data)
                except NodeExistsError:
                    try:
                        await writes.set_data(self._zk, path, data, None)
                    except NoNodeError:
                        continue  # it was removed just now
                return

    async def remove(self, bookie: BookieId) -> None:
        async with self._zk.deadline():
            await writes.delete(self._zk, f"{self._folder}/{bookie}")
