"""The metadata store on ZooKeeper, in the tree and the bytes that BookKeeper's own processes use."""

from bkbox.metadata.zookeeper.store import ZooKeeperStore, init_cluster

__all__ = ["ZooKeeperStore", "init_cluster"]
