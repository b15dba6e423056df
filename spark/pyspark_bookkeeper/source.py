"""The data source ``bookkeeper``, as Spark sees it."""

from __future__ import annotations

import sys

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from bkbox.errors import OperatorError
from pyspark_bookkeeper.interpreter import missing_module
from pyspark_bookkeeper.options import read_options, write_options
from pyspark_bookkeeper.schema import check_schema, schema_of


class DefaultSource(DataSource):
    """Modules that need Arrow or the client are imported only when needed: Spark asks every source for its name."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises OperatorError if modules are missing: Spark's own message would later be that a worker crashed."""
        super().__init__(options)
        need_arrow()

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "bookkeeper"

    def schema(self) -> StructType:
        """Depends on the options ``log`` and ``includeMetadata``."""
        given = {str(key).lower(): str(value) for key, value in self.options.items()}
        wants_metadata = given.get("includemetadata", "").strip().lower() == "true"
        return schema_of(log="log" in given, metadata=wants_metadata)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises ConfigError."""
        from pyspark_bookkeeper.batch import BatchReader

        options = read_options(self.options, streaming=False)
        check_schema(schema, self.schema())
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        """Raises ConfigError."""
        from pyspark_bookkeeper.stream import StreamReader

        options = read_options(self.options, streaming=True)
        check_schema(schema, self.schema())
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises ConfigError, MetadataError."""
        from pyspark_bookkeeper.writing import BatchWriter

        return BatchWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 Spark's name
        """Raises ConfigError, MetadataError."""
        from pyspark_bookkeeper.writing import StreamWriter

        return StreamWriter(write_options(self.options), schema, overwrite=overwrite)


def need_arrow() -> None:
    """Raises OperatorError if the Python that Spark runs lacks pyarrow: it may be another Python than the driver's."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise OperatorError(missing_module(str(error), sys.executable)) from error
