"""Scans the metadata of all ledgers: the cheapest survey of a whole cluster, one read of the store for each ledger."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from bkbox import metadata as stores
from bkbox.audit.engine import Engine
from bkbox.audit.job import Chunk
from bkbox.audit.judgement import ledger_row, merged_owners, owner_row
from bkbox.audit.rows import Ledger, OwnerBytes
from bkbox.audit.run import Progress
from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.protocol.repair import expected_entries
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

_AT_ONCE = 32


class BookieLoad(NamedTuple):
    """The load of a bookie by the metadata: ledgers that name it, copies of entries and their payload bytes. Of closed
    ledgers; each entry is reckoned at its ledger's average size."""

    bookie: str
    ledgers: int
    copies: int
    bytes: int


@dataclass(slots=True)
class Facts:
    """Facts about some ledgers, or all. ``largest`` and ``oldest``: the first few; ``unreadable``: ids of ledgers whose
    metadata cannot be read."""

    ledgers: int = 0
    states: dict[str, int] = field(default_factory=dict)
    largest: list[Ledger] = field(default_factory=list)
    oldest: list[Ledger] = field(default_factory=list)
    owners: list[OwnerBytes] = field(default_factory=list)
    bookies: list[BookieLoad] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)

    def skew(self) -> dict[str, float]:
        """Imbalance: the ratio of the fullest bookie to the median one, by bytes and by ledgers."""
        if not self.bookies:
            return {}
        found = {}
        for name, loads in (
            ("bytes", [each.bytes for each in self.bookies]),
            ("ledgers", [each.ledgers for each in self.bookies]),
        ):
            middle = median(loads)
            if middle:
                found[name] = round(max(loads) / middle, 3)
        return found


@dataclass(frozen=True)
class FactsJob:
    """Scans one chunk. ``shown``: how many of the largest and the oldest ledgers are kept."""

    uri: str
    shown: int

    async def run(self, chunk: Chunk) -> Facts:
        """The facts of one chunk. Raises MetadataUnavailableError."""
        found = Facts()
        async with await stores.connect(self.uri) as store:

            async def one(ledger: int) -> LedgerMetadata | None:
                try:
                    return (await store.read_ledger(LedgerId(ledger))).value
                except NoSuchLedgerError:
                    return None
                except MetadataError as error:
                    if error.may_have_taken_effect:
                        raise
                    found.unreadable.append(ledger)
                    return None

            ids = (each for some in chunk.ledgers for each in some)
            responses = await bounded_gather(ids, one, _AT_ONCE)
        all_metadata = [each for each in responses if each is not None]
        _add(found, all_metadata, self.shown)
        return found


def _add(found: Facts, ledgers: Sequence[LedgerMetadata], shown: int) -> None:
    rows = [ledger_row(each) for each in ledgers]
    found.ledgers = len(rows)
    for row in rows:
        found.states[row.state] = found.states.get(row.state, 0) + 1
    found.largest, found.oldest = _largest(rows, shown), _oldest(rows, shown)
    found.owners = merged_owners(owner_row(each) for each in ledgers)
    found.bookies = _merged_loads(load for each in ledgers for load in _loads(each))


def merged(parts: Iterable[Facts], shown: int) -> Facts:
    """The facts of parts of a cluster, merged."""
    total = Facts()
    for part in parts:
        total.ledgers += part.ledgers
        for state, count in part.states.items():
            total.states[state] = total.states.get(state, 0) + count
        total.largest = _largest([*total.largest, *part.largest], shown)
        total.oldest = _oldest([*total.oldest, *part.oldest], shown)
        total.owners = merged_owners([*total.owners, *part.owners])
        total.bookies = _merged_loads([*total.bookies, *part.bookies])
        total.unreadable = sorted([*total.unreadable, *part.unreadable])
    return total


def gather(
    engine: Engine, uri: str, chunks: Sequence[Chunk], shown: int, progress: Progress
) -> Facts:
    """The facts of all ledgers in these chunks. Raises what the engine raises."""
    progress.stage("reading metadata", sum(chunk.ledger_count for chunk in chunks))

    def parts() -> Iterable[Facts]:
        for part in engine.map(FactsJob(uri, shown), chunks):
            progress.add_progress(part.ledgers, 0)
            yield part

    return merged(parts(), shown)


def _largest(rows: Iterable[Ledger], shown: int) -> list[Ledger]:
    known = (row for row in rows if row.bytes is not None)
    return heapq.nsmallest(shown, known, key=lambda row: (-(row.bytes or 0), row.ledger_id))


def _oldest(rows: Iterable[Ledger], shown: int) -> list[Ledger]:
    known = (row for row in rows if row.ctime_ms is not None)
    return heapq.nsmallest(shown, known, key=lambda row: (row.ctime_ms, row.ledger_id))


def _loads(metadata: LedgerMetadata) -> list[BookieLoad]:
    entries = metadata.last_entry + 1
    is_closed = metadata.state is LedgerState.CLOSED
    average = metadata.length / entries if is_closed and entries else 0.0
    loads = []
    for bookie in metadata.bookies():
        copies = _copies_of(metadata, bookie) if is_closed else 0
        loads.append(BookieLoad(bookie, 1, copies, int(copies * average)))
    return loads


def _copies_of(metadata: LedgerMetadata, bookie: BookieId) -> int:
    return sum(map(len, expected_entries(metadata, bookie)))


def _merged_loads(loads: Iterable[BookieLoad]) -> list[BookieLoad]:
    found: dict[str, BookieLoad] = {}
    for load in loads:
        before = found.get(load.bookie)
        found[load.bookie] = (
            load
            if before is None
            else BookieLoad(
                load.bookie,
                before.ledgers + load.ledgers,
                before.copies + load.copies,
                before.bytes + load.bytes,
            )
        )
    return sorted(found.values(), key=lambda load: (-load.bytes, load.bookie))
