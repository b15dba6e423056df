"""Reads a log: records in order, over its ledgers, up to now or continuously.

Reading has no effect on the writer. A reader goes on to the next ledger only when the present one is closed, because
its end is not settled before. A reader that reaches the end earlier waits (``tail``) or ends (``read``). A reader
that truncation overtakes gets LogTruncatedError.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from bkbox.base.ids import EntryId, LedgerId
from bkbox.base.values import frozen_struct
from bkbox.client.client import Client
from bkbox.client.inner import Inner
from bkbox.client.ledger.reader import Entry, LedgerReader
from bkbox.client.log.entry import RawRecord, decode
from bkbox.client.log.ledger_list import LedgerList
from bkbox.client.log.position import BEGINNING, Position
from bkbox.client.log.stored import StoredList
from bkbox.errors import EncodingError, LogTruncatedError, NoSuchLedgerError


@frozen_struct
class Record:
    """A record of a log. ``timestamp_ms``: since 1970, as given by its writer; ``writer_id``, ``sequence``: of an
    exactly-once append, else empty and -1.
    """

    position: Position
    payload: bytes
    timestamp_ms: int
    writer_id: str
    sequence: int


class LogReader:
    """Reads one log; made by ``Log``. ``password``: of its ledgers, None: take the one in the metadata."""

    def __init__(self, client: Client, stored: StoredList, password: bytes | None) -> None:
        self._client = client
        self._stored = stored
        self._password = password

    async def read(
        self, start: Position | None, end: Position | None
    ) -> AsyncGenerator[Record, None]:
        """Records from ``start`` (None: the first one left) to before ``end`` (None: the end of what is confirmed
        now).
        """
        found = (await self._stored.read()).value
        self._must_be_left(found, start)
        at = self._start(found, start)
        for ledger in found.ledgers:
            if ledger < at.ledger_id or (end is not None and ledger > end.ledger_id):
                continue
            reader = await self.open(ledger)
            first = at.entry_id if ledger == at.ledger_id else EntryId(0)
            last = await reader.read_explicit_last_add_confirmed()
            is_whole = reader.is_closed  # as of now: it may be closed while it is read
            if end is not None and ledger == end.ledger_id:
                last = min(last, end.entry_id)
            if first <= last:
                async with Inner(reader.read(first, last)) as entries:
                    async for entry in entries:
                        for record in _records(entry, at):
                            if end is not None and record.position >= end:
                                return
                            yield record
            if not is_whole:
                return

    async def last(self, count: int) -> list[Record]:
        """The last confirmed records, at most ``count``."""
        found = (await self._stored.read()).value
        records: list[Record] = []
        for ledger in reversed(found.ledgers):
            reader = await self.open(ledger)
            end = await reader.read_explicit_last_add_confirmed()
            if not reader.is_closed:
                records = []  # what lies behind is not settled yet
            while end >= 0 and len(records) < count:
                first = EntryId(max(end - (count - len(records)) + 1, 0))
                async with Inner(reader.read(first, end)) as entries:
                    before = [
                        record async for entry in entries for record in _records(entry, found.start)
                    ]
                records, end = before + records, EntryId(first - 1)
            if len(records) >= count and reader.is_closed:
                break
        return records[len(records) - count :] if len(records) > count else records

    async def tail(self, start: Position | None) -> AsyncGenerator[Record, None]:
        """Records from ``start`` on (None: the first one left), as they become readable, until the log is deleted."""
        async with Inner(self._stored.watch()) as lists:
            at: Position | None = None
            async for found in lists:
                if at is None:
                    self._must_be_left(found, start)
                at = self._start(found, start if at is None else at)
                while (ledger := _next(found, at)) is not None:
                    async with Inner(self._tail_ledger(ledger, at)) as records:
                        async for record in records:
                            yield record
                    at = Position(LedgerId(ledger + 1), EntryId(0))

    async def _tail_ledger(self, ledger: LedgerId, at: Position) -> AsyncGenerator[Record, None]:
        reader = await self.open(ledger)
        first = at.entry_id if ledger == at.ledger_id else EntryId(0)
        try:
            async with Inner(reader.tail(first)) as entries:
                async for entry in entries:
                    for record in _records(entry, at):
                        yield record
        except NoSuchLedgerError as error:
            raise await self._stored.deletion_error(ledger) from error

    async def open(self, ledger: LedgerId) -> LedgerReader:
        """Open a ledger of the list. Raises LogLedgerLostError, LogTruncatedError."""
        try:
            return await self._client.open_ledger(ledger, self._password, recovery=False)
        except NoSuchLedgerError as error:
            raise await self._stored.deletion_error(ledger) from error

    def _start(self, found: LedgerList, start: Position | None) -> Position:
        if start is None or start == BEGINNING:
            return found.start
        if start < found.start:
            raise LogTruncatedError(
                f"position {start} of log {self._stored.name} was truncated: the log begins at {found.start}"
            )
        return start

    def _must_be_left(self, found: LedgerList, start: Position | None) -> None:
        """Raises LogLedgerLostError for a position in a ledger that was taken out; a reader from before it goes on
        behind it."""
        if start is not None and start.ledger_id in found.lost:
            raise self._stored.lost(start.ledger_id, found)


def _next(found: LedgerList, at: Position) -> LedgerId | None:
    return next((ledger for ledger in found.ledgers if ledger >= at.ledger_id), None)


def _records(entry: Entry, at: Position) -> list[Record]:
    """The records of an entry from a position on."""
    try:
        decoded = decode(entry.payload)
    except EncodingError as error:
        raise EncodingError(
            f"entry {entry.entry_id} of ledger {entry.ledger_id}: {error}"
        ) from error
    records = []
    for number, raw in enumerate(decoded.records):
        position = Position(entry.ledger_id, entry.entry_id, number)
        if position >= at:
            records.append(_record(position, raw))
    return records


def _record(position: Position, raw: RawRecord) -> Record:
    return Record(position, raw.payload, raw.timestamp_ms, raw.writer_id, raw.sequence)
