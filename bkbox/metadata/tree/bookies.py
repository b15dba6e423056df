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
from bkbox.metadata.tree.nodes import Node, NoNodeError
from bkbox.metadata.tree.tree import Tree
from bkbox.wire.metadata import service_info
from bkbox.wire.metadata.service_info import ServiceInfo

READ_ONLY = "readonly"

_log = logging.getLogger(__name__)


def available_path(root: str, bookie: BookieId, *, read_only: bool) -> str:
    """The path of a bookie's registration."""
    return f"{root}/available/{READ_ONLY}/{bookie}" if read_only else f"{root}/available/{bookie}"


async def read(tree: Tree, root: str) -> dict[BookieId, RegisteredBookie]:
    """All registered bookies, as they were at one moment. Raises NoNodeError: no cluster."""
    while True:
        before = await tree.children_state(f"{root}/available")
        writable = await tree.children(f"{root}/available")
        try:
            read_only = await tree.children(f"{root}/available/{READ_ONLY}")
        except NoNodeError:
            read_only = []
        if await tree.children_state(f"{root}/available") != before:
            continue  # a bookie may have changed lists between the two reads
        sides = {name: False for name in writable if name != READ_ONLY}
        sides |= dict.fromkeys(read_only, True)
        found = await asyncio.gather(
            *(_find(tree, root, name, side) for name, side in sides.items())
        )
        if None not in found:
            return {
                bookie: registered
                for each in found
                if each is not None
                for bookie, registered in each.items()
            }


async def _find(
    tree: Tree, root: str, name: str, read_only: bool
) -> dict[BookieId, RegisteredBookie] | None:
    """The bookie; empty if the name is not a bookie id, None if it has gone meanwhile."""
    try:
        bookie = bookie_id(name)
    except InvalidIdError:
        return {}
    path = available_path(root, bookie, read_only=read_only)
    try:
        node = await tree.get(path)
    except NoNodeError:
        return None
    return {bookie: RegisteredBookie(read_only, _service_info(tree, bookie, path, node))}


def _service_info(tree: Tree, bookie: BookieId, path: str, node: Node) -> ServiceInfo:
    try:
        return service_info.decode(bookie, node.data)
    except EncodingError as error:
        _log.warning("%s %s does not say how the bookie is reached: %s", tree.noun, path, error)
        return ServiceInfo()
