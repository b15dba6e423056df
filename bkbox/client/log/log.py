"""A log: records in one lasting order, over as many ledgers as it takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client import arguments
from bkbox.client.client import Client
from bkbox.client.log.ledger_list import LedgerList
from bkbox.client.log.log_open import open_as_writer
from bkbox.client.log.options import LogOptions
from bkbox.client.log.position import BEGINNING, Position, checked
from bkbox.client.log.reader import LogReader, Record
from bkbox.client.log.stored import StoredList
from bkbox.client.log.writer import LogWriter
from bkbox.errors import (
    InvalidIdError,
    LedgerExistsError,
    NoSuchLedgerError,
    VersionConflictError,
)
from bkbox.metadata.loglists import DATASET_PREFIX, log_name

_LAC_POLL_S = 1.0
"""Time-out, in seconds, of waiting until a record is confirmed to readers other than its writer."""


@dataclass(frozen=True, slots=True)
class LogInfo:
    """``epoch``: how often a writer has opened the log; ``ledgers``: in order; ``start``: nothing before it is left;
    ``end``: behind the last confirmed record; ``lost``: ledgers that an operator has given up (``forget``).
    """

    name: str
    epoch: int
    ledgers: tuple[LedgerId, ...]
    start: Position
    end: Position
    lost: tuple[LedgerId, ...] = ()


@dataclass(frozen=True, slots=True)
class LostLedger:
    """A ledger of a log that was deleted by hand: the records from ``start`` to before ``end`` (None: all that
    follow) cannot be read. ``ends_writer``: taking it out ends the log's writer, if there is one.
    """

    ledger_id: LedgerId
    start: Position
    end: Position | None
    ends_writer: bool


class Log:
    """One log of a cluster, by its name; creating this object sends no request. ``password``: of its ledgers, for
    readers; None: take the one in the metadata. Raises InvalidIdError (the name).
    """

    def __init__(self, client: Client, name: str, *, password: bytes | None = None) -> None:
        arguments.password(password)
        self._client = client
        self._stored = StoredList(client.store, log_name(name))
        self._reader = LogReader(client, self._stored, password)

    @property
    def name(self) -> str:
        """The log's name."""
        return self._stored.name

    async def open_writer(self, options: LogOptions | None = None) -> LogWriter:
        """Become the log's writer, and end the previous one; a log that does not exist is created.

        Raises LogLedgerLostError, NotEnoughBookiesError, RecoveryAbortedError (too few bookies of its last ledgers
        can be reached: try again), NotLeaderError (another writer opened the log right after), UnauthorizedError,
        MetadataError.
        """
        if options is None:
            options = LogOptions()
        arguments.instance("options", options, LogOptions, "LogOptions(...)")
        opened = await open_as_writer(self._client, self._stored, options)
        return LogWriter(self._client, self._stored, options, opened)

    def read(
        self, start: Position | None = None, end: Position | None = None
    ) -> AsyncGenerator[Record, None]:
        """The records from ``start`` (None: the first one left) to before ``end`` (None: the end of what is confirmed
        now).

        Raises LogTruncatedError (``start`` is gone, or is truncated while it is read), LogLedgerLostError,
        NoSuchLogError, and as LedgerReader.read; EncodingError for an entry that is not a log's.
        """
        return self._reader.read(_checked_position("start", start), _checked_position("end", end))

    def tail(self, start: Position | None = None) -> AsyncGenerator[Record, None]:
        """The same, followed by new records as they are confirmed, until the log is deleted (NoSuchLogError)."""
        return self._reader.tail(_checked_position("start", start))

    async def last(self, count: int) -> list[Record]:
        """The last confirmed records, at most ``count``, in order. Raises as ``read``."""
        return await self._reader.last(arguments.integer("count", count, 0))

    def __aiter__(self) -> AsyncGenerator[Record, None]:
        """``read()``."""
        return self.read()

    async def end(self) -> Position:
        """The position behind the last confirmed record; reading from it gives new records only. Raises
        NoSuchLogError, LogLedgerLostError, and as LedgerReader.read_last_add_confirmed.
        """
        return await self._end((await self._stored.read()).value)

    async def info(self) -> LogInfo:
        """The state of the log. Raises as ``end``."""
        found = (await self._stored.read()).value
        end = await self._end(found)
        return LogInfo(self.name, found.epoch, found.ledgers, found.start, end, found.lost)

    async def truncate(self, before: Position) -> LogInfo:
        """Forget the records before a position, and delete the ledgers that hold nothing else. The last two ledgers
        of a log stay, however much of them is truncated.

        Readers and the writer may go on meanwhile. Raises InvalidIdError (it lies behind the end), NoSuchLogError,
        MetadataError.
        """
        checked("before", before)
        found = (await self._stored.read()).value
        if not await self._is_written(found, before):
            raise InvalidIdError(
                f"position {before} lies behind the end of log {self.name}, {await self._end(found)}: nothing was "
                "truncated"
            )
        await self._stored.bury(await self._stored.change(lambda now: now.truncated(before)))
        return await self.info()

    async def delete(self) -> None:
        """Delete the log with all its ledgers, and end its writer. Raises NoSuchLogError, RecoveryAbortedError,
        MetadataError."""
        while True:
            found = await self._stored.read()
            for ledger in reversed(found.value.may_be_open):
                with suppress(NoSuchLedgerError):
                    await self._client.recover(ledger)
            emptied = found.value.emptied()
            try:
                await self._stored.write(emptied, found.version)
            except VersionConflictError:
                continue
            await self._stored.bury(emptied)
            return

    async def lost(self) -> list[LostLedger]:
        """The ledgers of the log that no longer exist, and that no truncation took away. Raises NoSuchLogError,
        MetadataError.
        """
        found = await self._stored.read()
        missing = [ledger for ledger in found.value.ledgers if not await self._exists(ledger)]
        if missing and (await self._stored.read()).version != found.version:
            return await self.lost()  # it may have been truncated meanwhile
        return [_lost(found.value, ledger) for ledger in missing]

    async def forget(self, ledger: int) -> LostLedger:
        """Take a ledger that was deleted by hand out of the log, with loss accepted: readers go on with the next one.
        If ``ends_writer`` is set, end the log's writer first: its records in that ledger cannot be read.

        Raises NoSuchLedgerError (it is not a ledger of the log), LedgerExistsError (it exists, and so do its
        records), NoSuchLogError, MetadataError.
        """
        deleted = arguments.ledger(ledger)
        while True:
            found = await self._stored.read()
            if deleted not in found.value.ledgers:
                raise NoSuchLedgerError(
                    f"log {self.name} has no ledger {deleted}: nothing was changed"
                )
            if await self._exists(deleted):
                raise LedgerExistsError(
                    f"ledger {deleted} of log {self.name} is there: only one that was deleted can be forgotten, and "
                    "records at the beginning are truncated"
                )
            try:
                await self._stored.write(found.value.without(deleted), found.version)
            except VersionConflictError:
                continue
            return _lost(found.value, deleted)

    async def _exists(self, ledger: LedgerId) -> bool:
        try:
            await self._client.store.read_ledger(ledger, linearizable=True)
        except NoSuchLedgerError:
            return False
        return True

    async def _is_written(self, found: LedgerList, before: Position) -> bool:
        """True if everything before a position is confirmed; the writer may know that a moment before readers do."""
        if before.ledger_id not in found.ledgers[-1:]:
            return not found.ledgers or before.ledger_id < found.ledgers[-1]
        last = EntryId(before.entry_id if before.record else before.entry_id - 1)
        if last < 0:
            return True
        reader = await self._reader.open(before.ledger_id)
        lac, _ = await reader.read_last_add_confirmed_and_entry(last, _LAC_POLL_S)
        return lac >= last

    async def _end(self, found: LedgerList) -> Position:
        for ledger in reversed(found.ledgers):
            reader = await self._reader.open(ledger)
            last = await reader.read_explicit_last_add_confirmed()
            if last >= 0:
                return max(found.start, Position(ledger, EntryId(last + 1)))
        return max(
            found.start, Position(found.ledgers[0], EntryId(0)) if found.ledgers else BEGINNING
        )


def _checked_position(name: str, position: Position | None) -> Position | None:
    return None if position is None else checked(name, position)


def _lost(found: LedgerList, ledger: LedgerId) -> LostLedger:
    after = found.after(ledger)
    return LostLedger(
        ledger,
        max(found.start, Position(ledger, EntryId(0))),
        None if after is None else Position(after, EntryId(0)),
        ledger in found.may_be_open,
    )


async def logs(client: Client) -> list[str]:
    """The names of all logs, ascending. Raises MetadataError."""
    names = []
    for name in await client.store.logs.names():
        if name.startswith(DATASET_PREFIX):
            continue
        found = await StoredList(client.store, name).find()
        if found is not None and not found.value.deleted:
            names.append(name)
    return names
