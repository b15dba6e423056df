"""Replaces attributes of modules and classes for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Change = tuple[object, str, object]
"""The owner, the name of the attribute, and its new value."""


@contextmanager
def replaced(*changes: Change) -> Iterator[None]:
    """Replaces attributes of modules and classes inside the context."""
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    try:
        for owner, name, new in changes:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in reversed(before):
            setattr(owner, name, old)


def method(
    owner: Any, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> tuple[Change, ...]:
    """A method of ``owner``, made by ``change`` from the one that is there."""
    return ((owner, name, change(vars(owner)[name])),)
