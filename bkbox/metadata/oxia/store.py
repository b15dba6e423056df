"""The metadata store on Oxia."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from bkbox.base.limits import METADATA_SESSION_TIMEOUT_S
from bkbox.config.metadata_uri import OxiaUri
from bkbox.metadata.oxia import cluster
from bkbox.metadata.oxia.connection import Connection
from bkbox.metadata.oxia.ids import LAYOUT, OxiaLedgerIds
from bkbox.metadata.oxia.tree import OxiaTree
from bkbox.metadata.tree.leader import AUDITOR, LeaderElection
from bkbox.metadata.tree.store import TreeStore


@asynccontextmanager
async def _closed_if_it_fails(
    uri: OxiaUri, wait_s: float, session_timeout_s: float
) -> AsyncIterator[OxiaTree]:
    """A connection that stays open unless the block raises; the block has one deadline."""
    connection = await Connection.open(uri, wait_s=wait_s, rng=random.Random())  # noqa: S311
    tree = OxiaTree(connection, f"bkbox:{uuid4()}", session_timeout_s)
    try:
        async with tree.deadline():
            yield tree
    except BaseException:
        await tree.close()
        raise


async def init_cluster(uri: OxiaUri, instance_id: UUID, *, wait_s: float) -> None:
    """Create a new cluster. Raises OperatorError (it exists), MetadataUnavailableError."""
    async with _closed_if_it_fails(uri, wait_s, METADATA_SESSION_TIMEOUT_S) as tree:
        await cluster.init(tree, uri, instance_id)
    await tree.close()


class OxiaStore(TreeStore):
    """See MetadataStore; made by ``open``. All elections are held as the auditor's."""

    def __init__(self, tree: OxiaTree, root: str) -> None:
        super().__init__(
            tree,
            root,
            LAYOUT,
            OxiaLedgerIds(tree, root),
            lambda path: LeaderElection(tree, root, path),
            LeaderElection(tree, root, AUDITOR),
        )

    @classmethod
    async def open(
        cls, uri: OxiaUri, *, wait_s: float, session_timeout_s: float = METADATA_SESSION_TIMEOUT_S
    ) -> OxiaStore:
        """Connect to an existing cluster; each operation may take ``wait_s``.

        Raises MetadataUnavailableError, OperatorError (no cluster), ConfigError, MetadataError.
        """
        async with _closed_if_it_fails(uri, wait_s, session_timeout_s) as tree:
            await cluster.open_root(tree, uri)
        return cls(tree, uri.root)
