"""Exports closed ledgers as Parquet files, with their metadata, so that they can be recreated (imports.py).

A folder has *parts* of some ledgers each: ``entries/NAME.parquet`` with the entries and ``ledgers/NAME.parquet`` with a
row for each ledger. The second is written last; a part without it does not count. Ledgers that the folder already has
are skipped, so another export into it adds what was closed since: a closed ledger does not change.

Every entry's digest is checked when it is read. A ledger is exported only if it has as many entries, and bytes, as its
metadata say. With Spark the folder must be shared by all executors.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bkbox import metadata as stores
from bkbox.audit.selection import parse_select
from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.errors import BkboxError, LedgerError, MetadataError, NoSuchLedgerError
from bkbox.wire.metadata import ledger_metadata
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import loss_warnings, losses_of

ROW_GROUP_BYTES = 8 << 20

_FOR_OWNERS = 0o600
"""The metadata contain the ledgers' passwords, so files are readable by their owner alone."""

ENTRIES = pa.schema(
    [
        pa.field("ledger_id", pa.int64(), nullable=False),
        pa.field("entry_id", pa.int64(), nullable=False),
        pa.field("last_confirmed", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
LEDGERS = pa.schema(
    [
        pa.field("ledger_id", pa.int64(), nullable=False),
        pa.field("entries", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False),
    ]
)
"""``sha256``: over all payloads, each preceded by its size (8 bytes, big-endian); ``metadata``: as in ZooKeeper."""


class Part(NamedTuple):
    """A unit of work: a name, and the ledger ids to examine."""

    name: str
    ledgers: tuple[range, ...]


class ExportedLedger(NamedTuple):
    """The result of one ledger; ``why`` it is skipped, empty if it is exported. ``losses``: warnings of what it does
    not hold, as an operator ended it with loss accepted."""

    ledger_id: int
    entries: int
    size: int
    why: str
    losses: tuple[str, ...] = ()


def entries_file(folder: Path, name: str) -> Path:
    """The file with the entries of a part."""
    return folder / "entries" / f"{name}.parquet"


def ledgers_file(folder: Path, name: str) -> Path:
    """The file with the rows of a part's ledgers."""
    return folder / "ledgers" / f"{name}.parquet"


def parts_in(folder: Path) -> list[str]:
    """The names of the complete parts, ascending."""
    return sorted(path.stem for path in folder.glob("ledgers/*.parquet"))


def ledgers_in(folder: Path) -> frozenset[int]:
    """The ledgers that the folder has in complete parts."""
    found: set[int] = set()
    for name in parts_in(folder):
        table = pq.read_table(ledgers_file(folder, name), columns=["ledger_id"])
        found.update(table.column(0).to_pylist())
    return frozenset(found)


class ContentHash:
    """SHA-256 over the payloads of a ledger, in order of entries."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, payloads: Iterable[bytes]) -> None:
        for payload in payloads:
            self._sum.update(len(payload).to_bytes(8, "big"))
            self._sum.update(payload)

    def text(self) -> str:
        return self._sum.hexdigest()


@dataclass(frozen=True)
class ExportJob:
    """Exports one part. ``select``: a condition on the metadata (selection.py), or None; ``client``: fields of
    ClientOptions."""

    uri: str
    folder: Path
    select: str | None = None
    client: Mapping[str, Any] = field(default_factory=dict)

    async def run(self, part: Part) -> list[ExportedLedger]:
        """One result for each ledger that is closed and selected. Raises MetadataUnavailableError."""
        condition = parse_select(self.select) if self.select else lambda _metadata: True
        rng = random.Random()  # noqa: S311 jitter
        outcomes: list[ExportedLedger] = []
        rows: list[tuple[int, int, int, str, bytes]] = []
        unfinished = entries_file(self.folder, f".{part.name}")
        for place in (unfinished, ledgers_file(self.folder, part.name)):
            place.parent.mkdir(parents=True, exist_ok=True)
        options = ClientOptions(**self.client)
        async with await stores.connect(self.uri) as store, Client(store, options, rng) as client:
            with pq.ParquetWriter(unfinished, ENTRIES, compression="zstd") as writer:
                for ledger in (each for some in part.ledgers for each in some):
                    try:
                        metadata = (await store.read_ledger(LedgerId(ledger))).value
                        if metadata.state is not LedgerState.CLOSED or not condition(metadata):
                            continue
                        rows.append(await self._ledger(client, metadata, writer))
                        _, entries, size, *_ = rows[-1]
                        losses = tuple(loss_warnings(metadata))
                        outcomes.append(ExportedLedger(ledger, entries, size, "", losses))
                    except NoSuchLedgerError:
                        continue
                    except (LedgerError, MetadataError, BkboxError) as error:
                        if isinstance(error, MetadataError) and error.may_have_taken_effect:
                            raise
                        outcomes.append(ExportedLedger(ledger, 0, 0, str(error)))
        self._finish(part.name, unfinished, rows)
        return outcomes

    async def _ledger(
        self, client: Client, metadata: LedgerMetadata, writer: pq.ParquetWriter
    ) -> tuple[int, int, int, str, bytes]:
        """Writes the ledger's entries and returns its row. Raises as LedgerReader.read does, and LedgerError for a
        ledger that has not what its metadata say."""
        reader = await client.open_ledger(metadata.ledger_id, None, recovery=False)
        total = ContentHash()
        count = size = 0
        buffered: list[Any] = []
        buffered_size = 0
        async for entries in reader.read_batches():
            buffered += entries
            payloads = [entry.payload for entry in entries]
            total.add(payloads)
            count += len(entries)
            buffered_size += sum(map(len, payloads))
            if buffered_size >= ROW_GROUP_BYTES:
                size += buffered_size
                writer.write_batch(_batch(buffered))
                buffered, buffered_size = [], 0
        size += buffered_size
        if buffered:
            writer.write_batch(_batch(buffered))
        # No-op entries that stand for lost ones have no payload: the length counts what was written.
        whole = size == metadata.length or (losses_of(metadata) and size < metadata.length)
        if count != metadata.last_entry + 1 or not whole:
            raise LedgerError(
                f"ledger {metadata.ledger_id} has {counted(count, 'entry')} and {counted(size, 'byte')}, its metadata "
                f"say {metadata.last_entry + 1} and {metadata.length}"
            )
        return (metadata.ledger_id, count, size, total.text(), ledger_metadata.encode(metadata))

    def _finish(
        self, name: str, unfinished: Path, rows: list[tuple[int, int, int, str, bytes]]
    ) -> None:
        """Gives the files their final names once they are complete, the entries first."""
        if not rows:
            unfinished.unlink()
            return
        unfinished.chmod(_FOR_OWNERS)
        unfinished.replace(entries_file(self.folder, name))
        columns = list(zip(*rows, strict=True))
        table = pa.table([pa.array(list(each)) for each in columns], schema=LEDGERS)
        pq.write_table(table, ledgers_file(self.folder, f".{name}"))
        ledgers_file(self.folder, f".{name}").chmod(_FOR_OWNERS)
        ledgers_file(self.folder, f".{name}").replace(ledgers_file(self.folder, name))


def _batch(entries: list[Any]) -> pa.RecordBatch:
    arrays = [
        pa.array(list(column), kind.type)
        for column, kind in zip(zip(*entries, strict=True), ENTRIES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRIES)


def parts_of(runs: Iterable[range], there: frozenset[int], run: str, size: int) -> list[Part]:
    """Splits the ids that are not yet in the folder into parts of ``size``."""
    from bkbox.audit.judgement import ranges_of

    left = [ledger for some in runs for ledger in some if ledger not in there]
    return [
        Part(f"{run}-{number:06d}", tuple(ranges_of(left[at : at + size])))
        for number, at in enumerate(range(0, len(left), size))
    ]
