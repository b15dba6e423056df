"""Verified entries as Arrow batches: only the requested columns are made.

Entries that come as columns (EntryColumns) become Arrow arrays as they are, without a copy and without an object for
each entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from bkbox.client.ledger.reader import Entry
from bkbox.client.log.entry import Kind, decode
from bkbox.wire.digest import EntryColumns
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.owner import owner_of

BATCH_BYTES = 4 << 20
BATCH_ROWS = 10_000
"""Approximate rows of one Arrow batch."""

_TYPES: dict[str, pa.DataType] = {
    "ledger_id": pa.int64(),
    "entry_id": pa.int64(),
    "last_confirmed": pa.int64(),
    "length": pa.int64(),
    "value": pa.binary(),
    "record": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "state": pa.string(),
    "owner": pa.string(),
    "fragment": pa.int32(),
    "ensemble": pa.list_(pa.string()),
}

_METADATA = frozenset({"state", "owner", "fragment", "ensemble"})

_Makers = dict[str, Callable[[], pa.Array]]


class Columns:
    """Makes batches with these columns: pairs of name and nullable. ``log``: entries are those of a log, and a row is a
    record."""

    def __init__(self, columns: Sequence[tuple[str, bool]], *, log: bool) -> None:
        self._schema = pa.schema(
            [pa.field(name, _TYPES[name], nullable) for name, nullable in columns]
        )
        self._log = log
        self._wants_metadata = not _METADATA.isdisjoint(name for name, _ in columns)

    def batch(
        self, entries: Sequence[Entry] | EntryColumns, metadata: LedgerMetadata
    ) -> pa.RecordBatch:
        """A batch from one or more entries of one ledger; entries of a log must not be columns."""
        if isinstance(entries, EntryColumns):
            makers = _of_columns(entries)
        else:
            rows = _of_records(entries) if self._log else _of_entries(entries)
            makers = {name: _maker(name, values) for name, values in rows.items()}
        if self._wants_metadata:
            makers |= _of_metadata(makers["entry_id"]().to_pylist(), metadata)
        arrays = [makers[field.name]() for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _of_columns(found: EntryColumns) -> _Makers:
    count = len(found)

    def longs(values: object) -> pa.Array:
        return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)])

    def payloads() -> pa.Array:
        buffers = [None, pa.py_buffer(found.offsets), pa.py_buffer(found.values)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)

    return {
        "ledger_id": lambda: pa.repeat(pa.scalar(found.ledger_id, pa.int64()), count),
        "entry_id": lambda: longs(found.entry_ids),
        "last_confirmed": lambda: longs(found.lacs),
        "length": lambda: longs(found.lengths),
        "value": payloads,
    }


def _of_entries(entries: Sequence[Entry]) -> dict[str, Sequence[Any]]:
    ids, numbers, lacs, lengths, payloads = zip(*entries, strict=True)
    return {
        "ledger_id": ids,
        "entry_id": numbers,
        "last_confirmed": lacs,
        "length": lengths,
        "value": payloads,
    }


def _of_records(entries: Iterable[Entry]) -> dict[str, Sequence[Any]]:
    rows: dict[str, list[Any]] = {name: [] for name in list(_TYPES)[:7]}
    for entry in entries:
        decoded = decode(entry.payload)
        if decoded.kind is not Kind.RECORDS:
            continue
        for number, record in enumerate(decoded.records):
            rows["ledger_id"].append(entry.ledger_id)
            rows["entry_id"].append(entry.entry_id)
            rows["last_confirmed"].append(entry.lac)
            rows["length"].append(entry.length)
            rows["value"].append(record.payload)
            rows["record"].append(number)
            rows["timestamp"].append(record.timestamp_ms * 1000)
    return dict(rows)


def _of_metadata(entries: Sequence[int], metadata: LedgerMetadata) -> _Makers:
    count = len(entries)
    starts = [each.first_entry for each in metadata.fragments]
    fragments = [bisect_right(starts, entry) - 1 for entry in entries]
    ensembles = [list(each.ensemble) for each in metadata.fragments]
    return {
        "state": lambda: pa.repeat(pa.scalar(metadata.state.name), count),
        "owner": lambda: _maker("owner", [owner_of(metadata)] * count)(),
        "fragment": _maker("fragment", fragments),
        "ensemble": lambda: _maker("ensemble", [ensembles[place] for place in fragments])(),
    }


def _maker(name: str, values: Sequence[Any]) -> Callable[[], pa.Array]:
    return lambda: pa.array(values, _TYPES[name])
