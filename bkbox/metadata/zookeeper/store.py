"""The metadata store on ZooKeeper."""

from __future__ import annotations

from uuid import UUID

from bkbox.base.limits import METADATA_SESSION_TIMEOUT_S
from bkbox.config.metadata_uri import ZooKeeperUri
from bkbox.metadata.tree.election import Election
from bkbox.metadata.tree.leader import AUDITOR, LeaderElection
from bkbox.metadata.tree.store import TreeStore
from bkbox.metadata.zookeeper import cluster
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.election import AUDITORS, VoteElection
from bkbox.metadata.zookeeper.ids import ZooKeeperLedgerIds
from bkbox.metadata.zookeeper.tree import ZooKeeperTree
from bkbox.wire.metadata.paths import PathLayout


async def init_cluster(uri: ZooKeeperUri, instance_id: UUID, *, wait_s: float) -> None:
    """Create a new cluster. Raises OperatorError (its root exists), MetadataUnavailableError."""
    zk = await Connection.open(uri.hosts, wait_s=wait_s, access=uri.access)
    try:
        async with zk.deadline():
            await cluster.init(zk, uri, instance_id)
    finally:
        await zk.close()


class ZooKeeperStore(TreeStore):
    """See MetadataStore; made by ``open``."""

    def __init__(
        self, zk: Connection, root: str, layout: PathLayout, *, pulsar: bool = False
    ) -> None:
        """``pulsar``: other processes reach the tree by Pulsar's driver, so the auditor is elected as there."""
        self._zk = zk
        tree = ZooKeeperTree(zk)

        def election(path: str) -> Election:
            return VoteElection(zk, root, path)

        super().__init__(
            tree,
            root,
            layout,
            ZooKeeperLedgerIds(zk, root, layout),
            election,
            LeaderElection(tree, root, AUDITOR) if pulsar else election(AUDITORS),
        )

    @classmethod
    async def open(
        cls,
        uri: ZooKeeperUri,
        *,
        wait_s: float,
        session_timeout_s: float = METADATA_SESSION_TIMEOUT_S,
    ) -> ZooKeeperStore:
        """Connect to an existing cluster; each operation may take ``wait_s``.

        Raises MetadataUnavailableError, OperatorError (no cluster), ConfigError (another layout),
        MetadataError.
        """
        zk = await Connection.open(
            uri.hosts, wait_s=wait_s, session_timeout_s=session_timeout_s, access=uri.access
        )
        try:
            async with zk.deadline():
                layout = await cluster.open_root(zk, uri)
        except BaseException:
            await zk.close()
            raise
        return cls(zk, uri.root, layout, pulsar=uri.pulsar)
