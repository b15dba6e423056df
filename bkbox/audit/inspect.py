"""Inspects one ledger: asks every bookie that its metadata name for its list of entries, and reads where necessary.

A bookie that returns no list (Java's DbLedgerStorage does not even respond) is read instead: every entry that it has to
hold, in batches. With ``read_all`` every copy of every entry is read. The digest of every copy read is checked, and
copies of the same entry are compared. For a ledger that is not closed, the bookies of its last ensemble are also asked
if the ledger is in limbo there: too many such bookies prevent its recovery.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bkbox.audit.bookie_timeouts import BookieTimeouts
from bkbox.audit.compare import CopyComparer
from bkbox.audit.copies import CopyReader, Read, why_of
from bkbox.audit.judgement import CopyEvidence, Disagreement, Fault, ranges_of
from bkbox.base.backoff import backoff_s
from bkbox.base.ids import BookieId
from bkbox.client.connection.pool import BookiePool, Listing
from bkbox.protocol.audit import clipped
from bkbox.protocol.events import NoResponse
from bkbox.protocol.repair import expected_entries, missing
from bkbox.repair.replication.entry_inventory import runs_of
from bkbox.wire import v3
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

WINDOW_ENTRIES = 1_024
WINDOW_BYTES = 2 << 20
"""Approximate bytes of one ledger read from each bookie before the copies are compared."""

_NOT_LISTED = "not in its list of entries"
_LIST_TRIES = 2
_LIST_PAUSE_S = 0.1


@dataclass(slots=True)
class InspectionResult:
    """The result of inspecting one ledger. ``copies`` were read, ``size`` bytes."""

    by_bookie: dict[BookieId, CopyEvidence] = field(default_factory=dict)
    disagreements: list[Disagreement] = field(default_factory=list)
    copies: int = 0
    size: int = 0


@dataclass(slots=True)
class CollectedFacts:
    """Facts about the bookies of a cluster that outlive one inspection: time-outs, and requests that they do not
    support."""

    timeouts: BookieTimeouts
    unlisting: set[BookieId] = field(default_factory=set)
    without_batches: set[BookieId] = field(default_factory=set)


class LedgerInspector:
    """Inspects ledgers of a cluster. ``registered``: the bookies registered now; ``spend``: waits until so many more
    bytes may have been read; ``read_all``: see the module."""

    def __init__(
        self,
        pool: BookiePool,
        registered: frozenset[BookieId],
        facts: CollectedFacts,
        spend: Callable[[int], Awaitable[None]],
        *,
        read_all: bool,
    ) -> None:
        self._pool = pool
        self._registered = registered
        self._facts = facts
        self._timeouts = facts.timeouts
        self._spend = spend
        self._read_all = read_all

    async def inspect(self, metadata: LedgerMetadata) -> InspectionResult:
        """Inspects one ledger. Raises nothing unless there is a defect."""
        found = InspectionResult()
        members = sorted(metadata.bookies())
        responses = await asyncio.gather(*(self._listed(bookie, metadata) for bookie in members))
        to_read: dict[BookieId, list[range]] = {}
        for bookie, (evidence, parts) in zip(members, responses, strict=True):
            found.by_bookie[bookie] = evidence
            if parts:
                to_read[bookie] = parts
        if to_read:
            await self._read_windows(metadata, to_read, found)
        return found

    # ---- lists ----------------------------------------------------------------------------------

    async def _listed(
        self, bookie: BookieId, metadata: LedgerMetadata
    ) -> tuple[CopyEvidence, list[range]]:
        """The evidence from a bookie's list, and the ranges that must be read from the bookie."""
        if bookie not in self._registered:
            return CopyEvidence(is_unregistered=True), []
        expected = list(expected_entries(metadata, bookie))
        is_open = metadata.state is not LedgerState.CLOSED
        if not expected and not (is_open and bookie in metadata.last_fragment.ensemble):
            return CopyEvidence(), []
        if why := self._timeouts.why_unresponsive(bookie):
            return CopyEvidence(why_unresponsive=why), []
        if bookie in self._facts.unlisting:
            limbo = is_open and await self._in_limbo(bookie, metadata.ledger_id)
            return CopyEvidence(in_limbo=limbo), expected
        listing = await self._list(bookie, metadata.ledger_id)
        if listing.available is not None:
            absent = list(missing(expected, runs_of(listing.available)))
            present = list(missing(expected, [(part.start, part.stop - 1) for part in absent]))
            if listing.status is Code.EUNKNOWNLEDGERSTATE:
                evidence = CopyEvidence(in_limbo=True, withheld=absent)
                return evidence, present if self._read_all else []
            faults = {(Fault.MISSING, _NOT_LISTED): absent} if absent else {}
            return CopyEvidence(faults=faults), present if self._read_all else []
        if listing.status.evidence is Evidence.NEGATIVE:
            faults = {(Fault.MISSING, why_of(listing.status)): expected} if expected else {}
            return CopyEvidence(faults=faults), []
        if listing.status is Code.EUNKNOWNLEDGERSTATE:
            return CopyEvidence(in_limbo=True, withheld=expected), []
        if listing.status in (
            Code.EBADREQ,
            Code.EIO,
            NoResponse.TIMEOUT,
            NoResponse.NOT_UNDERSTOOD,
        ):
            # Either its storage cannot list, or it is in trouble: reads tell which.
            limbo = is_open and await self._in_limbo(bookie, metadata.ledger_id)
            return CopyEvidence(
                in_limbo=limbo, gave_no_list=listing.status is not Code.EIO
            ), expected
        return CopyEvidence(why_unresponsive=why_of(listing.status)), []

    async def _in_limbo(self, bookie: BookieId, ledger: int) -> bool:
        """True if a bookie that returns no list reports the ledger as in limbo."""
        reply = await self._pool.read_lac(bookie, ledger)  # version 2 cannot express limbo
        in_limbo = isinstance(reply.response, v3.ReadLacResponse) and reply.response.limbo
        return bool(in_limbo) or reply.status is Code.EUNKNOWNLEDGERSTATE

    async def _list(self, bookie: BookieId, ledger: int) -> Listing:
        for tries in range(_LIST_TRIES):
            listing = await self._pool.listing(bookie, ledger)
            if isinstance(listing.status, Code):
                self._timeouts.record_response(bookie)
                break
            if listing.status is NoResponse.TIMEOUT:
                break  # as Java's DbLedgerStorage does
            self._timeouts.record_timeout(bookie, why_of(listing.status))
            await asyncio.sleep(backoff_s(tries, _LIST_PAUSE_S))
        return listing

    # ---- reads ----------------------------------------------------------------------------------

    async def _read_windows(
        self,
        metadata: LedgerMetadata,
        to_read: dict[BookieId, list[range]],
        found: InspectionResult,
    ) -> None:
        uniform = metadata.write_quorum == metadata.ensemble_size
        if metadata.digest_type is None or metadata.password is None:
            why = "the metadata have no digest type or no password: nothing can be checked"
            for bookie, unread in to_read.items():
                found.by_bookie[bookie].faults[Fault.UNKNOWN, why] = unread
            return
        digests = DigestManager(metadata.ledger_id, metadata.digest_type, metadata.password)
        reader = CopyReader(
            self._pool, digests, self._timeouts, self._facts.without_batches, uniform=uniform
        )
        reads: dict[BookieId, list[Read]] = {bookie: [] for bookie in to_read}
        comparer = CopyComparer(metadata)
        for window in _windows(metadata, to_read):
            parts = {bookie: _within(wanted, window) for bookie, wanted in to_read.items()}
            requests = {bookie: some for bookie, some in parts.items() if some}
            responses = await asyncio.gather(*(reader.read(*each) for each in requests.items()))
            for bookie, read in zip(requests, responses, strict=True):
                found.copies += len(read.good)
                found.size += read.size
                reads[bookie].append(read)
            comparer.add(
                {bookie: read.good for bookie, read in zip(requests, responses, strict=True)}
            )
            await self._spend(sum(read.size for read in responses))
            for read in responses:
                read.good = []
        found.disagreements = comparer.finish()
        for bookie, some in reads.items():
            self._conclude(bookie, to_read[bookie], some, found)

    def _conclude(
        self,
        bookie: BookieId,
        wanted: Sequence[range],
        reads: Sequence[Read],
        found: InspectionResult,
    ) -> None:
        """Merges the results of the reads into the evidence from the list."""
        evidence = found.by_bookie[bookie]
        if evidence.gave_no_list and any(read.good or _denials(read) for read in reads):
            self._facts.unlisting.add(bookie)
        if any(read.in_limbo for read in reads):
            evidence.in_limbo = True
        for read in reads:
            evidence.withheld += ranges_of(read.withheld)
            for key, parts in read.fault_ranges().items():
                evidence.faults.setdefault(key, []).extend(parts)
        unknown = {key: parts for key, parts in evidence.faults.items() if key[0] is Fault.UNKNOWN}
        count = sum(len(part) for parts in unknown.values() for part in parts)
        if len(unknown) == len(evidence.faults) and count == sum(map(len, wanted)):
            (_, why) = next(iter(unknown))
            found.by_bookie[bookie] = CopyEvidence(in_limbo=evidence.in_limbo, why_unresponsive=why)
        elif evidence.in_limbo:
            # An entry that the bookie denies may have been there: the bookie itself reports that it does not know.
            evidence.withheld += evidence.entries_of(Fault.MISSING)
            evidence.withheld.sort(key=lambda part: part.start)
            evidence.faults = {
                k: v for k, v in evidence.faults.items() if k[0] is not Fault.MISSING
            }


def _denials(read: Read) -> bool:
    return any(fault is Fault.MISSING for fault, _ in read.faults)


def _windows(metadata: LedgerMetadata, to_read: Mapping[BookieId, Sequence[range]]) -> list[range]:
    first = min(parts[0].start for parts in to_read.values())
    stop = max(parts[-1].stop for parts in to_read.values())
    entries = metadata.last_entry + 1
    average = metadata.length / entries if entries > 0 else WINDOW_BYTES / WINDOW_ENTRIES
    step = int(min(max(WINDOW_BYTES / max(average, 1.0), 1), WINDOW_ENTRIES))
    return [range(at, min(at + step, stop)) for at in range(first, stop, step)]


def _within(parts: Sequence[range], window: range) -> list[range]:
    """The parts of ascending ranges that lie in the window."""
    low = bisect_right(parts, window.start, key=lambda part: part.stop)
    high = bisect_left(parts, window.stop, key=lambda part: part.start)
    return clipped(parts[low:high], window)
