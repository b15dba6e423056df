"""Cookies of bookies: ``cookies/<bookie id>``, the bytes as they are; and the disk records of bkbox's bookies:
``underreplication/disks/<bookie id>``, where Java reads only names that it knows.

Source: ZKRegistrationManager.java.
"""

from __future__ import annotations

import asyncio

from bkbox.base.ids import BookieId, bookie_id
from bkbox.errors import InvalidIdError, VersionConflictError
from bkbox.metadata.tree.nodes import BadVersionError, NodeExistsError, NoNodeError
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.versioned import Versioned

COOKIES = "cookies"
DISK_RECORDS = "underreplication/disks"


class Cookies:
    """The cookies, or the disk records, of one cluster. Contracts of the methods: MetadataStore."""

    def __init__(self, tree: Tree, root: str, folder: str = COOKIES) -> None:
        self._tree = tree
        self._root = root
        self._folder = f"{root}/{folder}"

    async def find(self, bookie: BookieId) -> Versioned[bytes] | None:
        node = await self._tree.find(self._path(bookie))
        return None if node is None else Versioned(node.data, node.version, node.changed)

    async def write(
        self, bookie: BookieId, cookie: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        path = self._path(bookie)
        try:
            if expected_version is None:
                node = await self._tree.create_branch(self._root, path, cookie)
            else:
                node = await self._tree.set_data(path, cookie, expected_version)
            return Versioned(cookie, node.version, node.changed)
        except (NodeExistsError, BadVersionError, NoNodeError):
            found = await self._tree.exists(path)
        at = None if found is None else found.version
        raise VersionConflictError(
            f"{self._path(bookie)} is {_at(at)}, not {_at(expected_version)}"
        )

    async def delete(self, bookie: BookieId) -> None:
        await self._tree.delete(self._path(bookie))

    async def all(self) -> dict[BookieId, Versioned[bytes]]:
        names = await self._tree.children_or_none(self._folder)
        bookies = []
        for name in names:
            try:
                bookies.append(bookie_id(name))
            except InvalidIdError:
                continue  # not a bookie id
        found = await asyncio.gather(*map(self.find, bookies))
        return {
            bookie: cookie
            for bookie, cookie in zip(bookies, found, strict=True)
            if cookie is not None
        }

    def _path(self, bookie: BookieId) -> str:
        return f"{self._folder}/{bookie}"


def _at(version: int | None) -> str:
    return "absent" if version is None else f"at version {version}"
