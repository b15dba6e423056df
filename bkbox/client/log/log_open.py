"""Opens a log as its writer, and adds the next ledger to it.

1. The newest list is read.
2. Its last two ledgers are recovered: their writers are fenced, and their ends are settled.
3. A ledger is created, and
4. added to the list by compare-and-set, with a new epoch. If another writer was faster, everything begins again after
   a pause.
5. The state for exactly-once appends is read from the ledgers before, and written to the new one as its first entry.
   If these are truncated meanwhile, another writer has opened the log since, or everything begins again.

Only then is a record written. Two writers that open a log at the same time fence each other's ledgers and make each
other begin again; what was acknowledged to either is in the log. Source: the protocol of logs over ledgers in
BookKeeper's documentation ("From ledgers to logs").
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from bkbox.base.backoff import JITTER_AROUND, Backoff
from bkbox.base.ids import LedgerId
from bkbox.base.text import error_text
from bkbox.client.client import Client
from bkbox.client.inner import Inner
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.client.log.entry import Kind, decode, encode_state
from bkbox.client.log.ledger_list import LedgerList
from bkbox.client.log.options import LogOptions
from bkbox.client.log.position import Position
from bkbox.client.log.sequences import Sequences
from bkbox.client.log.stored import StoredList
from bkbox.errors import (
    BugError,
    EncodingError,
    LedgerClosedError,
    LedgerFencedError,
    LogTruncatedError,
    NoSuchLedgerError,
    NotLeaderError,
    VersionConflictError,
)

log = logging.getLogger(__name__)

LOG_NAME = "bkbox.log"
"""Custom metadata of a log's ledgers: the log's name."""

_WAIT_S, _WAIT_MAX_S = 0.1, 1.0
"""Before another try where another client opens the log at the same time: the first wait, and the longest."""

_IDS_MAX = 100
"""Ids that are drawn at most, until one is above those in the list."""


@dataclass(slots=True)
class OpenedLog:
    """A log opened by this writer: the epoch, the ledger, and the sequence numbers of writer ids."""

    epoch: int
    ledger: LedgerWriter
    sequences: Sequences


async def open_as_writer(client: Client, stored: StoredList, options: LogOptions) -> OpenedLog:
    """Become the log's writer; a log that does not exist is created.

    Raises LogLedgerLostError, and the errors of recovery and creation (RecoveryAbortedError, NotEnoughBookiesError,
    UnauthorizedError, MetadataError, …): the log is then unchanged, or has one more, empty ledger; and NotLeaderError
    if another writer opened it right after.
    """
    backoff = Backoff(_WAIT_S, _WAIT_MAX_S, client.rng, JITTER_AROUND)
    while True:
        found = await stored.find(linearizable=True)
        present = found.value if found is not None else await stored.new()
        version = found.version if found is not None else None
        await stored.bury(present)
        if present.doomed:
            continue  # it has another version now
        try:
            for ledger in reversed(present.may_be_open):
                await client.recover(ledger, options.password)
        except NoSuchLedgerError:
            again = await stored.find(linearizable=True)
            if again is not None and again.version != version:
                continue  # the client that changed the list deleted it
            raise await stored.deletion_error(ledger) from None
        writer = await create_next(client, stored, present, options)
        try:
            await stored.write(present.opened(writer.ledger_id), version)
        except VersionConflictError:
            await discard(client, stored, writer)
            log.info("log %s: another writer opens it at the same time", stored.name)
            await asyncio.sleep(backoff.next_s())
            continue
        except asyncio.CancelledError:
            client.run_in_background(discard(client, stored, writer))
            raise
        except BaseException:
            await writer.abort()
            raise
        try:
            sequences = await read_state(client, stored, present, options)
            await begin(writer, sequences, options)
        except BaseException as error:
            await writer.abort()
            if isinstance(error, LogTruncatedError):
                found = await stored.find(linearizable=True)
                if found is not None and found.value.epoch == present.epoch + 1:
                    continue  # no other writer has opened it: the remaining ledgers have the state
            if isinstance(error, (LedgerFencedError, LedgerClosedError, LogTruncatedError)):
                text = f"another writer has opened the log {stored.name} as its writer: {error_text(error)}"
                raise NotLeaderError(text) from error
            raise
        return OpenedLog(present.epoch + 1, writer, sequences)


async def create_next(
    client: Client, stored: StoredList, present: LedgerList, options: LogOptions
) -> LedgerWriter:
    """Create a ledger that may be added to this list. Raises as Client.create_ledger."""
    for _ in range(_IDS_MAX):
        writer = await client.create_ledger(
            options.ensemble_size,
            options.write_quorum,
            options.ack_quorum,
            options.digest_type,
            options.password,
            {LOG_NAME: stored.name.encode()},
            explicit_lac_interval_s=options.idle_lac_s,
        )
        if present.accepts(writer.ledger_id):
            return writer
        await writer.abort()
        await client.delete_ledger(writer.ledger_id)
    raise BugError(
        f"the metadata store gives ids of ledgers below {present.ledgers[-1]}, the last one of log {stored.name}"
    )


async def add(stored: StoredList, epoch: int, ledger: LedgerId) -> None:
    """Add the next ledger of this epoch to the list, which another client may have truncated.

    Raises NotLeaderError; MetadataError: the ledger may have been added, and a retry finds out.
    """

    def change(present: LedgerList) -> LedgerList:
        if present.epoch != epoch or present.deleted:
            raise NotLeaderError(f"another writer has opened the log {stored.name} as its writer")
        if ledger in present.ledgers:
            return present
        return present.rolled(ledger)

    await stored.change(change)


async def discard(client: Client, stored: StoredList, writer: LedgerWriter) -> None:
    """Discard a ledger that could not be added. It may be in the list all the same, if a response was lost and the
    list was changed since.
    """
    await writer.abort()
    found = await stored.find(linearizable=True)
    if found is None or writer.ledger_id not in (*found.value.ledgers, *found.value.doomed):
        await client.delete_ledger(writer.ledger_id)


async def begin(writer: LedgerWriter, sequences: Sequences, options: LogOptions) -> None:
    """Write the first entry of a ledger. Raises as LedgerWriter.append."""
    await writer.append(encode_state(sequences.encode(), 0, options.compression))


async def read_state(
    client: Client, stored: StoredList, present: LedgerList, options: LogOptions
) -> Sequences:
    """The state at the end of a list whose ledgers are all closed. Raises as LedgerReader.read, EncodingError,
    LogLedgerLostError."""
    for ledger in reversed(present.ledgers):
        try:
            reader = await client.open_ledger(ledger, options.password, recovery=False)
        except NoSuchLedgerError:
            raise await stored.deletion_error(ledger) from None
        last = await reader.read_last()
        if last is None:
            continue  # it is empty
        sequences = Sequences()
        async with Inner(reader.read(_state_entry(last.payload))) as entries:
            async for entry in entries:
                found = decode(entry.payload)
                if found.kind is Kind.STATE:
                    sequences = Sequences.decode(found.state)
                for number, record in enumerate(found.records):
                    if record.writer_id:
                        position = Position(ledger, entry.entry_id, number)
                        sequences.note(record.writer_id, record.sequence, position)
        return sequences
    return Sequences()


def _state_entry(payload: bytes) -> int:
    """The id of the last entry with state. Raises EncodingError."""
    number = decode(payload).state_entry
    if number < 0:
        raise EncodingError(f"an entry of a log says that its state is in entry {number}")
    return number
