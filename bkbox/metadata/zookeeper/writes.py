"""Writes with a certain outcome: known even if a response was lost.

A write whose connection breaks may have taken effect or not. It is retried unchanged, with the same expected version,
once ZooKeeper is back. A refusal then has two explanations, and the stored state decides between them:

==========  =================  ===================================================================
write       refused with       it was ours if
==========  =================  ===================================================================
create      NodeExistsError    the caller's rule holds; else: the same bytes at version 0 and, for
                               an ephemeral znode, the same session
set_data    BadVersionError    the same bytes at the version after the expected one
delete      NoNodeError        always: the znode is gone, whichever client deleted it; a znode
                               that was created anew since is not deleted
==========  =================  ===================================================================

Nothing here gives up: the caller's deadline ends a write, and then its outcome stays unknown. A late first attempt
cannot come after the second: ZooKeeper refuses requests of a connection whose session has moved on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bkbox.metadata.tree.nodes import (
    BadVersionError,
    LostReplyError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bkbox.metadata.zookeeper.nodes import Znode


class CertainWriter(Protocol):
    """The operations that writes need of a connection. Each ``try_`` is one attempt: it waits for a connection and
    raises LostReplyError if that breaks before the response.
    """

    @property
    def session_id(self) -> int: ...

    async def get(self, path: str) -> Znode: ...

    async def try_create(self, path: str, data: bytes, *, ephemeral: bool) -> Znode: ...

    async def try_set(self, path: str, data: bytes, version: int) -> Znode: ...

    async def try_delete(self, path: str, version: int) -> None: ...


_ANY_VERSION = -1


async def create(
    zk: CertainWriter,
    path: str,
    data: bytes = b"",
    *,
    ephemeral: bool = False,
    is_ours: Callable[[Znode], bool] | None = None,
) -> Znode:
    """Create a znode. Raises NodeExistsError, NoNodeError (no parent)."""
    was_lost = False
    while True:
        try:
            return await zk.try_create(path, data, ephemeral=ephemeral)
        except LostReplyError:
            was_lost = True
        except NodeExistsError:
            if not was_lost:
                raise
            try:
                found = await zk.get(path)
            except NoNodeError:
                continue
            if is_ours is not None:
                ours = is_ours(found)
            else:
                owner = zk.session_id if ephemeral else 0
                ours = (found.data, found.version, found.owner) == (data, 0, owner)
            if ours:
                return found
            raise


async def set_data(zk: CertainWriter, path: str, data: bytes, version: int | None) -> Znode:
    """Replace this version, or any (None). Raises BadVersionError, NoNodeError."""
    if version is not None and version < 0:
        raise BadVersionError(f"the znode {path} cannot be at version {version}")
    was_lost = False
    while True:
        try:
            return await zk.try_set(path, data, _ANY_VERSION if version is None else version)
        except LostReplyError:
            was_lost = True
        except BadVersionError:
            if not was_lost or version is None:
                raise
            found = await zk.get(path)
            if (found.data, found.version) == (data, version + 1):
                return found
            raise


async def delete(zk: CertainWriter, path: str, seen: Znode | None = None) -> None:
    """Delete the znode that was seen, or any (None); succeeds if it does not exist.

    Raises BadVersionError (it is not the one that was seen), NotEmptyError.
    """
    while True:
        try:
            await zk.try_delete(path, _ANY_VERSION if seen is None else seen.version)
        except LostReplyError:
            if seen is not None:
                await _must_be(zk, path, seen)
        except NoNodeError:
            return
        else:
            return


async def _must_be(zk: CertainWriter, path: str, seen: Znode) -> None:
    """Raises BadVersionError if the znode was created anew. Retrying a deletion must not delete a new znode, which has
    the version that the old one had at its creation.
    """
    try:
        found = await zk.get(path)
    except NoNodeError:
        return
    if found.created != seen.created:
        raise BadVersionError(f"the znode {path} was created anew")


# ---- branches ---------------------------------------------------------------------------------


async def create_branch(
    zk: CertainWriter,
    root: str,
    path: str,
    data: bytes = b"",
    *,
    ephemeral: bool = False,
    is_ours: Callable[[Znode], bool] | None = None,
) -> Znode:
    """Create a znode and the parents that it lacks between it and ``root``.

    Raises NodeExistsError, NoNodeError (``root`` itself is missing: it is not created).
    """
    while True:
        try:
            return await create(zk, path, data, ephemeral=ephemeral, is_ours=is_ours)
        except NoNodeError:
            parent = path.rpartition("/")[0]
            if parent == root:
                raise
            await ensure_branch(zk, root, parent)


async def ensure_branch(zk: CertainWriter, root: str, path: str) -> None:
    """Create an empty znode and its parents below ``root`` unless it exists."""
    try:
        await create_branch(zk, root, path)
    except NodeExistsError:
        return


async def delete_empty_parents(zk: CertainWriter, root: str, path: str) -> None:
    """Delete the parents of ``path`` upwards, as long as they are empty, but never ``root``."""
    parent = path.rpartition("/")[0]
    while parent != root:
        try:
            found = await zk.get(parent)
            await delete(zk, parent, found)
        except NoNodeError:
            pass
        except (NotEmptyError, BadVersionError):
            return
        parent = parent.rpartition("/")[0]
