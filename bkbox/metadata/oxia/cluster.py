"""The root of a cluster in Oxia: what Pulsar's driver leaves of initnewcluster, the empty root and ``INSTANCEID``.

It writes no ``LAYOUT``: it knows the hierarchical one alone. Source: PulsarRegistrationManager.java.
"""

from __future__ import annotations

from uuid import UUID

from bkbox.base.commandline import cluster_command, plain_command
from bkbox.config.metadata_uri import OxiaUri
from bkbox.errors import ConfigError, OperatorError
from bkbox.metadata.oxia.tree import OxiaTree
from bkbox.metadata.tree.nodes import NodeExistsError


async def init(tree: OxiaTree, uri: OxiaUri, instance_id: UUID) -> None:
    """Create a new cluster. Raises OperatorError if there is one."""
    root = uri.root
    await tree.ensure_branch("", root)
    try:
        await tree.create(f"{root}/INSTANCEID", str(instance_id).encode())
    except NodeExistsError:
        raise OperatorError(
            f"{root} exists already in the namespace {uri.namespace} of Oxia ({uri.host}): choose another namespace, "
            f"or look at what is there with `{cluster_command('cluster', 'info')}`"
        ) from None


async def open_root(tree: OxiaTree, uri: OxiaUri) -> None:
    """Check that the cluster exists. Raises OperatorError (no cluster), ConfigError (an unsuitable namespace)."""
    path = f"{uri.root}/INSTANCEID"
    # Every write acknowledged to any client before now is visible from here on: phase one relies on it.
    await tree.sync_children(uri.root)
    if await tree.exists(path) is None:
        raise OperatorError(
            f"there is no cluster at {uri.root} in the namespace {uri.namespace} of Oxia ({uri.host}): run "
            f"`{plain_command('cluster', 'init', '--metadata', uri)}`"
        )
    if "INSTANCEID" not in await tree.children(uri.root):
        raise ConfigError(
            [
                f"the keys of the namespace {uri.namespace} of Oxia ({uri.host}) are not sorted hierarchically, "
                "without which folders cannot be listed; Pulsar's bookies cannot use it either"
            ]
        )
