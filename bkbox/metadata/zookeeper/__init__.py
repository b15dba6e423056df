"""The metadata store on ZooKeeper, in the tree and the bytes that BookKeeper's own processes use."""

from bkbox.metadata.zookeeper.store import ZooKeeperStore, init_cluster
from bkbox.metadata.zookeeper.underreplication import UnderReplication

__all__ = ["ZooKeeperStore", "UnderReplication", "init_cluster"]
