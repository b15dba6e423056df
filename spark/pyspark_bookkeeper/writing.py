"""``df.write`` and ``df.writeStream`` with ``format("bookkeeper")``.

Each task attempt writes a ledger of its own, closes it, and returns the ledger's id to the driver. The driver
publishes the ledgers of a job, or of a batch of a stream, in a dataset by one compare-and-set (dataset.py), and deletes
abandoned ones: the ledgers of attempts that failed, were killed, or ran beside the successful one. They are found by
their custom metadata, among the ids that were given out since the job began. A repeated batch, as after a restart, is
recognised by its number and its ledgers are deleted. So every row is there exactly once.

A task may outlive its job: Spark ends its input, and the task cannot tell that from the last row. So a batch job has an
empty ledger of its own until it ends. A task that has closed its ledger and finds that one deleted deletes its own as
well; if it finds it there, the driver has still to search, and finds the task's ledger.

Rows for a log go the same way, and are then appended to it (logsink.py).

An entry is a row's column ``value``, in the order of the task.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from bkbox.base.commandline import plain_command
from bkbox.base.ids import LedgerId
from bkbox.client.client import Client
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.errors import (
    BkboxError,
    ConfigError,
    EntryTooLargeError,
    JobCancelledError,
    MetadataError,
    NoSuchLedgerError,
)
from bkbox.repair.bounded_gather import bounded_gather
from pyspark_bookkeeper.cluster import connected
from pyspark_bookkeeper.dataset import Change, Dataset, Datasets, of_log, published, queued
from pyspark_bookkeeper.logsink import ROW_OVERHEAD_BYTES, append_queue
from pyspark_bookkeeper.options import WriteOptions

log = logging.getLogger(__name__)

JOB = "bkbox.spark.job"
DATASET = "bkbox.spark.dataset"
"""Custom metadata key of ledgers written by Spark."""

_CHECKED_IDS_MAX = 100_000
"""Maximum number of ids, given out since a job began, that are searched for abandoned ledgers."""

_AT_ONCE = 32


@dataclass
class Sealed(WriterCommitMessage):
    """The result of a task. ``ledger_id`` None: there were no rows."""

    ledger_id: int | None
    entries: int
    size: int


class _Writes:
    """Common base of batch and stream writers. ``job``: the mark of their ledgers."""

    def __init__(self, options: WriteOptions, schema: StructType, job: str) -> None:
        check_rows(schema)
        self._options = options
        self._document = _document_of(options)
        self._job = job

    # ---- a task -------------------------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Raises what the client raises; then the ledger is deleted."""
        return asyncio.run(self._write(iterator))

    async def _write(self, batches: Iterator[pa.RecordBatch]) -> Sealed:
        options = self._options
        entries = size = 0
        # Only a first row creates the ledger.
        values = _values(batches)
        first = await anext(values, None)
        if first is None:
            return Sealed(None, 0, 0)
        async with connected(options) as client:
            writer = await self._create_ledger(client)
            try:
                found: list[bytes] | None = first
                while found is not None:
                    self._must_fit(found, writer.payload_bytes_max)
                    await writer.append_many(found)
                    entries += len(found)
                    size += sum(map(len, found))
                    found = await anext(values, None)
                await writer.close()
                await self._require_job(client)
            except BaseException:
                await writer.abort()
                with suppress(BkboxError):
                    await client.delete_ledger(writer.ledger_id)
                raise
        return Sealed(writer.ledger_id, entries, size)

    async def _create_ledger(self, client: Client) -> LedgerWriter:
        options = self._options
        return await client.create_ledger(
            options.ensemble_size,
            options.write_quorum,
            options.ack_quorum,
            options.digest_type,
            options.password.encode(),
            {
                "application": b"pyspark",
                **options.custom,
                JOB: self._job.encode(),
                DATASET: self._document.encode(),
            },
        )

    async def _require_job(self, client: Client) -> None:
        """Raises JobCancelledError if the driver does not search for abandoned ledgers any more."""

    def _must_fit(self, values: list[bytes], entry_bytes_max: int) -> None:
        """Raises EntryTooLargeError in the task, where the job fails, and not after it was published."""
        if self._options.log is None:
            return
        limit, largest = entry_bytes_max - ROW_OVERHEAD_BYTES, max(map(len, values))
        if largest > limit:
            raise EntryTooLargeError(
                f"a row of {largest} bytes does not fit into an entry of log {self._options.log}: {limit} are allowed"
            )

    # ---- the driver ---------------------------------------------------------------------------------

    def _change(
        self, messages: Sequence[WriterCommitMessage | None], *, writer: str = "", batch: int = -1
    ) -> Change:
        """The change that publishes the ledgers of a job, for a dataset to be extended or for a log."""
        sealed = [each for each in messages if isinstance(each, Sealed)]
        found = [(each.ledger_id, each.entries) for each in sealed if each.ledger_id is not None]
        if self._options.log is not None:
            return queued(found, writer=writer, batch=batch)
        return published(
            [ledger for ledger, _ in found], overwrite=False, writer=writer, batch=batch
        )

    async def _publish(self, client: Client, change: Change) -> Dataset:
        """Publishes; returns the document after the change. Entries for a log are appended by then."""
        found = await Datasets(client.store).change(self._document, change)
        if self._options.log is not None:
            try:
                await append_queue(client, self._options.log, self._options)
            except BkboxError as error:
                error.add_note(
                    f"the rows are published, and the next job that writes to log {self._options.log} appends them: "
                    "do not write them again"
                )
                raise
        return found

    async def _delete_abandoned(
        self, client: Client, found: Dataset | None, first_id: int, bound: int
    ) -> None:
        """Deletes this job's ledgers with ids from ``first_id`` to before ``bound``, except published ones: the
        response to the publication may have been lost."""
        listed = found.ledgers if found is not None else frozenset()
        ids = range(first_id, bound)
        if len(ids) > _CHECKED_IDS_MAX:
            log.warning(
                "of %d ids only the last %d are looked at for abandoned ledgers",
                len(ids),
                _CHECKED_IDS_MAX,
            )
            ids = ids[-_CHECKED_IDS_MAX:]

        async def one(ledger: int) -> None:
            try:
                custom = dict((await client.store.read_ledger(LedgerId(ledger))).value.custom)
            except NoSuchLedgerError:
                return
            except MetadataError as error:
                if error.may_have_taken_effect:
                    raise
                return  # not ours, and not readable
            if custom.get(JOB) == self._job.encode():
                await client.delete_ledger(ledger)
                log.info("ledger %d was abandoned, and is deleted", ledger)

        await bounded_gather([each for each in ids if each not in listed], one, _AT_ONCE)


class BatchWriter(_Writes, DataSourceArrowWriter):
    """``df.write``: mode ``append`` extends the dataset, ``overwrite`` replaces its content. Made once on the driver;
    its copies work in the tasks, and the driver commits."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, uuid4().hex)
        if overwrite and options.log is not None:
            truncate = plain_command(
                "log", "truncate", options.log, "--before", "POSITION", "--metadata", options.uri
            )
            raise ConfigError(
                [
                    f"a log is appended to: mode has to be append (`{truncate}` "
                    "takes records off its front)"
                ]
            )
        self._overwrite = overwrite
        self._job_ledger = asyncio.run(self._begin())

    async def _begin(self) -> LedgerId:
        """Creates the job's own ledger. The ids of its tasks' ledgers are greater."""
        async with connected(self._options) as client:
            writer = await self._create_ledger(client)
            await writer.abort()
            return writer.ledger_id

    async def _require_job(self, client: Client) -> None:
        try:
            await client.store.read_ledger(self._job_ledger, linearizable=True)
        except NoSuchLedgerError:
            raise JobCancelledError("the job has ended without this task") from None

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish."""
        change = self._change(messages)
        if self._overwrite:
            change = published(_ledgers(messages), overwrite=True)
        asyncio.run(self._end(change))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete."""
        asyncio.run(self._end(None))

    async def _end(self, change: Change | None) -> None:
        async with connected(self._options) as client:
            datasets = Datasets(client.store)
            if change is None:
                found = await datasets.find(self._document)
            else:
                found = await self._publish(client, change)
                await datasets.bury(self._document)
            # In this order: a task that still finds the job's ledger has one of its own with an id below `bound`.
            await client.delete_ledger(self._job_ledger)
            bound = await client.store.new_ledger_id()
            await self._delete_abandoned(client, found, self._job_ledger, bound)


class StreamWriter(_Writes, DataSourceStreamArrowWriter):
    """``df.writeStream``. Made again for the tasks of each batch, and for its end: what they share is the document of
    the dataset, which has the id below which no abandoned ledger is left."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        self._name = options.writer_id or options.checkpoint
        if not self._name:
            raise ConfigError(
                [
                    "a stream that writes needs the option checkpointLocation, or writerId: a name that is the same "
                    "after a restart, and of no other stream"
                ]
            )
        if overwrite:
            raise ConfigError(["a stream appends: outputMode has to be append"])
        super().__init__(options, schema, hashlib.sha256(self._name.encode()).hexdigest()[:32])
        asyncio.run(self._begin())

    async def _begin(self) -> None:
        async with connected(self._options) as client:
            datasets = Datasets(client.store)
            found = await datasets.find(self._document)
            if found is not None and self._name in found.swept:
                return
            first_id = await client.store.new_ledger_id()
            await datasets.change(
                self._document,
                lambda now: replace(now, swept={self._name: first_id, **now.swept}),
            )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Publishes, unless this batch was published before."""
        change = self._change(messages, writer=self._name, batch=batchId)
        asyncio.run(self._end(change))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Delete."""
        asyncio.run(self._end(lambda now: now))

    async def _end(self, change: Change) -> None:
        async with connected(self._options) as client:
            datasets = Datasets(client.store)
            found = await self._publish(client, change)
            bound = await client.store.new_ledger_id()
            await self._delete_abandoned(client, found, found.swept[self._name], bound)
            await datasets.change(
                self._document, lambda now: replace(now, swept={**now.swept, self._name: bound})
            )


def _document_of(options: WriteOptions) -> str:
    if options.log is not None:
        return of_log(options.log)
    assert options.dataset is not None
    return options.dataset


def check_rows(schema: StructType) -> None:
    """Raises ConfigError for rows that cannot be entries."""
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError(
            [f"rows need a column 'value', binary or string; they have {', '.join(names)}"]
        )
    if left := [name for name in names if name != "value"]:
        raise ConfigError(
            [
                f"rows have columns that no entry has room for: {', '.join(left)}. Select or encode them into 'value'"
            ]
        )
    kind = schema["value"].dataType
    if not isinstance(kind, (BinaryType, StringType)):
        raise ConfigError(
            [f"column 'value' is of type {kind.simpleString()}: it has to be binary or string"]
        )


async def _values(batches: Iterator[pa.RecordBatch]) -> AsyncGenerator[list[bytes], None]:
    # In a thread: acknowledgements are processed while Spark computes the next batch.
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        column = batch.column("value")
        if column.null_count:
            raise ConfigError(
                [f"{column.null_count} rows have no value (null): an entry has to have one"]
            )
        found = column.cast(pa.binary()).to_pylist()
        if found:
            yield found


def _ledgers(messages: Iterable[WriterCommitMessage | None]) -> list[int]:
    return sorted(
        each.ledger_id
        for each in messages
        if isinstance(each, Sealed) and each.ledger_id is not None
    )
