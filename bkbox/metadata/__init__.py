"""The metadata stores of a cluster: SQLite, ZooKeeper or Oxia, behind the interface of base.py.

URIs: config/metadata_uri.py. ``wait_s`` is the time-out, in seconds, of each operation on ZooKeeper or Oxia,
connecting included, after which it raises MetadataUnavailableError. SQLite responds at once or after its own short
wait for a lock, whatever ``wait_s`` is.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from uuid import uuid4

from bkbox.base.text import quoted
from bkbox.config import metadata_uri
from bkbox.config.metadata_uri import MetadataUri, OxiaUri, SqliteUri, ZooKeeperUri
from bkbox.errors import ConfigError, OperatorError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.sqlite import store as sqlite_store

WAIT_S = 30.0


async def connect(uri: str, wait_s: float = WAIT_S) -> MetadataStore:
    """Connect to a cluster that exists.

    Raises ConfigError (an invalid URI, or another ledger layout than the cluster's), MetadataUnavailableError,
    OperatorError (no cluster in ZooKeeper or Oxia), MetadataError.
    """
    parsed = _parsed(uri)
    if isinstance(parsed, SqliteUri):
        return await sqlite_store.SqliteStore.open(parsed.path)
    if isinstance(parsed, OxiaUri):
        check_oxia()
        from bkbox.metadata.oxia import OxiaStore

        return await OxiaStore.open(parsed, wait_s=wait_s)
    # kazoo takes a while to import and SQLite does not need it.
    from bkbox.metadata.zookeeper import ZooKeeperStore

    return await ZooKeeperStore.open(parsed, wait_s=wait_s)


async def create(uri: str, wait_s: float = WAIT_S) -> MetadataStore:
    """Connect; an embedded store is created first, with a new instance id, unless it exists.

    A cluster in ZooKeeper or Oxia belongs to many hosts: only ``init_cluster`` creates it. Raises as connect.
    """
    parsed = _parsed(uri)
    if isinstance(parsed, SqliteUri):
        await sqlite_store.create(parsed.path)
    return await connect(uri, wait_s)


async def init_cluster(uri: str, wait_s: float = WAIT_S) -> None:
    """Create a new cluster, with a new instance id.

    Raises OperatorError (it exists), ConfigError, MetadataUnavailableError, MetadataError.
    """
    parsed = _parsed(uri)
    if isinstance(parsed, ZooKeeperUri):
        from bkbox.metadata.zookeeper import init_cluster as init_in_zookeeper

        await init_in_zookeeper(parsed, uuid4(), wait_s=wait_s)
    elif isinstance(parsed, OxiaUri):
        check_oxia()
        from bkbox.metadata.oxia import init_cluster as init_in_oxia

        await init_in_oxia(parsed, uuid4(), wait_s=wait_s)
    elif not await sqlite_store.create(parsed.path):
        raise OperatorError(f"{parsed.path} exists already: choose another name")


def _parsed(uri: str) -> MetadataUri:
    try:
        return metadata_uri.parse(uri)
    except metadata_uri.WrongUriError as error:
        raise ConfigError([f"metadata URI {quoted(uri)}: {error}"]) from None


def check_oxia() -> None:
    """Raises ConfigError if what the store on Oxia needs is not installed; keeps gRPC's own lines out of the log."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read once, with the first import
    missing = [name for name in ("grpc", "xxhash") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            [
                f"metadata URI: a store on Oxia needs {' and '.join(missing)}, which this Python has not: install it "
                "with pip install 'bkbox[oxia]'"
            ]
        )
