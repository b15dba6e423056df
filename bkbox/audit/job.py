"""The audit of some ledgers of a cluster: the job that an engine executes.

A finding counts only if the metadata are the same afterwards as before: a ledger deleted meanwhile lacks nothing, and a
changed one is inspected again.

Ids without a ledger are *probed* at every bookie, by a read of the last entry: a ledger that a bookie has and no
metadata know is an orphan. The bookies' garbage collection should have removed it, but may not have reached it yet.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from bkbox import metadata as stores
from bkbox.audit.bookie_timeouts import BookieTimeouts
from bkbox.audit.inspect import CollectedFacts, LedgerInspector
from bkbox.audit.judgement import Fault, Judgement, classify_ledger, merged_owners, merged_racks
from bkbox.audit.rows import MissingRange, Orphaned, OwnerBytes, RackCopies
from bkbox.audit.selection import Condition, parse_select
from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.token_bucket import TokenBucket
from bkbox.client.client import Client
from bkbox.client.connection.pool import BookiePool
from bkbox.client.options import ClientOptions
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.metadata.base import MetadataStore
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.wire.codes import Code
from bkbox.wire.digest import HEADER, HEADER_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

LEDGERS_AT_ONCE = 16
_PROBES_AT_ONCE = 64
_INSPECTIONS_MAX = 4

TABLES = (
    *(fault.value for fault in Fault),
    "divergent",
    "under_replicated",
    "orphaned",
    "limbo",
    "no_copy",
    "blocked",
    "ended",
    "ledgers",
)
"""The tables with rows of single ledgers; the others are sums."""


class Chunk(NamedTuple):
    """A part of the ids of a cluster: ids of ledgers, and ids without a ledger, which are probed."""

    ledgers: tuple[range, ...]
    absent: tuple[range, ...]

    @property
    def ledger_count(self) -> int:
        """The number of ledgers."""
        return sum(map(len, self.ledgers))


@dataclass(slots=True)
class Result:
    """The result of one chunk. ``tables``: of TABLES; ``copies`` were read, ``size`` bytes of entries; ``unprobed``:
    ids for which a bookie did not say if it has something; ``deleted``: ledgers that were gone."""

    tables: dict[str, pa.RecordBatch] = field(default_factory=dict)
    racks: list[RackCopies] = field(default_factory=list)
    owners: list[OwnerBytes] = field(default_factory=list)
    ledgers: int = 0
    entries: int = 0
    copies: int = 0
    size: int = 0
    probed: int = 0
    unprobed: dict[str, int] = field(default_factory=dict)
    deleted: int = 0


@dataclass(frozen=True)
class AuditJob:
    """Audits one chunk. ``registered``: the bookies registered now; ``racks``: of these and of bookies known to be
    gone; ``read_all``: read and check every copy; ``rate``: bytes a second that one chunk may read, 0 for no rate
    limit."""

    uri: str
    registered: frozenset[BookieId]
    racks: Mapping[BookieId, str]
    read_all: bool
    rate: int = 0
    client: Mapping[str, Any] = field(default_factory=dict)
    select: str = ""
    """Condition on the metadata (selection.py): only ledgers that fit it are audited."""

    async def run(self, chunk: Chunk) -> Result:
        """Raises MetadataUnavailableError, and MetadataError for a store that cannot be read at all."""
        options = ClientOptions(**self.client)
        rng = random.Random()  # noqa: S311 jitter
        async with await stores.connect(self.uri) as store, Client(store, options, rng) as client:
            spend = _pace(self.rate, time.monotonic)
            inspector = LedgerInspector(
                client.pool, self.registered, _facts_of(self.uri), spend, read_all=self.read_all
            )
            result = Result()
            fits = parse_select(self.select) if self.select else lambda _metadata: True
            audit = _Audit(self, store, inspector, result, fits)
            ids = (LedgerId(each) for some in chunk.ledgers for each in some)
            judgements = await bounded_gather(ids, audit.one, LEDGERS_AT_ONCE)
            orphans = await self._probe(chunk.absent, store, client.pool, result)
            _fill(result, [each for each in judgements if each is not None], audit.unread, orphans)
            return result

    # ---- ids without a ledger ---------------------------------------------------------------

    async def _probe(
        self,
        absent: Iterable[range],
        store: MetadataStore,
        pool: BookiePool,
        result: Result,
    ) -> list[Orphaned]:
        bookies = sorted(self.registered)
        timeouts = _facts_of(self.uri).timeouts

        async def one(pair: tuple[int, BookieId]) -> Orphaned | None:
            ledger, bookie = pair
            result.probed += 1
            has_response = False
            if not timeouts.why_unresponsive(bookie):
                reply = await pool.read(bookie, ledger, -1, None)
                has_response = isinstance(reply.status, Code)
                if has_response:
                    timeouts.record_response(bookie)
                else:
                    timeouts.record_timeout(bookie, str(reply.status.value))
                if reply.status is Code.EOK and reply.entry is not None:
                    return await self._orphan(ledger, bookie, reply.entry, store)
            if not has_response:
                result.unprobed[bookie] = result.unprobed.get(bookie, 0) + 1
            return None

        pairs = ((ledger, bookie) for some in absent for ledger in some for bookie in bookies)
        found = await bounded_gather(pairs, one, _PROBES_AT_ONCE)
        return [each for each in found if each is not None]

    async def _orphan(
        self, ledger: int, bookie: BookieId, last: memoryview, store: MetadataStore
    ) -> Orphaned | None:
        try:
            await store.read_ledger(LedgerId(ledger), linearizable=True)
        except NoSuchLedgerError:
            entry = HEADER.unpack(last[:HEADER_BYTES])[1] if len(last) >= HEADER_BYTES else -1
            return Orphaned(ledger, bookie, entry)
        return None  # it was created meanwhile


@dataclass(slots=True)
class _Audit:
    """Audits single ledgers."""

    job: AuditJob
    store: MetadataStore
    inspector: LedgerInspector
    result: Result
    fits: Condition
    unread: list[MissingRange] = field(default_factory=list)

    async def one(self, ledger: LedgerId) -> Judgement | None:
        """The judgement of one ledger; None if it was deleted, is not selected, or its metadata cannot be read."""
        judgement = None
        try:
            found = await self.store.read_ledger(ledger)
            if not self.fits(found.value):
                return None
            for _ in range(_INSPECTIONS_MAX):
                inspection = await self.inspector.inspect(found.value)
                self.result.copies += inspection.copies
                self.result.size += inspection.size
                judgement = classify_ledger(
                    found.value, inspection.by_bookie, inspection.disagreements, self.job.racks
                )
                if judgement.is_clean:
                    break
                before, found = found, await self.store.read_ledger(ledger, linearizable=True)
                if before.version == found.version:
                    break
        except NoSuchLedgerError:
            self.result.deleted += 1
            return None
        except MetadataError as error:
            if error.may_have_taken_effect:
                raise  # the store is unavailable: this says nothing about the ledger
            self.unread.append(MissingRange(ledger, "", -1, -1, 0, f"metadata: {error}"))
            return None
        return judgement


def _fill(
    result: Result, judgements: list[Judgement], unread: list[MissingRange], orphans: list[Orphaned]
) -> None:
    from bkbox.audit.tables import batch_of

    found: dict[str, list[Any]] = {name: [] for name in TABLES}
    for each in judgements:
        for fault, runs in each.runs.items():
            found[fault.value] += runs
        found["divergent"] += each.divergent
        found["under_replicated"] += each.under_replicated
        found["limbo"] += each.limbo
        found["no_copy"] += each.no_copy
        found["blocked"] += each.blocked
        found["ended"] += each.ended
        found["ledgers"].append(each.ledger)
        result.entries += each.ledger.entries or 0
    found["unknown"] += unread
    found["orphaned"] = orphans
    result.ledgers = len(judgements)
    result.tables = {name: batch_of(name, rows) for name, rows in found.items() if rows}
    result.racks = merged_racks(row for each in judgements for row in each.racks)
    result.owners = merged_owners(each.owner for each in judgements)


@functools.cache
def _facts_of(_uri: str) -> CollectedFacts:
    """The facts that this process has collected about a cluster's bookies, over all chunks."""
    return CollectedFacts(BookieTimeouts(time.monotonic))


def _pace(rate: int, monotonic_s: Callable[[], float]) -> Callable[[int], Any]:
    bucket = TokenBucket(rate or None)

    async def spend(size: int) -> None:
        bucket.spend(size, monotonic_s())
        while (wait_s := bucket.wait_s(monotonic_s())) > 0:
            await asyncio.sleep(min(wait_s, 0.5))

    return spend
