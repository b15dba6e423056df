"""Znodes as values."""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.metadata.tree.nodes import Node


@dataclass(frozen=True, slots=True)
class Znode(Node):
    """A znode. ``owner`` is a session's number, 0 for a persistent one; ``created`` is the transaction that created
    it, ``changed`` the one that wrote its data; ``children_version`` changes with every child that is created or
    deleted.
    """

    created: int
    children_version: int
