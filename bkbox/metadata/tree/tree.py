"""The interface of a store that is a tree of nodes, ZooKeeper or Oxia, with the operations that the other modules of
this package need. They are the same on both: BookKeeper's and Pulsar's drivers use the same paths and bytes.

Rules that every tree keeps:

- Reads are retried until they succeed. Writes have a certain outcome: one whose response was lost is resolved before
  it returns. Nothing gives up by itself; ``deadline()`` bounds its block, and raises MetadataUnavailableError.
- An ephemeral node belongs to a session and vanishes with it. An expired session is replaced automatically; its nodes
  have to be created anew.
- A watch fires once, for a change of its node, for a lost session or *because* changes may have been missed: its owner
  reads again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from bkbox.metadata.tree.nodes import Node, NodeExistsError, NoNodeError
from bkbox.metadata.tree.watches import Watch

_LISTS_AT_ONCE = 64


class Tree(ABC):
    """A session with the store. Calls after ``close`` raise HandleClosedError."""

    noun: str
    """A node's name in texts."""
    wait_s: float
    """The time-out, in seconds, of one operation."""
    session_timeout_s: float

    # ---- the session ------------------------------------------------------------------------

    @property
    @abstractmethod
    def connected(self) -> bool:
        """True while the session is known to live."""

    @property
    @abstractmethod
    def disconnected_since(self) -> float | None:
        """Time, of the event loop, since which the session may have expired; None while it is known to live."""

    @property
    @abstractmethod
    def session(self) -> object:
        """Another value after each loss of a session."""

    @abstractmethod
    def is_own(self, node: Node) -> bool:
        """True for an ephemeral node of the present session."""

    @abstractmethod
    def is_former(self, node: Node) -> bool:
        """True for an ephemeral node that an expired session of this connection left."""

    @abstractmethod
    def owner_text(self, node: Node) -> str:
        """The owner of an ephemeral node, for operators."""

    @abstractmethod
    def deadline(self, wait_s: float | None = None) -> AbstractAsyncContextManager[None]:
        """Bound the block by ``wait_s``, else by the time-out of an operation."""

    @abstractmethod
    async def until_disconnected(self) -> None:
        """Wait until ``connected`` is false."""

    @abstractmethod
    async def close(self) -> None:
        """End the session. Idempotent."""

    # ---- reads ------------------------------------------------------------------------------

    @abstractmethod
    async def get(self, path: str) -> Node:
        """Read a node. Raises NoNodeError."""

    @abstractmethod
    async def find(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node, or None; the watch is set in either case."""

    @abstractmethod
    async def exists(self, path: str) -> Node | None:
        """The node without its data, or None."""

    @abstractmethod
    async def children(self, folder: str) -> list[str]:
        """Names of the children, sorted. Raises NoNodeError, unless the store takes a missing folder for an empty
        one.
        """

    async def leaves(self, folder: str, first: str, last: str) -> AsyncIterator[str]:
        """Paths, in order, of all children of the folders ``first`` to ``last`` below this one: paths of the same
        number of names, each name of the same length.
        """
        folders = [folder]
        for low, high in zip(first.split("/"), last.split("/"), strict=True):
            folders = [
                path
                async for path in self._below(folders)
                if low <= path.rpartition("/")[2] <= high
                and len(path.rpartition("/")[2]) == len(low)
            ]
        async for path in self._below(folders):
            yield path

    async def _below(self, folders: list[str]) -> AsyncIterator[str]:
        """The paths of all children of these folders, in order; many requests are in flight at once."""
        for start in range(0, len(folders), _LISTS_AT_ONCE):
            some = folders[start : start + _LISTS_AT_ONCE]
            async with self.deadline():
                lists = await asyncio.gather(*map(self.children_or_none, some))
            for folder, names in zip(some, lists, strict=True):
                for name in names:
                    yield f"{folder}/{name}"

    async def children_or_none(self, folder: str) -> list[str]:
        """Names of the children, sorted; none of a folder that is missing."""
        try:
            return await self.children(folder)
        except NoNodeError:
            return []

    @abstractmethod
    async def children_state(self, folder: str) -> object:
        """A value that differs after a child was created or deleted."""

    @abstractmethod
    async def sync(self, path: str) -> None:
        """Reads of this node after this call are linearizable."""

    @abstractmethod
    async def sync_children(self, folder: str) -> None:
        """Lists of these children after this call are linearizable."""

    @abstractmethod
    def forget(self, watch: Watch) -> None:
        """Drop a watch: it fires no more."""

    # ---- writes -----------------------------------------------------------------------------

    @abstractmethod
    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        is_ours: Callable[[Node], bool] | None = None,
    ) -> Node:
        """Create a node whose parent exists. ``is_ours`` decides whether a stored node is the result of an attempt
        whose response was lost. Raises NodeExistsError, NoNodeError (no parent).
        """

    @abstractmethod
    async def create_branch(
        self,
        root: str,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        is_ours: Callable[[Node], bool] | None = None,
    ) -> Node:
        """Create a node and the parents that it lacks between it and ``root``.

        Raises NodeExistsError, NoNodeError (``root`` itself is missing: it is not created).
        """

    async def ensure_branch(self, root: str, path: str) -> None:
        """Create an empty node and its parents below ``root`` unless it exists."""
        try:
            await self.create_branch(root, path)
        except NodeExistsError:
            return

    @abstractmethod
    async def set_data(self, path: str, data: bytes, version: int | None) -> Node:
        """Replace this version, or any (None). Raises BadVersionError, NoNodeError."""

    @abstractmethod
    async def delete(self, path: str, seen: Node | None = None) -> None:
        """Delete the node that was seen, or any (None); succeeds if it does not exist.

        Raises BadVersionError (it is not the one that was seen), NotEmptyError.
        """

    @abstractmethod
    async def delete_empty_parents(self, root: str, path: str) -> None:
        """Delete the parents of ``path`` upwards, as long as they are empty, but never ``root``; nothing where that is
        not safe.
        """
