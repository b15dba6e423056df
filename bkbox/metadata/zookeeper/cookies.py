"""Cookies of bookies: ``cookies/<bookie id>``, the bytes as they are; and the disk records of bkbox's bookies:
``underreplication/disks/<bookie id>``, where Java reads only names that it knows.

Source: ZKRegistrationManager.java.
"""

from __future__ import annotations

import asyncio

from bkbox.base.ids import BookieId, bookie_id
from bkbox.errors import InvalidIdError, VersionConflictError
from bkbox.metadata.versioned import Versioned
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.nodes import BadVersionError, NodeExistsError, NoNodeError

COOKIES = "cookies"
DISK_RECORDS = "underreplication/disks"


class Cookies:
    """The cookies, or the disk records, of one cluster. Contracts of the methods: MetadataStore."""

    def __init__(self, zk: Connection, root: str, folder: str = COOKIES) -> None:
        self._zk = zk
        self._root = root
        self._folder = f"{root}/{folder}"

    async def find(self, bookie: BookieId) -> Versioned[bytes] | None:
        node = await self._zk.find(self._path(bookie))
        return None if node is None else Versioned(node.data, node.version, node.changed)

    async def write(
        self, bookie: BookieId, cookie: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        path = self._path(bookie)
        try:
            if expected_version is None:
                node = await writes.create_branch(self._zk, self._root, path, cookie)
            else:
                node = await writes.set_data(self._zk, path, cookie, expected_version)
            return Versioned(cookie, node.version, node.changed)
        except (NodeExistsError, BadVersionError, NoNodeError):
            found = await self._zk.exists(path)
        at = None if found is None else found.version
        raise VersionConflictError(
            f"{self._path(bookie)} is {_at(at)}, not {_at(expected_version)}"
        )

    async def delete(self, bookie: BookieId) -> None:
        await writes.delete(self._zk, self._path(bookie))

    async def all(self) -> dict[BookieId, Versioned[bytes]]:
        try:
            names, _ = await self._zk.children(self._folder)
        except NoNodeError:
            return {}
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
