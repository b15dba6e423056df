"""Waits for what a metadata store says of the bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bkbox.base.ids import BookieId
from bkbox.metadata.base import MetadataStore, RegisteredBookie


async def until_bookies(
    store: MetadataStore, hold: Callable[[dict[BookieId, RegisteredBookie]], bool]
) -> None:
    """Return once ``hold`` is true of the registered bookies."""
    while not hold(await store.bookies()):
        await asyncio.sleep(0.01)
