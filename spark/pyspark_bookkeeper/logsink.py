"""Writes rows to a log: the ledgers that a job's tasks wrote are published in an order, and then appended to the log.

A log has one writer, but tasks are many: each writes a ledger of its own, as for a dataset. The driver *publishes*
those of a job, or of a batch of a stream, by one compare-and-set of the log's document (dataset.py); from then on it is
certain that their entries come into the log, each once. The driver then becomes the log's writer and appends the
entries as records. Each has a sequence number of one writer id, which follows from its place in the queue, so a
repeated append changes nothing: after an interruption the next job that writes to this log begins with what is left.
Two jobs at the same time fence each other off the log, and each appends what is left of both.
"""

from __future__ import annotations

import asyncio
import logging

from bkbox.base.backoff import JITTER_AROUND, Backoff
from bkbox.client.client import Client
from bkbox.client.inner import Inner
from bkbox.client.log import Log, LogOptions, LogWriter
from bkbox.client.log.entry import HEADER, RECORD_OVERHEAD_BYTES
from bkbox.errors import NoSuchLedgerError, NotLeaderError, RecoveryAbortedError
from pyspark_bookkeeper.dataset import Datasets, appended, of_log
from pyspark_bookkeeper.options import WriteOptions

log = logging.getLogger(__name__)

WRITER_ID = "bkbox.spark"
"""Writer id of all records that Spark appends to a log."""

ROW_OVERHEAD_BYTES = HEADER.size + RECORD_OVERHEAD_BYTES + len(WRITER_ID)
"""Bytes that a row takes in an entry of a log in addition to its value."""

_TRIES = 10
_WAIT_S, _WAIT_MAX_S = 0.5, 10.0


async def append_queue(client: Client, name: str, options: WriteOptions) -> None:
    """Appends what was published for a log. Raises as Log.open_writer and LogWriter.append."""
    datasets = Datasets(client.store)
    backoff = Backoff(_WAIT_S, _WAIT_MAX_S, client.rng, JITTER_AROUND)
    for left in reversed(range(_TRIES)):
        try:
            await _append(client, datasets, name, options)
            break
        except (NotLeaderError, RecoveryAbortedError, NoSuchLedgerError) as error:
            if not left:
                raise
            log.info("log %s: %s; it is tried again", name, error)
            await asyncio.sleep(backoff.next_s())
    await datasets.bury(of_log(name))


async def _append(client: Client, datasets: Datasets, name: str, options: WriteOptions) -> None:
    """One attempt. Raises NoSuchLedgerError if another driver has appended and deleted a ledger meanwhile."""
    document = of_log(name)
    found = await datasets.find(document)
    if found is None or not found.queue:
        return
    log_options = LogOptions(
        ensemble_size=options.ensemble_size,
        write_quorum=options.write_quorum,
        ack_quorum=options.ack_quorum,
        digest_type=options.digest_type,
        password=options.password.encode(),
    )
    async with await Log(client, name).open_writer(log_options) as writer:
        for ledger, first in found.queue:
            await _copy(client, writer, ledger, first)
            await datasets.change(document, appended(ledger))


async def _copy(client: Client, writer: LogWriter, ledger: int, first: int) -> None:
    """Copies a ledger's entries, whatever its password: another job may have written it."""
    reader = await client.open_ledger(ledger, None, recovery=False)
    last = writer.last_sequence(WRITER_ID)
    start = 0 if last is None else max(last + 1 - first, 0)
    async with Inner(reader.read_batches(start)) as batches:
        async for entries in batches:
            await asyncio.gather(  # in this order: each has its place when its task begins
                *(
                    writer.append_once(entry.payload, WRITER_ID, first + entry.entry_id)
                    for entry in entries
                )
            )
