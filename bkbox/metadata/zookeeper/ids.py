"""New ledger ids, drawn from the numbers that ZooKeeper gives to sequential znodes.

A number of 31 bits comes from ``idgen/ID-`` (in the flat layout: ``ID-`` below the root). When those are used up, the
hierarchical layouts go on in ``idgen-long/HOB-n/ID-``: n is the upper half of the id, the number the lower one. Once
``idgen-long`` exists every client draws there. The znode of a number is ephemeral and deleted at once, since only the
parent's counter matters. Source: ZkLedgerIdGenerator.java, LongZkLedgerIdGenerator.java.
"""

from __future__ import annotations

import re

from bkbox.base.ids import LedgerId
from bkbox.errors import MetadataError
from bkbox.metadata.tree.nodes import LostReplyError, NoNodeError
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.wire.metadata.paths import (
    PathLayout,
    generated_id,
    id_prefix,
    ledger_path,
    long_id_prefix,
)

_LONG_LAYOUTS = (PathLayout.HIERARCHICAL, PathLayout.LONG_HIERARCHICAL)
_UPPER_HALF = re.compile("HOB-([0-9]{10})")


class ZooKeeperLedgerIds:
    """The id generator of one cluster."""

    def __init__(self, zk: Connection, root: str, layout: PathLayout) -> None:
        self._zk = zk
        self._root = root
        self._layout = layout
        self._long = f"{root}/idgen-long"
        self._is_long = False

    async def next(self) -> LedgerId:
        """An id that no ledger has and that is never drawn again. Raises MetadataError."""
        while True:
            ledger = await self._draw()
            # Another client may have chosen this ledger id itself.
            if await self._zk.exists(ledger_path(self._root, self._layout, ledger)) is None:
                return ledger

    async def _draw(self) -> LedgerId:
        if not self._is_long:
            if self._layout in _LONG_LAYOUTS:
                self._is_long = await self._zk.exists(self._long) is not None
            if not self._is_long:
                ledger = await self._number(id_prefix(self._root, self._layout))
                if ledger is not None:
                    return ledger
                if self._layout not in _LONG_LAYOUTS:
                    raise MetadataError(
                        f"all ledger ids of the layout {self._layout.value} are used up "
                        f"({self._root})"
                    )
                await writes.ensure_branch(self._zk, self._root, self._long)
                self._is_long = True
        return await self._draw_long()

    async def _draw_long(self) -> LedgerId:
        names, _ = await self._zk.children(self._long)
        halves = [int(match[1]) for match in map(_UPPER_HALF.fullmatch, names) if match]
        half = max(halves, default=1)
        while True:
            ledger = await self._number(long_id_prefix(self._root, half))
            if ledger is not None:
                return ledger
            half += 1

    async def _number(self, prefix: str) -> LedgerId | None:
        """The id of a new sequential znode; None if the counter has overflowed."""
        while True:
            try:
                created = await self._zk.try_create_sequential(prefix)
            except LostReplyError:
                continue  # skipping a number does no harm
            except NoNodeError:
                parent = prefix.rpartition("/")[0]
                if parent == self._root:
                    raise
                await writes.ensure_branch(self._zk, self._root, parent)
                continue
            self._zk.delete_later(created)
            return generated_id(created)
