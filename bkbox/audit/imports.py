"""Recreates exported ledgers (export.py), under their own ids or under new ones.

A ledger is written entry by entry with the sizes, digest type, password and custom metadata of the exported ledger, and
closed. While it is written its custom metadata carry a mark, which is removed last: an interrupted ledger is deleted
and created again, a finished one is recognised as finished. Under new ids a table maps old ids to new ones; a ledger in
the table is not created again.

The exported payloads are checked against their sum while they are written. A ledger whose sum is wrong is deleted.
"""

from __future__ import annotations

import csv
import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from bkbox import metadata as stores
from bkbox.audit.export import ContentHash, entries_file, ledgers_file
from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.client.client import Client
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.client.options import ClientOptions
from bkbox.errors import (
    BkboxError,
    LedgerError,
    LedgerExistsError,
    MetadataError,
    NoSuchLedgerError,
    VersionConflictError,
)
from bkbox.metadata.base import MetadataStore
from bkbox.wire.metadata import ledger_metadata
from bkbox.wire.metadata.ledger import DigestType, LedgerMetadata, LedgerState

MARK = "bkbox.import"
"""Custom metadata key of a ledger that is being created; its value is the exported ledger's id."""


class ImportedLedger(NamedTuple):
    """The result of one ledger: ``new_id`` is its id in this cluster; ``why`` there is none, empty if there is one."""

    ledger_id: int
    new_id: int
    entries: int
    size: int
    why: str


class _Row(NamedTuple):
    ledger_id: int
    entries: int
    size: int
    sha256: str
    metadata: bytes


@dataclass(frozen=True)
class ImportJob:
    """Imports one part. ``new_ids``: draw new ids, and record them in files of ``map_folder``, one for each part;
    ``client``: fields of ClientOptions."""

    uri: str
    folder: Path
    new_ids: bool = False
    map_folder: Path | None = None
    client: Mapping[str, Any] = field(default_factory=dict)

    async def run(self, part: str) -> list[ImportedLedger]:
        """One result for each ledger of the part. Raises MetadataUnavailableError."""
        rng = random.Random()  # noqa: S311 placement and jitter
        table = pq.read_table(ledgers_file(self.folder, part))
        rows = [_Row(*row.values()) for row in table.to_pylist()]
        known = read_map(self._map_file(part)) if self.new_ids else {}
        outcomes: list[ImportedLedger] = []
        entries = _Entries(entries_file(self.folder, part))
        options = ClientOptions(**self.client)
        async with await stores.connect(self.uri) as store, Client(store, options, rng) as client:
            for row in rows:
                try:
                    if row.ledger_id in known:
                        outcomes.append(
                            ImportedLedger(
                                row.ledger_id, known[row.ledger_id], row.entries, row.size, ""
                            )
                        )
                        continue
                    new_id = await self._make(store, client, row, entries, part)
                    outcomes.append(
                        ImportedLedger(row.ledger_id, new_id, row.entries, row.size, "")
                    )
                except BkboxError as error:
                    if isinstance(error, MetadataError) and error.may_have_taken_effect:
                        raise
                    outcomes.append(ImportedLedger(row.ledger_id, -1, 0, 0, str(error)))
        return outcomes

    async def _make(
        self, store: MetadataStore, client: Client, row: _Row, entries: _Entries, part: str
    ) -> int:
        exported = ledger_metadata.decode(LedgerId(row.ledger_id), row.metadata)
        if not self.new_ids and await _is_there(store, client, row, exported):
            return row.ledger_id
        digest_type = exported.digest_type or DigestType.CRC32C
        writer = await client.create_ledger(
            exported.ensemble_size,
            exported.write_quorum,
            exported.ack_quorum,
            digest_type,
            exported.password or b"",
            {**dict(exported.custom), MARK: str(row.ledger_id).encode()},
            ledger=None if self.new_ids else row.ledger_id,
        )
        try:
            await _write(writer, row, entries)
            await writer.close()
        except BaseException:
            await writer.abort()
            await client.delete_ledger(writer.ledger_id)
            raise
        if self.new_ids:
            # Before the mark is removed: an import interrupted here creates the ledger once more, and the mark shows
            # which one to delete.
            append_map(self._map_file(part), row.ledger_id, writer.ledger_id)
        await _unmark(store, writer.ledger_id, exported)
        return writer.ledger_id

    def _map_file(self, part: str) -> Path:
        assert self.map_folder is not None
        return self.map_folder / f"{part}.csv"


async def _is_there(
    store: MetadataStore, client: Client, row: _Row, exported: LedgerMetadata
) -> bool:
    """True if the ledger is imported already. Raises LedgerExistsError if the id belongs to another ledger."""
    try:
        found = (await store.read_ledger(LedgerId(row.ledger_id), linearizable=True)).value
    except NoSuchLedgerError:
        return False
    is_marked = any(key == MARK for key, _ in found.custom)
    is_same = (
        found.state is LedgerState.CLOSED
        and (found.last_entry + 1, found.length) == (row.entries, row.size)
        and found.digest_type == exported.digest_type
    )
    if is_marked and is_same:
        await _unmark(store, LedgerId(row.ledger_id), exported)
        return True
    if is_marked:
        await client.delete_ledger(row.ledger_id)
        return False
    if not is_same or found.custom != exported.custom:
        raise LedgerExistsError(
            f"ledger {row.ledger_id} is there and is another one: import under new ids"
        )
    return True


async def _write(writer: LedgerWriter, row: _Row, entries: _Entries) -> None:
    total = ContentHash()
    count = 0
    async for payloads in entries.of(row.ledger_id):
        total.add(payloads)
        count += len(payloads)
        await writer.append_many(payloads)
    if count != row.entries or total.text() != row.sha256:
        raise LedgerError(
            f"what was exported of ledger {row.ledger_id} is damaged: {count} of {counted(row.entries, 'entry')}, and "
            f"the sum over them is {'right' if total.text() == row.sha256 else 'wrong'}"
        )


async def _unmark(store: MetadataStore, ledger: LedgerId, exported: LedgerMetadata) -> None:
    while True:
        found = await store.read_ledger(ledger, linearizable=True)
        after = replace(found.value, custom=exported.custom, creator_token=0)
        try:
            await store.write_ledger(after, found.version)
        except VersionConflictError:
            continue
        return


class _Entries:
    """The entries of a part. Ledgers must be requested in the order in which they lie in the file."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)

    async def of(self, ledger: int) -> AsyncIterator[list[bytes]]:
        """The payloads of a ledger, in order of entries."""
        for group in self._groups(ledger):
            table = self._file.read_row_group(group, columns=["ledger_id", "entry_id", "value"])
            ids = table.column("ledger_id").to_pylist()
            values = table.column("value").to_pylist()
            of_ledger = [value for owner, value in zip(ids, values, strict=True) if owner == ledger]
            if of_ledger:
                yield of_ledger

    def _groups(self, ledger: int) -> Iterator[int]:
        """The row groups that may have entries of the ledger, by the statistics of the file."""
        for number in range(self._file.metadata.num_row_groups):
            found = self._file.metadata.row_group(number).column(0).statistics
            if found is None or not found.has_min_max or found.min <= ledger <= found.max:
                yield number


def read_map(path: Path) -> dict[int, int]:
    """The map of old ledger ids to new ones; empty if there is no such file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {int(old): int(new) for old, new in csv.reader(file) if old.isdigit()}


def append_map(path: Path, old: int, new: int) -> None:
    """Appends a pair to the map and fsyncs the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        csv.writer(file).writerow([old, new])
        file.flush()
        os.fsync(file.fileno())
