"""The work of a read task: reads the pieces of one partition, checks each entry's digest, and returns Arrow batches.

Loss is an error with ``failOnDataLoss``, and logged without it: entries that every bookie denies, and deleted ledgers.
An entry that is unknown for now, as a bookie is unreachable, is always an error, after ``num_retries`` retries: it is
not lost. An unavailable metadata store is an error at once: the store has retried already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import pyarrow as pa

from bkbox.base.backoff import backoff_s
from bkbox.client.client import Client
from bkbox.client.ledger.reader import Entry, LedgerReader
from bkbox.errors import NoSuchEntryError, NoSuchLedgerError, UnknownEntryError
from pyspark_bookkeeper.chunks import Chunk, chunks
from pyspark_bookkeeper.columns import BATCH_BYTES, BATCH_ROWS, Columns
from pyspark_bookkeeper.options import ReadOptions
from pyspark_bookkeeper.planning import Piece

log = logging.getLogger(__name__)

_OPENED_AHEAD = 8
_RETRY_PAUSE_S = 1.0


@dataclass(frozen=True)
class PieceReader:
    """Reads pieces for a query. ``columns``: see Columns."""

    options: ReadOptions
    columns: tuple[tuple[str, bool], ...]

    async def batches(
        self, client: Client, pieces: Sequence[Piece]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Raises as Client.open_ledger and LedgerReader.read."""
        columns = Columns(self.columns, log=self.options.log is not None)
        opening: deque[asyncio.Task[LedgerReader | None]] = deque()
        left = iter(pieces)
        try:
            for piece in pieces:
                while len(opening) < _OPENED_AHEAD and (following := next(left, None)):
                    opening.append(asyncio.ensure_future(self._open(client, following)))
                reader = await opening.popleft()
                if reader is None:
                    continue
                async with aclosing(self._piece(reader, piece)) as found:
                    async for entries in found:
                        yield columns.batch(entries, reader.metadata)
        finally:
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)

    async def _open(self, client: Client, piece: Piece) -> LedgerReader | None:
        """The reader; None if the ledger is gone and that is not an error."""
        try:
            return await client.open_ledger(
                piece.ledger_id, self.options.password_of(piece.ledger_id), recovery=False
            )
        except NoSuchLedgerError as error:
            self._lost(f"entries {piece.first} to {piece.last} of ledger {piece.ledger_id}", error)
            return None

    async def _piece(self, reader: LedgerReader, piece: Piece) -> AsyncGenerator[Chunk, None]:
        """Chunks of which each makes a batch."""
        buffered: list[Entry] = []
        size = 0
        async with aclosing(self._chunks(reader, piece)) as found:
            async for chunk in found:
                entries = chunk if isinstance(chunk, list) else []
                buffered += entries
                size += sum(map(len, [entry.payload for entry in entries]))
                is_full = size >= BATCH_BYTES or len(buffered) >= BATCH_ROWS
                if buffered and (is_full or not entries):
                    yield buffered
                    buffered, size = [], 0
                if not entries:
                    yield chunk
        if buffered:
            yield buffered

    async def _chunks(self, reader: LedgerReader, piece: Piece) -> AsyncGenerator[Chunk, None]:
        """Chunks as they are read, across retries and losses."""
        at, tries = piece.first, 0
        while at <= piece.last:
            try:
                await self._must_be_confirmed(reader, piece.last)
                found = chunks(reader, at, piece.last, columns=self.options.log is None)
                async with aclosing(found):
                    async for chunk in found:
                        yield chunk
                        at, tries = at + len(chunk), 0
            except NoSuchEntryError as error:
                self._lost(f"entry {at} of ledger {piece.ledger_id}", error)
                at += 1
            except NoSuchLedgerError as error:
                self._lost(f"entries {at} to {piece.last} of ledger {piece.ledger_id}", error)
                return
            except UnknownEntryError:
                if tries == self.options.num_retries:
                    raise
                tries += 1
                await asyncio.sleep(backoff_s(tries - 1, _RETRY_PAUSE_S))

    async def _must_be_confirmed(self, reader: LedgerReader, last: int) -> None:
        """The entry was confirmed when the query was planned; other bookies may have to report it now. Raises
        UnknownEntryError."""
        if reader.is_closed or reader.last_add_confirmed >= last:
            return
        if await reader.read_explicit_last_add_confirmed() < last and not reader.is_closed:
            raise UnknownEntryError(
                f"the bookies that answer do not know that entry {last} of ledger {reader.ledger_id} is confirmed"
            )

    def _lost(self, what: str, error: NoSuchEntryError | NoSuchLedgerError) -> None:
        if self.options.fail_on_data_loss:
            error.add_note(
                f"{what}: data that was there when the query was planned is gone. With failOnDataLoss = false it is "
                f"left out"
            )
            raise error
        log.warning("left out: %s: %s", what, error)
