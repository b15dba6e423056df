"""Reads the entries of one ledger, in order, in chunks of the fastest form.

As columns (EntryColumns) where batch reads return them: several requests are in flight, each for about CHUNK_BYTES.
Where that is impossible (striped ledgers, digests that the kernel does not support, an entry that no bookie returns)
the client's own reader continues; it can determine the reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from bkbox.client.ledger.reader import Entry, LedgerReader
from bkbox.wire.digest import EntryColumns

Chunk = list[Entry] | EntryColumns

CHUNK_BYTES = 2 << 20
_CHUNK_ROWS = 16_384
_ENTRY_OVERHEAD_BYTES = 64
_AHEAD = 3


async def chunks(
    reader: LedgerReader, first: int, last: int, *, columns: bool
) -> AsyncGenerator[Chunk, None]:
    """The entries from ``first`` to ``last``; no chunk is empty. Raises as LedgerReader.read does, after the entries
    before.

    ``columns`` False: as lists alone.
    """
    at = first
    if columns:
        async with aclosing(_columns(reader, first, last)) as found:
            async for some in found:
                yield some
                at += len(some)
    if at <= last:
        async with aclosing(reader.read_batches(at, last)) as lists:
            async for entries in lists:
                yield entries


async def _columns(
    reader: LedgerReader, first: int, last: int
) -> AsyncGenerator[EntryColumns, None]:
    """Columns up to the first entry that cannot be read as such."""
    loop = asyncio.get_running_loop()
    ahead: deque[tuple[int, asyncio.Task[EntryColumns | None]]] = deque()
    at = requested = first
    rows = _rows_of_closed(reader)
    try:
        while at <= last:
            # If the size of entries is not known yet, the first response tells it.
            while requested <= last and len(ahead) < (_AHEAD if rows else 1):
                count = min(rows or _CHUNK_ROWS, last - requested + 1)
                asking = loop.create_task(reader.read_columns(requested, count, CHUNK_BYTES))
                ahead.append((count, asking))
                requested += count
            count, task = ahead[0]
            found = await task
            while found is not None:
                yield found
                at += len(found)
                count -= len(found)
                rows = _rows(found.offsets[len(found)] / len(found))
                if not count or len(ahead) == 1:
                    break
                found = await reader.read_columns(at, count, CHUNK_BYTES)
            if found is None:
                return
            ahead.popleft()
            if not ahead:
                requested = at
    finally:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)


def _rows_of_closed(reader: LedgerReader) -> int | None:
    metadata = reader.metadata
    entries = max(metadata.last_entry + 1, 1)
    return _rows(metadata.length / entries) if reader.is_closed else None


def _rows(average: float) -> int:
    """The number of entries of this size in a chunk."""
    return min(max(int(CHUNK_BYTES / (average + _ENTRY_OVERHEAD_BYTES)), 1), _CHUNK_ROWS)
