"""``spark.readStream.format("bookkeeper")``: open ledgers up to the last confirmed entry, and logs over their
ledgers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bkbox.client.client import Client
from pyspark_bookkeeper.background import Background
from pyspark_bookkeeper.batch import Pieces
from pyspark_bookkeeper.cluster import connected, shared
from pyspark_bookkeeper.options import ReadOptions
from pyspark_bookkeeper.planning import partitions
from pyspark_bookkeeper.reading import PieceReader
from pyspark_bookkeeper.schema import columns_of
from pyspark_bookkeeper.tail import Offset, ReadBudget, tail_of

T = TypeVar("T")

_IDLE_S = 0.1
"""Pause in seconds: without new data Spark asks for the newest offset every few milliseconds."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Has one connection on the driver as long as the query runs; a pickled copy has none."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reader = PieceReader(options, columns_of(schema))
        self._tail = tail_of(options)
        self._upto: Offset | None = None
        self._background: Background[Client] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_background": None}

    def initialOffset(self) -> Offset:  # noqa: N802 Spark's name
        """The offset of ``startingOffsets``."""
        return self._call(self._tail.initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        """``maxEntriesPerTrigger`` or ``maxBytesPerTrigger``; with both, Spark is given the first, and the second
        applies as well."""
        if self._options.max_entries_per_trigger is not None:
            return ReadMaxRows(self._options.max_entries_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 Spark's name
        """The end of the next batch."""
        if self._upto is not None and self._is_reached(start):
            return start
        budget = ReadBudget()
        if not isinstance(limit, ReadAllAvailable):
            budget = ReadBudget(
                self._options.max_entries_per_trigger, self._options.max_bytes_per_trigger
            )
        found = self._call(lambda client: self._tail.latest(client, start, budget))
        if self._upto is not None:
            found = self._tail.earlier(found, self._upto)
        if found == start:
            time.sleep(_IDLE_S)
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        """Fixes the end of the stream at what is there now."""
        self._upto = self._call(lambda client: self._tail.newest(client))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Deterministic: the same for the same offsets, also after a restart."""
        found = self._call(lambda client: self._tail.between(client, start, end))
        options = self._options
        cut = partitions(found, options.max_bytes_per_partition, options.min_partitions)
        return [Pieces(pieces) for pieces in cut]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        if not isinstance(partition, Pieces):
            return iter(())
        pieces = partition.pieces
        return shared(self._options).iterate(lambda client: self._reader.batches(client, pieces))

    def commit(self, end: Offset) -> None:
        """Nothing: the checkpoint records the position of a query."""

    def stop(self) -> None:
        """Closes the connection."""
        if self._background is not None:
            self._background.close()
            self._background = None

    def _is_reached(self, start: Offset) -> bool:
        assert self._upto is not None
        return self._tail.earlier(start, self._upto) == self._upto

    def _call(self, do: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        if self._background is None:
            self._background = Background(self._connect)
        return self._background.call(do)

    async def _connect(self) -> AsyncGenerator[Client, None]:
        async with connected(self._options) as client:
            yield client
