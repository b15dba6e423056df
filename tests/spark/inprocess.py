"""The data source without Spark: planned and read here and now, which takes no JVM."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType
from pyspark_bookkeeper.batch import BatchReader
from pyspark_bookkeeper.options import read_options
from pyspark_bookkeeper.schema import schema_of
from pyspark_bookkeeper.stream import StreamReader

Row = tuple[int, int, bytes]
"""Ledger, entry, value."""


def read_here(uri: str, **options: object) -> list[Row]:
    """What a batch comes to, in its order."""
    given = _given(uri, options)
    reader = BatchReader(read_options(given, streaming=False), _schema(given))
    return [row for each in reader.partitions() for row in _rows(reader, each)]


def follow_here(
    uri: str, start: dict[str, int] | None = None, limit: ReadLimit | None = None, **options: object
) -> tuple[list[Row], dict[str, int]]:
    """What a batch of a stream comes to that begins at ``start``, None: where a new query does; and its end."""
    given = _given(uri, options)
    reader = StreamReader(read_options(given, streaming=True), _schema(given))
    try:
        start = reader.initialOffset() if start is None else start
        end = reader.latestOffset(start, limit or ReadAllAvailable())
        found = [row for each in reader.partitions(start, end) for row in _rows(reader, each)]
        return found, end
    finally:
        reader.stop()


def _given(uri: str, options: dict[str, object]) -> dict[str, str]:
    return {"metadata.uri": uri, **{name: str(value) for name, value in options.items()}}


def _schema(given: dict[str, str]) -> StructType:
    return schema_of(log="log" in given, metadata=given.get("includeMetadata") == "true")


def _rows(reader: Any, partition: Any) -> list[Row]:
    columns = ("ledger_id", "entry_id", "value")
    return [
        row
        for batch in reader.read(partition)
        for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    ]
