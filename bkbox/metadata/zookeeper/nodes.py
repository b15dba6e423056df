"""Znodes as values, and what ZooKeeper says no with.

The errors are the answers of a tree that works. They are MetadataErrors, so that one that nobody
expected reaches the caller as a sentence that names the znode.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.errors import MetadataError


@dataclass(frozen=True, slots=True)
class Node:
    """A znode. ``owner`` is the session of an ephemeral one, 0 for a persistent one; ``created`` is
    the transaction that created it, at ``ctime_ms`` since 1970; ``children_version`` moves with
    every child that comes or goes."""

    data: bytes
    version: int
    created: int
    ctime_ms: int
    owner: int
    children_version: int


class NoNodeError(MetadataError):
    """There is no such znode (for a creation: no parent)."""


class NodeExistsError(MetadataError):
    """The znode to be created is there already."""


class BadVersionError(MetadataError):
    """The znode is at another version than the one named."""


class NotEmptyError(MetadataError):
    """The znode to be deleted has children."""


class LostReplyError(MetadataError):
    """The connection was lost before the answer came: whether the request was carried out is not
    known. Stays inside this package."""

    may_have_taken_effect = True
