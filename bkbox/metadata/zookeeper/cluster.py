"""The root of a cluster's tree: its creation, and the layout of its ledgers.

``init`` leaves what BookKeeper's initnewcluster leaves: the root, ``available``, ``available/readonly`` and
``INSTANCEID`` in one transaction, then ``LAYOUT``. A process that connects creates ``LAYOUT`` and
``available/readonly`` if they are missing, as BookKeeper's drivers do. Source: ZKMetadataDriverBase.java,
AbstractZkLedgerManagerFactory.java, ZKRegistrationManager.java.

Pulsar's driver creates of these only the root and ``INSTANCEID`` (PulsarRegistrationManager.java), and ignores
``LAYOUT``.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from bkbox.base.commandline import cluster_command, plain_command
from bkbox.config.metadata_uri import METADATA_STORE, ZooKeeperUri
from bkbox.errors import ConfigError, EncodingError, MetadataError, OperatorError
from bkbox.metadata.tree.nodes import LostReplyError, NodeExistsError, NoNodeError
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.wire.metadata import layout as layouts
from bkbox.wire.metadata.layout import LedgerLayout
from bkbox.wire.metadata.paths import PathLayout

DEFAULT_LAYOUT = PathLayout.HIERARCHICAL

_FACTORIES = {layout.factory_class: layout for layout in PathLayout}
_SHORT_NAMES = {"flat": PathLayout.FLAT, "hierarchical": PathLayout.HIERARCHICAL}


async def init(zk: Connection, uri: ZooKeeperUri, instance_id: UUID) -> None:
    """Create a new cluster, and the parents of its root. Raises OperatorError if the root exists."""
    root = uri.root
    identity = str(instance_id).encode()
    for parent in _parents(root):
        with suppress(NodeExistsError):
            await writes.create(zk, parent)
    nodes = [
        (root, b""),
        (f"{root}/available", b""),
        (f"{root}/available/readonly", b""),
        (f"{root}/INSTANCEID", identity),
    ]
    while True:
        try:
            await zk.try_create_all(nodes)
        except LostReplyError:
            continue
        except NodeExistsError:
            # Ours, if only the response was lost: no other process has this instance id.
            found = await zk.find(f"{root}/INSTANCEID")
            if found is None or found.data != identity:
                raise OperatorError(
                    f"{root} exists already in ZooKeeper ({zk.hosts}): choose another root, or "
                    f"look at what is there with `{cluster_command('cluster', 'info')}`"
                ) from None
        break
    await _create_layout(zk, uri)


async def open_root(zk: Connection, uri: ZooKeeperUri) -> PathLayout:
    """Check that the cluster exists, create what a driver creates; returns the layout of its ledgers.

    Raises OperatorError (no cluster), ConfigError (another layout than the URI names), MetadataError.
    """
    # Every write acknowledged to any client before now is visible from here on: phase one relies on it.
    await zk.sync(uri.root)
    if await zk.exists(uri.root) is None:
        raise OperatorError(
            f"there is no cluster at {uri.root} in ZooKeeper ({zk.hosts}): "
            + (
                await _cluster_at_chroot(zk, uri)
                or f"run `{plain_command('cluster', 'init', '--metadata', uri)}`"
            )
        )
    with suppress(NodeExistsError, NoNodeError):
        await writes.create(zk, f"{uri.root}/available/readonly")
    path = f"{uri.root}/LAYOUT"
    node = await zk.find(path)
    if node is None:
        await _create_layout(zk, uri)
        node = await zk.get(path)
    found = _layout_of(path, node.data)
    if uri.pulsar and found is not DEFAULT_LAYOUT:
        raise ConfigError(
            [
                f"the ledgers of the cluster at {uri.root} have the layout {found.value}, and {METADATA_STORE}: knows "
                f"only {DEFAULT_LAYOUT.value}: write zk://{';'.join(uri.hosts)}{uri.root} as the metadata URI"
            ]
        )
    if uri.layout not in (None, found.value):
        raise ConfigError(
            [
                f"the ledgers of the cluster at {uri.root} have the layout {found.value}, not "
                f"{uri.layout}: write zk:// instead of zk+{uri.layout}:// in the metadata URI"
            ]
        )
    return found


async def _create_layout(zk: Connection, uri: ZooKeeperUri) -> None:
    layout = DEFAULT_LAYOUT if uri.layout is None else PathLayout(uri.layout)
    data = layouts.encode(LedgerLayout(layout.factory_class))
    with suppress(NodeExistsError):
        await writes.create(zk, f"{uri.root}/LAYOUT", data)


def _layout_of(path: str, data: bytes) -> PathLayout:
    try:
        stored = layouts.decode(data)
    except EncodingError as error:
        raise MetadataError(f"znode {path}: {error}") from error
    names = _SHORT_NAMES if stored.format_version == 1 else _FACTORIES
    layout = names.get(stored.factory_class)
    if layout is None or stored.manager_version != 1:
        raise MetadataError(
            f"znode {path}: ledgers are laid out by {stored.factory_class}, version "
            f"{stored.manager_version}, which bkbox does not know"
        )
    return layout


def _parents(root: str) -> list[str]:
    names = root.split("/")[1:-1]
    return ["/" + "/".join(names[: count + 1]) for count in range(len(names))]


async def _cluster_at_chroot(zk: Connection, uri: ZooKeeperUri) -> str:
    """The hint for a chroot that is itself the root of a cluster; empty if it is not."""
    root = uri.root.rpartition("/")[0]
    if not uri.pulsar or not root or await zk.exists(f"{root}/INSTANCEID") is None:
        return ""
    return (
        f"the root of {METADATA_STORE}: is `ledgers` below the path that the URI names. There is a cluster at {root}: "
        f"write zk://{';'.join(uri.hosts)}{root}, or name the path above it"
    )
