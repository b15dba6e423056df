"""Executes a plan of repair, ledger by ledger, with the code of autorecovery
(bkbox/repair/replication/ledger_replicator.py).

That code asks each bookie what it has and copies what is missing until nothing is. Here ``PlannedHoldings`` reports for
the bookies of the plan by reading the planned entries again. An entry that is present and right needs nothing. Any
other entry is copied from a copy that passes the digest, and counts as done only when it is read back. Bookies that are
gone are replaced in the metadata by compare-and-set, after the copies are made. Each ledger is first locked in the
cluster's tree of under-replicated ledgers, so that no other worker repairs it; its mark stays there if the repair is
interrupted.

A copy that a bookie has accepted but does not return on reads is neither right nor wrong: the ledger ends as *not shown
yet*. Java's SortedLedgerStorage reads its index first and consults its memtable, where new entries are, only for
entries that the index does not have; of two copies in the memtable it keeps the first. Only a flush ends that. It comes
when the memtable holds 64 MiB or the bookie is stopped, so waiting for it is no option. Java's DbLedgerStorage returns
a new copy, but may return the old one again, as it reads ahead in its log. The way out that always works is to move the
copies to another bookie (``Action.MOVE``). Source: SortedLedgerStorage.java, EntryMemTable.java,
SingleDirectoryDbLedgerStorage.java.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from bkbox import metadata as stores
from bkbox.audit.bookie_timeouts import BookieTimeouts
from bkbox.audit.compare import copy_of
from bkbox.audit.copies import CopyReader
from bkbox.audit.judgement import Fault, ranges_of
from bkbox.audit.plan import BY_PERSONS, Action, Step
from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import counted
from bkbox.client.client import Client
from bkbox.client.connection.pool import BookiePool
from bkbox.client.options import ClientOptions
from bkbox.errors import BkboxError, LeftToWriterError, MetadataError, NoSuchLedgerError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.underreplication import Task
from bkbox.protocol.audit import BookieReport, NoReport, clipped
from bkbox.protocol.repair import expected_entries, missing
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.repair.job_run import JobRun
from bkbox.repair.rate_limits import RateLimits
from bkbox.repair.replication.entry_inventory import EntryInventory
from bkbox.repair.replication.ledger_replicator import LedgerReplicator
from bkbox.repair.replication.standalone import METADATA_CALLS_PER_SECOND, host_name, wall_ms
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

CHUNK_LEDGERS = 32
_LEDGERS_AT_ONCE = 8
_GRACE_S = 30.0


class Outcome(NamedTuple):
    """The outcome of one ledger. ``done``: it has what the plan asks for; otherwise ``why`` not. ``unshown``: copies
    that a bookie has accepted and does not return yet; if there are some, nothing else is wrong.
    """

    ledger_id: int
    done: bool
    copies: int
    size: int
    why: str
    unshown: int = 0


class PlannedHoldings(EntryInventory):
    """Inventory of the bookies for the steps of one ledger; other members are asked as autorecovery asks them. A bookie
    that is gone counts as gone only if the plan replaces it."""

    def __init__(self, pool: BookiePool, steps: Sequence[Step]) -> None:
        super().__init__(pool)
        self._pool_of_reads = pool
        self._steps = steps
        self._given: dict[BookieId, set[int]] = {}
        self.unshown: dict[BookieId, int] = {}
        """Copies, by bookie, that it has accepted and did not return when it was asked last."""

    def given(self, bookie: BookieId, entries: Iterable[range]) -> None:
        self._given.setdefault(bookie, set()).update(*entries)

    async def ask(
        self, metadata: LedgerMetadata, registered: Collection[BookieId]
    ) -> dict[BookieId, BookieReport]:
        replaced = _bookies(self._steps, Action.REPLACE, Action.MOVE)
        reports = await super().ask(metadata, registered)
        for bookie, report in reports.items():
            if report is NoReport.UNREGISTERED and bookie not in replaced:
                reports[bookie] = NoReport.SILENT
        for bookie, steps in _by_bookie(self._steps).items():
            if bookie in reports and bookie in registered:
                reports[bookie] = await self._planned(metadata, bookie, steps)
        return reports

    async def _planned(
        self, metadata: LedgerMetadata, bookie: BookieId, steps: Sequence[Step]
    ) -> BookieReport:
        """The entries that the bookie has to hold, except planned ones that are absent or wrong there. Copies given
        to it during this run count as present even if it does not return them."""
        if metadata.digest_type is None or metadata.password is None:
            return NoReport.SILENT
        digests = DigestManager(metadata.ledger_id, metadata.digest_type, metadata.password)
        uniform = metadata.ensemble_size == metadata.write_quorum
        timeouts = BookieTimeouts(time.monotonic)
        reader = CopyReader(self._pool_of_reads, digests, timeouts, set(), uniform=uniform)
        expected = list(expected_entries(metadata, bookie))
        bad: set[int] = set()
        for step in steps:
            readable = clipped(expected, range(step.first_entry, step.last_entry + 1))
            read = await reader.read(bookie, readable)
            for (fault, _), entries in read.faults.items():
                if fault is Fault.UNKNOWN:
                    return NoReport.SILENT
                bad.update(entries)
            if read.in_limbo:
                return NoReport.SILENT
            if step.sha256:
                bad.update(e.entry_id for e in read.good if not step.means(copy_of(e)))
        unshown = bad & self._given.get(bookie, set())
        self.unshown[bookie] = len(unshown)
        absent = [(part.start, part.stop - 1) for part in ranges_of(sorted(bad - unshown))]
        return [(part.start, part.stop - 1) for part in missing(expected, absent)]


def _bookies(steps: Iterable[Step], *actions: Action) -> frozenset[BookieId]:
    return frozenset(BookieId(each.bookie) for each in steps if each.action in actions)


def _by_bookie(steps: Iterable[Step]) -> dict[BookieId, list[Step]]:
    found: dict[BookieId, list[Step]] = {}
    for step in steps:
        if step.action in (Action.COPY, Action.OVERWRITE):
            found.setdefault(BookieId(step.bookie), []).append(step)
    return found


def chunks_of(steps: Iterable[Step]) -> list[list[Step]]:
    """The steps that a command can execute, some ledgers to a chunk; all steps of a ledger are in one chunk."""
    able = sorted(
        (step for step in steps if step.action not in BY_PERSONS), key=lambda step: step.ledger_id
    )
    ledgers = [list(some) for _, some in groupby(able, key=lambda step: step.ledger_id)]
    return [
        [step for some in ledgers[at : at + CHUNK_LEDGERS] for step in some]
        for at in range(0, len(ledgers), CHUNK_LEDGERS)
    ]


@dataclass(frozen=True)
class RepairJob:
    """Executes the steps of a chunk. ``rate``: bytes a second between bookies for one chunk, 0 for no rate limit;
    ``client``: fields of ClientOptions."""

    uri: str
    rate: int = 0
    grace_s: float = _GRACE_S
    client: Mapping[str, Any] = field(default_factory=dict)

    async def run(self, chunk: Sequence[Step]) -> list[Outcome]:
        """One outcome for each ledger. Raises MetadataUnavailableError."""
        rng = random.Random()  # noqa: S311 placement and jitter
        options = ClientOptions(**self.client)
        pacer = RateLimits(0, self.rate, METADATA_CALLS_PER_SECOND)
        gate = asyncio.Lock()
        async with await stores.connect(self.uri) as store, Client(store, options, rng) as client:

            async def one(steps: list[Step]) -> Outcome:
                work = JobRun(os.getpid(), pacer, gate, time.monotonic)
                holdings = PlannedHoldings(client.pool, steps)
                why = await self._ledger(store, client, steps, holdings, work)
                unshown = (
                    {} if why else {name: each for name, each in holdings.unshown.items() if each}
                )
                if unshown:
                    why = _not_shown(unshown)
                done = work.report()["done"]
                ledger, count = steps[0].ledger_id, sum(unshown.values())
                return Outcome(ledger, not why, done["entries"], done["bytes"], why, count)

            ledgers = [list(some) for _, some in groupby(chunk, key=lambda step: step.ledger_id)]
            return await bounded_gather(ledgers, one, _LEDGERS_AT_ONCE)

    async def _ledger(
        self,
        store: MetadataStore,
        client: Client,
        steps: list[Step],
        holdings: PlannedHoldings,
        work: JobRun,
    ) -> str:
        """The reason why the ledger is not done; empty if it is, as far as bookies return what was written."""
        ledger = LedgerId(steps[0].ledger_id)
        bookies = sorted({step.bookie for step in steps})
        moved = _bookies(steps, Action.MOVE)
        tree = store.under_replication
        try:
            metadata = (await store.read_ledger(ledger)).value
            if moved and metadata.state is not LedgerState.CLOSED:
                return "only what is closed is moved: it would be taken from its writer"
            task = await tree.claim(ledger, bookies, wall_ms(), host_name())
        except NoSuchLedgerError:
            return ""  # it was deleted: its copies are not needed
        if task is None:
            return "another worker is at it: run the plan again later"
        replicator = LedgerReplicator(
            store, client, None, self.grace_s, wall_ms, time.monotonic, holdings
        )
        try:
            await self._make_whole(replicator, task, bookies, work, moved)
            await tree.finish(task)
        except MetadataError as error:
            if error.may_have_taken_effect:
                raise
            return str(error)
        except BkboxError as error:
            return str(error)
        finally:
            with suppress(MetadataError):  # the lock ends with the session in that case
                await tree.release(task)
        return ""

    async def _make_whole(
        self,
        replicator: LedgerReplicator,
        task: Task,
        bookies: Sequence[str],
        work: JobRun,
        moved: frozenset[BookieId],
    ) -> None:
        try:
            await replicator.make_whole(task.ledger, bookies, work, moved)
        except LeftToWriterError as error:
            await asyncio.sleep(error.wait_s)
            await replicator.make_whole(task.ledger, bookies, work, moved)


def _not_shown(unshown: Mapping[BookieId, int]) -> str:
    counts = ", ".join(
        f"{counted(count, 'copy')} by {bookie}" for bookie, count in sorted(unshown.items())
    )
    return (
        f"written, and not shown: {counts}. Apache's bookies may go on giving what they had before: give the plan "
        f"again when they have flushed, or were started again, or make its rows of the ledger a `move`"
    )
