"""New ledger ids, as Pulsar's driver draws them from Oxia: the number of writes of a record.

The short ids come from ``idgen``, 1 first. When they are used up ids go on in ``idgen-long/HOB-n``: n is the upper half
of the id, the number of its writes the lower one. Once ``idgen-long`` exists every client draws there. The driver also
creates an ephemeral record with the number in its name, and deletes it; nothing reads that, and it is left out here.
Source: PulsarLedgerIdGenerator.java, OxiaMetadataStore.java (Sequential).
"""

from __future__ import annotations

import re

from bkbox.base.ids import LedgerId
from bkbox.metadata.oxia.tree import OxiaTree
from bkbox.wire.metadata.paths import (
    PathLayout,
    generated_id,
    id_prefix,
    ledger_path,
    long_id_prefix,
)

LAYOUT = PathLayout.HIERARCHICAL
"""The only one that Pulsar's driver knows."""

_UPPER_HALF = re.compile("HOB-([0-9]{10})")


class OxiaLedgerIds:
    """The id generator of one cluster."""

    def __init__(self, tree: OxiaTree, root: str) -> None:
        self._tree = tree
        self._root = root
        self._long = f"{root}/idgen-long"
        self._is_long = False

    async def next(self) -> LedgerId:
        """An id that no ledger has and that is never drawn again. Raises MetadataError."""
        while True:
            ledger = await self._draw()
            # Another client may have chosen this ledger id itself.
            if await self._tree.exists(ledger_path(self._root, LAYOUT, ledger)) is None:
                return ledger

    async def _draw(self) -> LedgerId:
        if not self._is_long:
            self._is_long = await self._tree.exists(self._long) is not None
        if not self._is_long:
            ledger = await self._number(id_prefix(self._root, LAYOUT))
            if ledger is not None:
                return ledger
            await self._tree.ensure_branch(self._root, self._long)
            self._is_long = True
        names = await self._tree.children(self._long)
        halves = [int(match[1]) for match in map(_UPPER_HALF.fullmatch, names) if match]
        half = max(halves, default=1)
        while (ledger := await self._number(long_id_prefix(self._root, half))) is None:
            half += 1
        return ledger

    async def _number(self, prefix: str) -> LedgerId | None:
        """The id that this write gives; None if the counter has overflowed."""
        counter = prefix.rpartition("/")[0]
        await self._tree.ensure_branch(self._root, counter)
        return generated_id(f"{prefix}{await self._tree.count(counter):010d}")
