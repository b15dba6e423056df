"""Leader election among the would-be writers of a log, so that they do not end each other again and again.

It is advisory, not a guarantee: two candidates may both believe themselves elected for a moment. A log is kept
correct by compare-and-set of its ledger list, and by fencing the other's ledger. Leadership ends with the process:
with ZooKeeper by its session, with SQLite by its lease.
"""

from __future__ import annotations

import asyncio
from typing import Self

from bkbox.client import arguments
from bkbox.client.client import Client
from bkbox.errors import MetadataError
from bkbox.metadata.loglists import log_name

POLL_INTERVAL_S = 5.0


class LeaderElection:
    """Stands for the leadership of a log, as long as the context lasts. ``candidate``: the name that others see for
    the leader.
    """

    def __init__(self, client: Client, name: str, candidate: str) -> None:
        arguments.instance("candidate", candidate, str, "text")
        self._lists = client.store.logs
        self._name = log_name(name)
        self._candidacy = self._lists.candidacy(self._name, candidate)

    async def won(self) -> None:
        """Wait until this candidate is elected. Raises MetadataError."""
        while not await self._candidacy.is_elected():
            await self._candidacy.changed(POLL_INTERVAL_S)

    async def lost(self) -> None:
        """Wait until this candidate is no longer elected. While the metadata store cannot be reached the result is
        unknown.
        """
        while True:
            try:
                if not await self._candidacy.is_elected():
                    return
                await self._candidacy.changed(POLL_INTERVAL_S)
            except MetadataError:
                await asyncio.sleep(POLL_INTERVAL_S)

    async def leader(self) -> str | None:
        """The elected candidate. Raises MetadataError."""
        return await self._lists.leader(self._name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._candidacy.close()
