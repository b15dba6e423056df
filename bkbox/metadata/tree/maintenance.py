"""Maintenance windows in a tree: ``underreplication/resting/<bookie id>``, in the encoding of maintenance.py.

Below ``underreplication`` Java reads only names that it knows; below the root of the ledgers it lists every name.
"""

from __future__ import annotations

from bkbox.base.ids import BookieId, bookie_id
from bkbox.errors import EncodingError, InvalidIdError, MetadataError
from bkbox.metadata.maintenance import MaintenanceWindow, MaintenanceWindows, decode, encode
from bkbox.metadata.tree.nodes import NodeExistsError, NoNodeError
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.underreplication import UnderReplication


class TreeMaintenanceWindows(MaintenanceWindows):
    """See MaintenanceWindows."""

    def __init__(self, tree: Tree, root: str, java: UnderReplication) -> None:
        self.java = java
        self._tree = tree
        self._root = root
        self._folder = f"{root}/underreplication/resting"

    async def all(self) -> dict[BookieId, MaintenanceWindow]:
        found: dict[BookieId, MaintenanceWindow] = {}
        async with self._tree.deadline():
            names = await self._tree.children_or_none(self._folder)
            for name in names:
                node = await self._tree.find(f"{self._folder}/{name}")
                if node is not None:
                    try:
                        found[bookie_id(name)] = decode(node.data)
                    except (EncodingError, InvalidIdError) as error:
                        raise MetadataError(
                            f"{self._tree.noun} {self._folder}/{name}: {error}"
                        ) from error
        return found

    async def put(self, bookie: BookieId, window: MaintenanceWindow) -> None:
        path, data = f"{self._folder}/{bookie}", encode(window)
        async with self._tree.deadline():
            while True:
                try:
                    await self._tree.create_branch(self._root, path, data)
                except NodeExistsError:
                    try:
                        await self._tree.set_data(path, data, None)
                    except NoNodeError:
                        continue  # it was removed just now
                return

    async def remove(self, bookie: BookieId) -> None:
        async with self._tree.deadline():
            await self._tree.delete(f"{self._folder}/{bookie}")
