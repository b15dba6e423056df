"""Ledger metadata in a tree: one node per ledger, whose version is the ledger's version.

A ledger is the node at the path of its id; nodes with other names or at other depths are not listed and do no harm.
Listing walks the tree in ascending order of ids, one leaf folder after the other, each after a ``sync``. A folder
that vanishes meanwhile was empty.

``underreplication/ended/<ledger id>`` lists ledgers whose metadata records an accepted loss, so that they are found
without reading all metadata; below ``underreplication`` Java reads only names that it knows.

Source: AbstractZkLedgerManager.java, HierarchicalLedgerManager.java,
LongHierarchicalLedgerManager.java.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

from bkbox.base.ids import MAX_ID, LedgerId
from bkbox.errors import (
    EncodingError,
    LedgerExistsError,
    MetadataError,
    NoSuchLedgerError,
    VersionConflictError,
)
from bkbox.metadata.base import RANGE_LEDGERS_MAX
from bkbox.metadata.tree.nodes import BadVersionError, Node, NodeExistsError, NoNodeError
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.tree.watches import Watch
from bkbox.metadata.versioned import Versioned
from bkbox.wire.metadata import ledger_metadata
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.loss import losses_of
from bkbox.wire.metadata.paths import PathLayout, is_ledger_parent, ledger_path

_KEEPS_NO_EMPTY_PARENTS = (PathLayout.HIERARCHICAL, PathLayout.LONG_HIERARCHICAL)
_DIGITS = re.compile("[0-9]+")


class Ledgers:
    """The ledgers of one cluster. Contracts of the methods: MetadataStore."""

    def __init__(self, tree: Tree, root: str, layout: PathLayout) -> None:
        self._tree = tree
        self._root = root
        self._layout = layout
        self._ended = f"{root}/underreplication/ended"

    async def create(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        ledger, token = metadata.ledger_id, metadata.creator_token
        data = ledger_metadata.encode(metadata)
        ledger_metadata.decode(
            ledger, data
        )  # metadata that no client could read is refused before it is stored
        path = self.path(ledger)
        try:
            # Equal bytes alone prove nothing: without a token two creators may write the same.
            node = await self._tree.create_branch(
                self._root, path, data, is_ours=lambda _found: False
            )
        except NodeExistsError:
            stored = await self.find(ledger)
            if stored is not None and token and stored.value.creator_token == token:
                return stored
            raise LedgerExistsError(f"ledger {ledger} exists already") from None
        return self._decoded(ledger, node)

    async def find(
        self, ledger: LedgerId, watch: Watch | None = None
    ) -> Versioned[LedgerMetadata] | None:
        """The ledger or None. Raises MetadataError if the stored metadata cannot be decoded."""
        node = await self._tree.find(self.path(ledger), watch)
        return None if node is None else self._decoded(ledger, node)

    async def write(
        self, metadata: LedgerMetadata, expected_version: int
    ) -> Versioned[LedgerMetadata]:
        ledger = metadata.ledger_id
        data = ledger_metadata.encode(replace(metadata, creator_token=0))
        ledger_metadata.decode(ledger, data)
        path = self.path(ledger)
        if losses_of(metadata):  # first: a record must not be there without it
            with suppress(NodeExistsError):
                await self._tree.create_branch(self._root, f"{self._ended}/{ledger}", b"")
        try:
            node = await self._tree.set_data(path, data, expected_version)
            return self._decoded(ledger, node)
        except BadVersionError:
            found = await self._tree.exists(path)
        except NoNodeError:
            found = None
        if found is None:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")
        raise VersionConflictError(
            f"ledger {ledger} is at version {found.version}, not {expected_version}"
        )

    async def delete(self, ledger: LedgerId) -> None:
        path = self.path(ledger)
        await self._tree.delete(path)
        if self._layout in _KEEPS_NO_EMPTY_PARENTS:
            await self._tree.delete_empty_parents(self._root, path)
        await self._tree.delete(f"{self._ended}/{ledger}")

    async def ended(self) -> list[LedgerId]:
        names = await self._tree.children_or_none(self._ended)
        return sorted(LedgerId(int(name)) for name in names if _DIGITS.fullmatch(name))

    async def pages(self) -> AsyncIterator[list[LedgerId]]:
        async for leaf in self._leaves(self._root):
            for start in range(0, len(leaf), RANGE_LEDGERS_MAX):
                yield leaf[start : start + RANGE_LEDGERS_MAX]

    def path(self, ledger: LedgerId) -> str:
        return ledger_path(self._root, self._layout, ledger)

    # ---- listing ----------------------------------------------------------------------------

    async def _leaves(self, folder: str) -> AsyncIterator[list[LedgerId]]:
        """The ledgers of each folder below this one, ascending."""
        names = await self._names(folder)
        ledgers = sorted(
            ledger for name in names if (ledger := self._ledger_at(f"{folder}/{name}")) is not None
        )
        if ledgers:
            yield ledgers
        is_root = folder == self._root
        # Short forms have names of two digits, long ones of three, and larger ids.
        for name in sorted(filter(_DIGITS.fullmatch, names), key=lambda name: (len(name), name)):
            if not is_root or is_ledger_parent(self._layout, name):
                async for leaf in self._leaves(f"{folder}/{name}"):
                    yield leaf

    async def _names(self, folder: str) -> list[str]:
        async with self._tree.deadline():
            try:
                await self._tree.sync_children(folder)
                return await self._tree.children(folder)
            except NoNodeError:
                if folder == self._root:
                    raise
                return []

    def _ledger_at(self, path: str) -> LedgerId | None:
        """The ledger with this path; None if it is not a ledger's."""
        parts = path[len(self._root) + 1 :].split("/")
        digits = "".join((*parts[:-1], parts[-1][1:]))
        if not _DIGITS.fullmatch(digits) or int(digits) > MAX_ID:
            return None
        ledger = LedgerId(int(digits))
        return ledger if self.path(ledger) == path else None

    def _decoded(self, ledger: LedgerId, node: Node) -> Versioned[LedgerMetadata]:
        try:
            value = ledger_metadata.decode(ledger, node.data, node.ctime_ms)
        except EncodingError as error:
            raise MetadataError(f"{self._tree.noun} {self.path(ledger)}: {error}") from error
        return Versioned(value, node.version, node.changed)
