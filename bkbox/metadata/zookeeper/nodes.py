"""Znodes as values, and the errors of ZooKeeper's responses.

The errors are responses of a working tree. They are MetadataErrors, so that an unexpected one reaches the caller as a
message that names the znode.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.errors import MetadataError


@dataclass(frozen=True, slots=True)
class Node:
    """A znode. ``owner`` is the session of an ephemeral one, 0 for a persistent one; ``created`` is the transaction
    that created it, at ``ctime_ms`` since 1970; ``children_version`` changes with every child that is created or
    deleted; ``changed`` is the transaction that wrote its data.
    """

    data: bytes
    version: int
    created: int
    ctime_ms: int
    owner: int
    children_version: int
    changed: int = 0


class NoNodeError(MetadataError):
    """There is no such znode (for a creation: no parent)."""


class NodeExistsError(MetadataError):
    """The znode to be created exists."""


class BadVersionError(MetadataError):
    """The znode is at another version than the one named."""


class NotEmptyError(MetadataError):
    """The znode to be deleted has children."""


class LostReplyError(MetadataError):
    """The connection was lost before the response arrived: it is unknown whether the request was carried out. Stays
    inside this package.
    """

    may_have_taken_effect = True
