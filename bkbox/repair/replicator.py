"""Makes one ledger whole: every copy that its metadata promise is there, on bookies that are there.

One try, in this order:

1. read the metadata afresh; a ledger that was deleted needs nothing;
2. ask every member what it has (holdings.py): who is back and has its entries needs nothing, whatever the mark says;
3. copy what is missing, fragment by fragment, to members that lack it and to new bookies for those that are gone, and
   only then put the new ones into the metadata, by compare-and-set (protocol/rereplication.py);
4. a ledger without an end whose last ensemble names a bookie that is gone is left to its writer for a grace period, in
   which that replaces the bookie by itself; then it is recovered, which fences the writer and closes the ledger. Before
   that nothing of its last fragment is touched;
5. look again, from 1 on: the ledger is whole when there is nothing left to do, and those that were given
   something say so themselves.

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
from bkbox.jobs.work import Work
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.maintenance import resting
from bkbox.metadata.versioned import Versioned
from bkbox.protocol.audit import Findings, audit
from bkbox.protocol.rereplication import (
    FragmentRepair,
    must_be_recovered,
    repairs,
    with_replaced,
)
from bkbox.repair.holdings import Holdings
from bkbox.repair.transfer import FragmentCopier, Sources
from bkbox.repair.window import WINDOW_BYTES, ByteWindow
from bkbox.wire.ledger import LedgerMetadata

log = logging.getLogger(__name__)

_LOOKS_MAX = 8
"""So often a ledger is looked at in one try: others may change it meanwhile."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The bookies that a try works with. ``there``: those that are registered, and those that rest and will be back;
    ``drained``: their copies have to go elsewhere, though they may be there."""

    there: frozenset[BookieId]
    drained: frozenset[BookieId] = frozenset()


class Replicator:
    """``me``: the bookie beside which this runs, if any: what is near it is read first. ``holdings``: who says what the
    bookies have, where that is not to be asked as ever."""

    def __init__(
        self,
        store: MetadataStore,
        client: Client,
        me: BookieId | None,
        grace_s: float,
        wall_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        holdings: Holdings | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._me = me
        self._grace_s = grace_s
        self._wall_ms = wall_ms
        self._now_s = monotonic_s
        self._holdings = holdings or Holdings(client.pool)
        self._window = ByteWindow(WINDOW_BYTES)
        self._left_to_writer: dict[LedgerId, float] = {}

    async def make_whole(
        self,
        ledger: LedgerId,
        marked: Collection[str],
        work: Work,
        drained: frozenset[BookieId] = frozenset(),
    ) -> None:
        """Returns when the ledger is whole or was deleted. ``marked``: bookies that its mark names; one of them that is
        there has to say itself that it has everything.

        Raises NoSuchEntryError (nobody has a copy), NotEnoughBookiesError (nobody to copy to), LeftToWriterError
        (later), RecoveryAbortedError, UnknownEntryError, AddFailedError, MetadataError, JobCancelledError.
        """
        must_say = set(map(BookieId, marked))
        for _ in range(_LOOKS_MAX):
            await work.turn(metadata_calls=2)
            try:
                found = await self._store.read_ledger(ledger, latest=True)
            except NoSuchLedgerError:
                break
            rests = await resting(self._store.rests, self._wall_ms())
            cluster = Cluster(frozenset(await self._store.bookies()) | rests, drained)
            findings = await self._findings(found.value, cluster)
            wanted = repairs(found.value, findings.gone, findings.lacking)
            if wanted:
                must_say |= await self._carry_out(found, wanted, cluster, work)
                continue
            if must_be_recovered(found.value, findings.gone):
                await self._recover(ledger, work)
                continue
            unsure = findings.silent & must_say
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
        """It is nobody's business any more."""
        self._left_to_writer.pop(ledger, None)

    async def _findings(self, metadata: LedgerMetadata, cluster: Cluster) -> Findings:
        """A bookie that is drained counts as gone, whatever it has."""
        said = await self._holdings.ask(metadata, cluster.there - cluster.drained)
        return audit(metadata, said)

    async def _recover(self, ledger: LedgerId, work: Work) -> None:
        since_s = self._left_to_writer.setdefault(ledger, self._now_s())
        left_s = since_s + self._grace_s - self._now_s()
        if left_s > 0:
            raise LeftToWriterError(
                f"ledger {ledger} is left to its writer for {left_s:.0f} s", left_s
            )
        work.say(f"recovering ledger {ledger}, whose writer did not replace a bookie that is gone")
        log.info("ledger %d is recovered, as a bookie of its last ensemble is gone", ledger)
        await self._client.recover(ledger)

    async def _carry_out(
        self,
        found: Versioned[LedgerMetadata],
        wanted: list[FragmentRepair],
        cluster: Cluster,
        work: Work,
    ) -> set[BookieId]:
        """The bookies that were given something, once they are named."""
        metadata = found.value
        distances = await self._distances(metadata)
        given = Sources(self._client.pool, metadata, cluster.there, distances)
        failed: LedgerError | None = None
        given_to: set[BookieId] = set()
        for repair in wanted:
            work.say(f"copying ledger {metadata.ledger_id}, entries from {repair.first_entry} on")
            copier = FragmentCopier(self._client.pool, given, repair, work, self._window)
            try:
                new = await self._replacements(repair, metadata, cluster.drained)
                await copier.copy(new)
            except LedgerError as error:
                failed = failed or error  # the other fragments need not suffer for it
                continue
            if new:
                written = await self._write(found, repair, new)
                if written is None:
                    return given_to  # somebody changed the ledger: it is looked at anew
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
        """The bookies for the positions that are lost, for as many as there are; raises NotEnoughBookiesError where
        there is none and nothing else to do."""
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
        """Put the new bookies into the metadata; None if the ledger is not as it was."""
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
