"""Resolves bookies to addresses: the address last registered, as far as known, or else the one in the bookie's id.

A bookie that is not registered now may still serve: perhaps only its session with the metadata store was lost. A
metadata store that is unreachable must not keep a client from known bookies, so the wait for it is short.
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
        """The address; None if neither the store nor the id names one."""
        with suppress(MetadataError, TimeoutError):
            async with asyncio.timeout(_STORE_WAIT_S):
                for name, registered in (await self._store.bookies()).items():
                    if registered.service_info.rpc is not None:
                        self._known[name] = registered.service_info.rpc
        return self._known.get(bookie) or split_bookie_id(bookie)
