"""A stored value and its version, for compare-and-set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A stored value and the version to name when replacing it. ``change``: the number of the change that wrote it, in
    the order of all changes of the store; 0: the store counts none.
    """

    value: T
    version: int
    change: int = field(default=0, compare=False)
