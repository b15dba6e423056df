"""Restores full replication of one ledger: every copy that its metadata promise exists, on bookies that are there.

One try, in this order:

1. read the metadata afresh; a ledger that was deleted needs nothing;
2. ask every member for its entries (entry_inventory.py): a member that is back and has its entries needs nothing,
   whatever the mark says;
3. copy what is missing, fragment by fragment, to members that lack it and to replacements for members that are gone;
   only then put the replacements into the metadata, by compare-and-set (protocol/rereplication.py);
4. an open ledger whose last ensemble names a bookie that is gone is left to its writer for a grace period, in which
   the writer replaces the bookie by itself; then the ledger is recovered, which fences the writer and closes it.
   Before that nothing of its last fragment is touched;
5. repeat from 1: the ledger is fully replicated when nothing is left to do, and the bookies that were given entries
   report them.

Source: ReplicationWorker.java, LedgerFragmentReplicator.java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bkbox.base.ids import BookieId, LedgerId
from bkbox.client.client import Client
from bkbox.errors import (
    LedgerError,
    LeftToWriterError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    UnknownEntryError,
    VersionConflictError,
)
from bkbox.jobs.context import JobContext
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.maintenance import in_maintenance
from bkbox.metadata.versioned import Versioned
from bkbox.protocol.audit import Findings, audit
from bkbox.protocol.rereplication import (
    FragmentRepair,
    must_be_recovered,
    repairs,
    with_replaced,
)
from bkbox.repair.copy.byte_semaphore import WINDOW_BYTES, ByteWindow
from bkbox.repair.copy.entry_source import EntrySource
from bkbox.repair.copy.fragment_copy import copy_fragment
from bkbox.repair.replication.entry_inventory import EntryInventory
from bkbox.wire.metadata.ledger import LedgerMetadata

log = logging.getLogger(__name__)

_ROUNDS_MAX = 8
"""Passes per try: other processes may change the ledger meanwhile."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The bookies that a try works with. ``there``: those that are registered, and those in a maintenance window,
    which will be back; ``drained``: bookies whose copies have to go elsewhere, though they may be there.
    """

    there: frozenset[BookieId]
    drained: frozenset[BookieId] = frozenset()


class LedgerReplicator:
    """``me``: the bookie beside which this runs, if any: bookies near it are read first. ``holdings``: the source of
    the bookies' entry lists, where it is not the default.
    """

    def __init__(
        self,
        store: MetadataStore,
        client: Client,
        me: BookieId | None,
        grace_s: float,
        wall_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        holdings: EntryInventory | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._me = me
        self._grace_s = grace_s
        self._wall_ms = wall_ms
        self._now_s = monotonic_s
        self._holdings = holdings or EntryInventory(client.pool)
        self._window = ByteWindow(WINDOW_BYTES)
        self._left_to_writer: dict[LedgerId, float] = {}

    async def make_whole(
        self,
        ledger: LedgerId,
        marked: Collection[str],
        work: JobContext,
        drained: frozenset[BookieId] = frozenset(),
    ) -> None:
        """Returns when the ledger is fully replicated or was deleted. ``marked``: bookies that its mark names; one of
        them that is there has to report itself that it has everything.

        Raises NoSuchEntryError (no bookie has a copy), NotEnoughBookiesError (no bookie to copy to),
        LeftToWriterError (later), RecoveryAbortedError, UnknownEntryError, AddFailedError, MetadataError,
        JobCancelledError.
        """
        must_report = set(map(BookieId, marked))
        for _ in range(_ROUNDS_MAX):
            await work.checkpoint(metadata_calls=2)
            try:
                found = await self._store.read_ledger(ledger, linearizable=True)
            except NoSuchLedgerError:
                break
            exempt = await in_maintenance(self._store.maintenance_windows, self._wall_ms())
            cluster = Cluster(frozenset(await self._store.bookies()) | exempt, drained)
            findings = await self._findings(found.value, cluster)
            needed = repairs(found.value, findings.gone, findings.lacking)
            if needed:
                must_report |= await self._replicate_all(found, needed, cluster, work)
                continue
            if must_be_recovered(found.value, findings.gone):
                await self._recover(ledger, work)
                continue
            unsure = findings.silent & must_report
            if unsure:
                raise UnknownEntryError(
                    f"ledger {ledger}: {', '.join(sorted(unsure))} is marked as having lost copies or was given some, "
                    f"is there, and does not say what it has"
                )
            break
        else:
            raise UnknownEntryError(f"ledger {ledger} changes all the time")
        self._left_to_writer.pop(ledger, None)

    def forget(self, ledger: LedgerId) -> None:
        """Drop the state kept for a ledger that needs no more work."""
        self._left_to_writer.pop(ledger, None)

    async def _findings(self, metadata: LedgerMetadata, cluster: Cluster) -> Findings:
        """The audit's findings. A bookie that is drained counts as gone, whatever it has."""
        reports = await self._holdings.ask(metadata, cluster.there - cluster.drained)
        return audit(metadata, reports)

    async def _recover(self, ledger: LedgerId, work: JobContext) -> None:
        since_s = self._left_to_writer.setdefault(ledger, self._now_s())
        left_s = since_s + self._grace_s - self._now_s()
        if left_s > 0:
            raise LeftToWriterError(
                f"ledger {ledger} is left to its writer for {left_s:.0f} s", left_s
            )
        work.set_step(
            f"recovering ledger {ledger}, whose writer did not replace a bookie that is gone"
        )
        log.info("ledger %d is recovered, as a bookie of its last ensemble is gone", ledger)
        await self._client.recover(ledger)

    async def _replicate_all(
        self,
        found: Versioned[LedgerMetadata],
        needed: list[FragmentRepair],
        cluster: Cluster,
        work: JobContext,
    ) -> set[BookieId]:
        """Carry out the findings; returns the bookies that were given entries, once the metadata names them."""
        metadata = found.value
        distances = await self._distances(metadata)
        source = EntrySource(self._client.pool, metadata, cluster.there, distances)
        failed: LedgerError | None = None
        given_to: set[BookieId] = set()
        for repair in needed:
            work.set_step(
                f"copying ledger {metadata.ledger_id}, entries from {repair.first_entry} on"
            )
            try:
                new = await self._replacements(repair, metadata, cluster.drained)
                await copy_fragment(source, repair, new, work, self._window)
            except LedgerError as error:
                failed = failed or error  # the other fragments are still copied
                continue
            if new:
                written = await self._write(found, repair, new)
                if written is None:
                    return given_to  # the ledger was changed meanwhile: start over
                found = written
            for bookie, parts in repair.refill.items():
                self._holdings.given(bookie, parts)
            given_to.update(repair.refill, new.values())
        if failed is not None:
            raise failed
        return given_to

    async def _replacements(
        self, repair: FragmentRepair, metadata: LedgerMetadata, drained: frozenset[BookieId]
    ) -> dict[int, BookieId]:
        """Replacements for the lost positions, for as many as there are; raises NotEnoughBookiesError where there is
        none and nothing else to do.
        """
        if not repair.lost:
            return {}
        lost = [repair.ensemble[position] for position in repair.lost]
        chosen = await self._client.placer.replacements(
            lost, repair.ensemble, metadata.write_quorum, drained
        )
        if not chosen and not repair.refill:
            raise NotEnoughBookiesError(
                f"ledger {metadata.ledger_id}: no writable bookie is there to take the place of {', '.join(lost)} "
                f"beside the others of its ensemble, {', '.join(repair.ensemble)}"
            )
        return dict(zip(repair.lost, chosen, strict=False))

    async def _write(
        self,
        found: Versioned[LedgerMetadata],
        repair: FragmentRepair,
        new: dict[int, BookieId],
    ) -> Versioned[LedgerMetadata] | None:
        """Put the replacements into the metadata; None if the ledger was changed meanwhile."""
        after = with_replaced(found.value, repair, new)
        if after is None:
            return None
        try:
            written = await self._store.write_ledger(after, found.version)
        except VersionConflictError:
            return None
        log.info(
            "ledger %d, entries from %d on: %s",
            after.ledger_id,
            repair.first_entry,
            ", ".join(f"{repair.ensemble[at]} is replaced by {name}" for at, name in new.items()),
        )
        return written

    async def _distances(self, metadata: LedgerMetadata) -> dict[BookieId, int]:
        if self._me is None:
            return {}
        return await self._client.placer.distances(self._me, metadata.bookies())
