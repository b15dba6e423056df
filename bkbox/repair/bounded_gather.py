"""Bounded gather: runs the same function over many items, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def bounded_gather(
    items: Iterable[S], do: Callable[[S], Awaitable[T]], concurrency: int
) -> list[T]:
    """The results of ``do``, in the order of the items, with at most ``concurrency`` in flight. The first error cancels
    the rest and is raised.
    """
    numbered = enumerate(items)
    results: dict[int, T] = {}

    async def some() -> None:
        for number, item in numbered:
            results[number] = await do(item)

    workers = [asyncio.ensure_future(some()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[number] for number in sorted(results)]
