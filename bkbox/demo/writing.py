"""Steps 1 and 2: real data goes into a ledger, and a bookie dies in the middle of it.

The writer of step 1 is the writer of step 2. At the end it is gone without having closed the
ledger, as a process that died would be: somebody else has to find the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import islice

from bkbox.client import Client, LedgerWriter
from bkbox.demo.scene import Scene, Told, ask, must
from bkbox.demo.show import Advance, amount
from bkbox.wire.codes import Code

_BATCH_ENTRIES = 32
_SAMPLE_ENTRIES = 200

# Shares of the input.
_KILLED_AT = 0.4
_DEAD_BY = 0.5
_BACK_AT = 0.7


class Writing:
    """A writer and the input that it still has to write."""

    def __init__(self, client: Client, writer: LedgerWriter, scene: Scene) -> None:
        self.client = client
        self.writer = writer
        self._size = scene.source.size
        self._payloads: Iterator[bytes] = scene.source.entries(scene.manifest)

    @property
    def acknowledged(self) -> int:
        """Entries."""
        return self.writer.last_add_confirmed + 1

    async def to(self, share: float, advance: Advance) -> None:
        """Write until so much of the input is acknowledged; at 1 all of it."""
        while share == 1 or self.writer.length < share * self._size:
            batch = list(islice(self._payloads, _BATCH_ENTRIES))
            if not batch:
                return
            await self.writer.append_many(batch)
            advance(self.writer.length)
