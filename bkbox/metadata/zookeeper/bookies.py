"""The registered bookies: ``available/<bookie id>`` and ``available/readonly/<bookie id>``.

The payload is the service info. A bookie that changes lists is registered on both for a moment and never on none. The
two lists are read consistently, and a bookie on both counts as read-only. A bookie with a malformed payload is
registered but unreachable. Source: ZKRegistrationClient.java.
"""

from __future__ import annotations

import asyncio
import logging

from bkbox.base.ids import BookieId, bookie_id
from bkbox.errors import EncodingError, InvalidIdError
from bkbox.metadata.base import RegisteredBookie
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.nodes import Node, NoNodeError
from bkbox.wire.metadata import service_info
from bkbox.wire.metadata.service_info import ServiceInfo

READ_ONLY = "readonly"

_log = logging.getLogger(__name__)


def available_path(root: str, bookie: BookieId, *, read_only: bool) -> str:
    """The path of a bookie's registration."""
    return f"{root}/available/{READ_ONLY}/{bookie}" if read_only else f"{root}/available/{bookie}"


async def read(zk: Connection, root: str) -> dict[BookieId, RegisteredBookie]:
    """All registered bookies, as they were at one moment. Raises NoNodeError: no cluster."""
    while True:
        writable, before = await zk.children(f"{root}/available")
        try:
            read_only, _ = await zk.children(f"{root}/available/{READ_ONLY}")
        except NoNodeError:
            read_only = []
        after = await zk.exists(f"{root}/available")
        if after is None or after.children_version != before.children_version:
            continue  # a bookie may have changed lists between the two reads
        sides = {name: False for name in writable if name != READ_ONLY}
        sides |= dict.fromkeys(read_only, True)
        found = await asyncio.gather(*(_find(zk, root, name, side) for name, side in sides.items()))
        if None not in found:
            return {
                bookie: registered
                for each in found
                if each is not None
                for bookie, registered in each.items()
            }


async def _find(
    zk: Connection, root: str, name: str, read_only: bool
) -> dict[BookieId, RegisteredBookie] | None:
    """The bookie; empty if the name is not a bookie id, None if it has gone meanwhile."""
    try:
        bookie = bookie_id(name)
    except InvalidIdError:
        return {}
    path = available_path(root, bookie, read_only=read_only)
    try:
        node = await zk.get(path)
    except NoNodeError:
        return None
    return {bookie: RegisteredBookie(read_only, _service_info(bookie, path, node))}


def _service_info(bookie: BookieId, path: str, node: Node) -> ServiceInfo:
    try:
        return service_info.decode(bookie, node.data)
    except EncodingError as error:
        _log.warning("znode %s does not say how the bookie is reached: %s", path, error)
        return ServiceInfo()
