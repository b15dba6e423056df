"""A stored value and its version, for compare-and-set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A stored value and the version to name when replacing it."""

    value: T
    version: int
