"""``spark.read.format("bookkeeper")``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_bookkeeper.cluster import connected, shared
from pyspark_bookkeeper.ledgers import extents
from pyspark_bookkeeper.options import ReadOptions
from pyspark_bookkeeper.planning import Piece, partitions
from pyspark_bookkeeper.reading import PieceReader
from pyspark_bookkeeper.schema import columns_of


class Pieces(InputPartition):
    """The pieces of one partition."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reader = PieceReader(options, columns_of(schema))

    def partitions(self) -> list[InputPartition]:
        """Empty where there is nothing to read."""

        async def plan() -> list[tuple[Piece, ...]]:
            options = self._options
            async with connected(options) as client:
                found = await extents(client, options)
            return partitions(found, options.max_bytes_per_partition, options.min_partitions)

        return [Pieces(pieces) for pieces in asyncio.run(plan())]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """``partition`` None: Spark's partition for an empty list of partitions."""
        if not isinstance(partition, Pieces):
            return iter(())
        pieces = partition.pieces
        return shared(self._options).iterate(lambda client: self._reader.batches(client, pieces))
