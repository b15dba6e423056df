"""Asynchronous generators within others.

At its end an event loop closes all generators that it knows, all at once. An inner generator, which its outer
generator closes, would be closed twice at the same time, which Python refuses with a RuntimeError. So it is
hidden from the loop.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Inner(Generic[T]):
    """Iterates over a generator that belongs to this context, and closes it at the context's end."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items
        self._is_started = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[T]:
        if self._is_started:
            return self._items.__anext__()
        self._is_started = True
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
        try:
            return self._items.__anext__()  # a generator reads the hooks here, once
        finally:
            sys.set_asyncgen_hooks(*hooks)
