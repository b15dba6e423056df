"""A writer and the input that it still has to write."""

from __future__ import annotations

from collections.abc import Iterator

from bkbox.client import Client, LedgerWriter
from bkbox.demo.output import Advance
from bkbox.demo.source import Source, Stored

_BATCH_ENTRIES_MAX = 32
_BATCHES_MIN = 64
"""Minimum number of batches, so that small input has a middle, too."""


class Writing:
    """A writer part way through the input. Files come into ``manifest`` as they are written."""

    def __init__(
        self, client: Client, writer: LedgerWriter, source: Source, manifest: list[Stored]
    ) -> None:
        self.client = client
        self.writer = writer
        self._size = source.size
        self._payloads: Iterator[bytes] = source.entries(manifest)

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged entries."""
        return self.writer.last_add_confirmed + 1

    async def to(self, share: float, advance: Advance) -> None:
        """Writes until this share of the input is acknowledged; 1 for all of it."""
        while share == 1 or self.writer.length < share * self._size:
            batch = self._batch()
            if not batch:
                return
            await self.writer.append_many(batch)
            advance(self.writer.length)

    def _batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while len(batch) < _BATCH_ENTRIES_MAX and size * _BATCHES_MIN < self._size:
            payload = next(self._payloads, None)
            if payload is None:
                break
            batch.append(payload)
            size += len(payload)
        return batch
