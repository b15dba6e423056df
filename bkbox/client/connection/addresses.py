"""Where bookies are reached: at the address that they registered, as last heard, or else at the one that their id is.

A bookie that is not registered now may still serve: its session with the metadata store may be what was lost. And a
metadata store that is away must not keep a client from the bookies that it knows, so it is not waited for long.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bkbox.base.ids import BookieId
from bkbox.errors import MetadataError
from bkbox.metadata.base import MetadataStore
from bkbox.wire.metadata.service_info import HostPort, split_bookie_id

_STORE_WAIT_S = 1.0


class Addresses:
    """The addresses of the bookies of one cluster."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[BookieId, HostPort] = {}

    async def find(self, bookie: BookieId) -> HostPort | None:
        """None where neither the store nor the id says anything."""
        with suppress(MetadataError, TimeoutError):
            async with asyncio.timeout(_STORE_WAIT_S):
                for name, registered in (await self._store.bookies()).items():
                    if registered.service_info.rpc is not None:
                        self._known[name] = registered.service_info.rpc
        return self._known.get(bookie) or split_bookie_id(bookie)
