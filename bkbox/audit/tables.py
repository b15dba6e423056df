"""The result tables in Arrow's types, and their files.

Each table is one Parquet file in the folder of the results, with the rows in the order of ledgers (of racks, owners,
bookies). Its columns are the fields of a class of rows.py; an empty table is a file without rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from bkbox.audit import rows
from bkbox.base.text import error_text
from bkbox.errors import OperatorError

_INT, _TEXT = pa.int64(), pa.string()
_TEXTS = pa.list_(_TEXT)

_RUN = pa.schema(
    [
        pa.field("ledger_id", _INT, nullable=False),
        pa.field("bookie", _TEXT, nullable=False),
        pa.field("first_entry", _INT, nullable=False),
        pa.field("last_entry", _INT, nullable=False),
        pa.field("entries", _INT, nullable=False),
        pa.field("why", _TEXT, nullable=False),
    ]
)


def _schema(**fields: Any) -> pa.Schema:
    return pa.schema(list(fields.items()))


SCHEMAS: dict[str, pa.Schema] = {
    "missing": _RUN,
    "corrupt": _RUN,
    "unreadable": _RUN,
    "unknown": _RUN,
    "divergent": _schema(
        ledger_id=_INT,
        entry_id=_INT,
        bookie=_TEXT,
        sha256=_TEXT,
        length=_INT,
        copies=_INT,
        verdict=_TEXT,
        proof=_TEXT,
    ),
    "under_replicated": _schema(
        ledger_id=_INT,
        state=_TEXT,
        write_quorum=_INT,
        ack_quorum=_INT,
        known_copies=_INT,
        possible_copies=_INT,
        gone=_TEXTS,
        lacking=_TEXTS,
        entries=_INT,
    ),
    "orphaned": _schema(ledger_id=_INT, bookie=_TEXT, last_entry=_INT),
    "limbo": _schema(bookie=_TEXT, ledger_id=_INT, entries=_INT),
    "no_copy": _schema(ledger_id=_INT, state=_TEXT, entries=_INT, ranges=_TEXT, why=_TEXT),
    "blocked": _schema(
        ledger_id=_INT,
        state=_TEXT,
        write_quorum=_INT,
        ack_quorum=_INT,
        limbo=_TEXTS,
        gone=_TEXTS,
    ),
    "ended": _schema(
        ledger_id=_INT,
        at_ms=_INT,
        by=_TEXT,
        run=_TEXT,
        end=_INT,
        lost=_TEXT,
        lost_entries=_INT,
        doubtful=_TEXT,
        unknown_after=_INT,
    ),
    "ledgers": _schema(
        ledger_id=_INT,
        state=_TEXT,
        owner=_TEXT,
        ctime_ms=_INT,
        entries=_INT,
        bytes=_INT,
        ensemble_size=_INT,
        write_quorum=_INT,
        ack_quorum=_INT,
        fragments=_INT,
        bookies=_TEXTS,
    ),
    "copies_per_rack": _schema(rack=_TEXT, ledgers=_INT, copies=_INT, lacking=_INT, only_here=_INT),
    "bytes_per_owner": _schema(
        owner=_TEXT, ledgers=_INT, open_ledgers=_INT, entries=_INT, bytes=_INT, stored_bytes=_INT
    ),
}
"""Schemas by the name of the table, which is also the name of its file."""

ROWS: dict[str, type] = {
    "missing": rows.MissingRange,
    "corrupt": rows.MissingRange,
    "unreadable": rows.MissingRange,
    "unknown": rows.MissingRange,
    "divergent": rows.Divergent,
    "under_replicated": rows.UnderReplicated,
    "orphaned": rows.Orphaned,
    "limbo": rows.Limbo,
    "no_copy": rows.NoCopy,
    "blocked": rows.Blocked,
    "ended": rows.ForceClosedLedger,
    "ledgers": rows.Ledger,
    "copies_per_rack": rows.RackCopies,
    "bytes_per_owner": rows.OwnerBytes,
}


def batch_of(table: str, found: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows of a table as one batch."""
    schema = SCHEMAS[table]
    columns = zip(*found, strict=True) if found else [()] * len(schema)
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(table: str, data: pa.Table | pa.RecordBatch) -> list[Any]:
    """The rows of a batch or table, as instances of this table's row class."""
    make = ROWS[table]
    return [make(**row) for row in data.to_pylist()]


class TableFiles:
    """Writes tables into a folder. A file gets its final name only when it is complete."""

    def __init__(self, folder: Path, tables: Iterable[str]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._writers = {
            name: pq.ParquetWriter(self._unfinished(name), SCHEMAS[name], compression="zstd")
            for name in tables
        }
        self.counts: dict[str, int] = dict.fromkeys(self._writers, 0)

    def write(self, batches: Mapping[str, pa.RecordBatch]) -> None:
        """Appends to the tables with these names."""
        for name, batch in batches.items():
            if batch.num_rows:
                self._writers[name].write_batch(batch)
                self.counts[name] += batch.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        for name, writer in self._writers.items():
            writer.close()
            if error is None:
                self._unfinished(name).replace(file_of(self._folder, name))
            else:
                self._unfinished(name).unlink(missing_ok=True)

    def _unfinished(self, name: str) -> Path:
        return self._folder / f".{name}.parquet.unfinished"


def file_of(folder: Path, table: str) -> Path:
    """The path of a table's file."""
    return folder / f"{table}.parquet"


def read_table(folder: Path, table: str) -> pa.Table:
    """A table of an earlier run. Raises OperatorError where there is none."""
    path = file_of(folder, table)
    try:
        return pq.read_table(path, schema=SCHEMAS[table])
    except FileNotFoundError:
        raise OperatorError(
            f"{path} is not there: {folder} does not hold the results of `bkbox audit`"
        ) from None
    except pa.ArrowException as error:
        raise OperatorError(
            f"{path} cannot be read as the table {table}: {error_text(error)}"
        ) from None
