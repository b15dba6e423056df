"""The columns of a read, and the selection that a query makes.

=================  =====================  ==========================================================================
column             type                   content
=================  =====================  ==========================================================================
ledger_id          long                   the ledger
entry_id           long                   the entry
last_confirmed     long                   the last entry confirmed when the writer made this entry, -1 for none
length             long                   payload bytes of the ledger up to and with this entry
value              binary                 the payload; of a log one of the records in it
record             int                    only of a log: which of the records in the entry, from 0
timestamp          timestamp              only of a log: when it was appended
state              string                 with includeMetadata: the ledger's state when the query was planned
owner              string                 with includeMetadata: custom metadata 'owner' or 'application'
fragment           int                    with includeMetadata: which fragment the entry is in, from 0
ensemble           array of string        with includeMetadata: the bookies of that fragment
=================  =====================  ==========================================================================

A schema given with ``spark.read.schema(…)`` may leave columns out: they are not made then.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bkbox.base.text import quoted
from bkbox.errors import ConfigError

_ALWAYS = (
    StructField("ledger_id", LongType()),
    StructField("entry_id", LongType()),
    StructField("last_confirmed", LongType()),
    StructField("length", LongType()),
    StructField("value", BinaryType()),
)
_OF_LOGS = (
    StructField("record", IntegerType()),
    StructField("timestamp", TimestampType()),
)
_METADATA = (
    StructField("state", StringType()),
    StructField("owner", StringType()),
    StructField("fragment", IntegerType()),
    StructField("ensemble", ArrayType(StringType())),
)


def schema_of(*, log: bool, metadata: bool) -> StructType:
    """All columns of such a source."""
    fields = [*_ALWAYS, *(_OF_LOGS if log else ()), *(_METADATA if metadata else ())]
    return StructType(list(fields))


def check_schema(requested: StructType, known: StructType) -> None:
    """Raises ConfigError for an unknown column, or one of another type."""
    types = {each.name: each.dataType for each in known.fields}
    problems = []
    for each in requested.fields:
        if each.name not in types:
            problems.append(
                f"there is no column {quoted(each.name)}: there are {', '.join(types)}"
                + ("" if "state" in types else " (and others with includeMetadata)")
            )
        elif each.dataType != types[each.name]:
            problems.append(
                f"column {quoted(each.name)} is of type {types[each.name].simpleString()}, "
                f"not {each.dataType.simpleString()}"
            )
    if problems:
        raise ConfigError(problems)


def columns_of(schema: StructType) -> tuple[tuple[str, bool], ...]:
    """The columns as pairs of name and nullable."""
    return tuple((each.name, each.nullable) for each in schema.fields)
