"""Nodes as values, and the errors of the responses of a store.

The errors are responses of a working store. They are MetadataErrors, so that an unexpected one reaches the caller as
a message that names the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.errors import MetadataError


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a tree. ``version``: 0 when it is created, one more with every write of its data. ``ctime_ms``: its
    creation, since 1970. ``owner``: the session of an ephemeral node, falsy for a persistent one. ``changed``: the
    number of the change that wrote its data, in the order of all changes of the store; 0: the store counts none.
    """

    data: bytes
    version: int
    ctime_ms: int
    owner: object
    changed: int


class NoNodeError(MetadataError):
    """There is no such node (for a creation: no parent)."""


class NodeExistsError(MetadataError):
    """The node to be created exists."""


class BadVersionError(MetadataError):
    """The node is at another version than the one named."""


class NotEmptyError(MetadataError):
    """The node to be deleted has children."""


class LostReplyError(MetadataError):
    """The connection was lost before the response arrived: it is unknown whether the request was carried out. Stays
    inside the package of its store.
    """

    may_have_taken_effect = True
