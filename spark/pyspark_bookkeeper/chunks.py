"""Entries of one ledger, in the order and in the pieces in which they are best had.

As columns (EntryColumns) where batch reads bring them: several answers are asked for ahead, each with about
CHUNK_BYTES. Where that ends, in stripes, with digests that the kernel does not know or at an entry that no bookie
gives, the client's own reader goes on, which knows how to find out why.
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
    """The entries from ``first`` to ``last``; none is empty. Raises as LedgerReader.read, after what came before.

    ``columns`` false: as lists alone.
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
    """As far as they go."""
    loop = asyncio.get_running_loop()
    ahead: deque[tuple[int, asyncio.Task[EntryColumns | None]]] = deque()
    at = asked = first
    rows = _rows_of_closed(reader)
    try:
        while at <= last:
            # Where nothing says how large entries are, the first answer does.
            while asked <= last and len(ahead) < (_AHEAD if rows else 1):
                count = min(rows or _CHUNK_ROWS, last - asked + 1)
                asking = loop.create_task(reader.read_columns(asked, count, CHUNK_BYTES))
                ahead.append((count, asking))
                asked += count
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
                asked = at
    finally:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)


def _rows_of_closed(reader: LedgerReader) -> int | None:
    metadata = reader.metadata
    entries = max(metadata.last_entry + 1, 1)
    return _rows(metadata.length / entries) if reader.is_closed else None


def _rows(average: float) -> int:
    """How many entries of this size make a chunk."""
    return min(max(int(CHUNK_BYTES / (average + _ENTRY_OVERHEAD_BYTES)), 1), _CHUNK_ROWS)
