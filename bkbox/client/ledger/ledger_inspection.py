"""Asks every bookie of a ledger what it has, read-only: no fence, no write.

Each bookie is asked for its last entry, as a recovery does when it fences; for the LAC, which in the response of a
bkbox bookie comes with the ledger's state there; and for its list of entries. Then the entries from the LAC on are
read from their whole write sets, as a recovery reads them. So the deciding responses are real ones, and every copy is
checked by its digest. A bookie that gives no list is probed by reads at both ends of what it has to hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.client.connection.response_matcher import Reply
from bkbox.client.ledger.driver import LedgerAccess
from bkbox.errors import DigestError
from bkbox.protocol.diagnosis import Diagnosis, diagnose
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.protocol.inspection import Report, Reports, highest_entry, highest_lac, write_set_of
from bkbox.protocol.repair import expected_entries
from bkbox.wire import v3
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

READS_AT_ONCE = 64
"""Entries that are read at the same time."""

_TAIL_READS = 1_024
"""Entries of the tail that are read before their results are evaluated, at most."""

_UNLISTED_READS = 1_000
"""Entries that are read at each end from a bookie that does not list them."""


@dataclass(frozen=True, slots=True)
class LedgerInspection:
    """The findings about a ledger. ``metadata`` is older than all reports."""

    metadata: LedgerMetadata
    version: int
    reports: Reports

    @property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self.metadata, self.reports)

    def write_set(self, entry: int) -> tuple[BookieId, ...]:
        """The bookies of an entry's write set, each once."""
        return tuple(dict.fromkeys(write_set_of(self.metadata, entry)))


class LedgerInspector:
    """Asks the bookies of one ledger."""

    def __init__(self, access: LedgerAccess, metadata: LedgerMetadata, version: int) -> None:
        self._access = access
        self._metadata = metadata
        self._version = version
        self._slots = asyncio.Semaphore(READS_AT_ONCE)
        self._reads: dict[BookieId, dict[int, RequestStatus]] = {}
        self._reports: dict[BookieId, Report] = {}

    async def inspect(self, *, whole_tail: bool = False) -> LedgerInspection:
        """Inspect the ledger. ``whole_tail``: read on behind the end of a recovery, to the last entry that any bookie
        is known to have, and beyond while each next entry exists.
        """
        bookies = sorted(self._metadata.bookies())
        self._reads = {bookie: {} for bookie in bookies}
        inspected = await asyncio.gather(*map(self._ask, bookies))
        reports = self._reports = dict(zip(bookies, inspected, strict=True))
        await asyncio.gather(*(self._read_unlisted(report) for report in inspected))
        if self._metadata.state is not LedgerState.CLOSED:
            await self._read_tail(reports, whole=whole_tail)
        return LedgerInspection(self._metadata, self._version, reports)

    # ---- single entries -------------------------------------------------------------------------

    async def read(
        self, bookie: BookieId, entry: int, *, fence: bool = False
    ) -> tuple[RequestStatus, VerifiedEntry | None]:
        """Read an entry (-1: the last one) from one bookie and check it."""
        key = self._access.master_key if fence else None
        reply = await self._access.pool.read(bookie, self._access.ledger_id, entry, key)
        if reply.entry is None:
            # An EOK without an entry says nothing.
            status = reply.status
            return (NoResponse.NOT_UNDERSTOOD if status is Code.EOK else status), None
        try:
            expected_entry = None if entry == NO_ENTRY else entry
            return Code.EOK, self._access.digests.verify(reply.entry, expected_entry)
        except DigestError:
            return NoResponse.BAD_DIGEST, None

    async def read_unread(self, ranges: Iterable[range]) -> bool:
        """Read those of these entries that were not read yet from their whole write sets; True if there were any."""
        unread = [
            entry
            for entries in ranges
            for entry in entries
            if any(entry not in self._reads[b] for b in write_set_of(self._metadata, entry))
        ]
        for start in range(0, len(unread), _TAIL_READS):
            await self._read_everywhere(unread[start : start + _TAIL_READS])
        return bool(unread)

    async def _note(self, bookie: BookieId, entry: int) -> None:
        async with self._slots:
            status, found = await self.read(bookie, entry)
        self._reads[bookie][entry] = status
        if found is not None and found.lac > self._reports[bookie].lac:
            # The last entry says most, but if it cannot be read another one has to.
            self._reports[bookie] = replace(self._reports[bookie], lac=found.lac)

    async def _read_everywhere(self, entries: Iterable[int]) -> None:
        expected_entry = [
            (bookie, entry)
            for entry in entries
            for bookie in dict.fromkeys(write_set_of(self._metadata, entry))
            if entry not in self._reads[bookie]
        ]
        await asyncio.gather(*(self._note(bookie, entry) for bookie, entry in expected_entry))

    async def _read_tail(self, reports: Reports, *, whole: bool) -> None:
        """Read what a recovery would, as far as it would."""
        known_end = highest_entry(self._metadata, reports)
        cursor, ahead = max(highest_lac(self._metadata, reports), 0), 1
        while True:
            # The first entry that ends the recovery, or leaves it stuck, by the present responses.
            stop = diagnose(self._metadata, reports).found.stop
            if whole:
                stop = max(stop, known_end)
            if cursor > stop:
                return
            chunk = range(cursor, min(cursor + ahead, max(stop, known_end) + 1))
            await self._read_everywhere(chunk)
            cursor, ahead = chunk.stop, min(2 * ahead, _TAIL_READS)

    async def _read_unlisted(self, report: Report) -> None:
        if report.listed is not None or not isinstance(report.status, Code) or report.can_deny:
            return
        end = highest_entry(self._metadata, {report.bookie: report})
        # What the bookie has to hold if the ledger ends there; behind the settled fragments the last one goes on.
        closed = replace(self._metadata, state=LedgerState.CLOSED, last_entry=end)
        entries = [entry for run in expected_entries(closed, report.bookie, end) for entry in run]
        if len(entries) > 2 * _UNLISTED_READS:
            entries = entries[:_UNLISTED_READS] + entries[-_UNLISTED_READS:]
        await asyncio.gather(*(self._note(report.bookie, entry) for entry in entries))

    # ---- a bookie -------------------------------------------------------------------------------

    async def _ask(self, bookie: BookieId) -> Report:
        pool, ledger = self._access.pool, self._access.ledger_id
        lac_reply, listing, (status, last) = await asyncio.gather(
            pool.read_lac(bookie, ledger), pool.listing(bookie, ledger), self.read(bookie, -1)
        )
        lacs = [NO_ENTRY, *self._lacs(lac_reply)]
        fenced = limbo = None
        response = lac_reply.response
        if isinstance(response, v3.ReadLacResponse):
            fenced, limbo = response.fenced, response.limbo
        if limbo is None:
            limbo = _limbo(status, lac_reply.status, listing.status)
        lasts = [NO_ENTRY]
        if last is not None:
            lasts.append(last.entry_id)
            lacs.append(last.lac)
        if listing.available is not None:
            lasts += [EntryId(group.end - 1) for group in listing.available.groups]
        if limbo and status is Code.EIO:
            status = Code.EUNKNOWNLEDGERSTATE  # version 2 has no code for it
        return Report(
            bookie,
            status,
            fenced,
            limbo,
            listing.available,
            self._reads[bookie],
            EntryId(max(lacs)),
            EntryId(max(lasts)),
        )

    def _lacs(self, reply: Reply) -> Iterable[EntryId]:
        """The LACs that a valid digest proves in the response to a read of the LAC, whatever its code."""
        if not isinstance(reply.response, v3.ReadLacResponse):
            return
        digests = self._access.digests
        if reply.response.lac_body is not None:
            with suppress(DigestError):
                yield digests.verify_lac(reply.response.lac_body)
        if reply.response.last_entry is not None:
            with suppress(DigestError):
                yield digests.verify(reply.response.last_entry, None).lac


def _limbo(status: RequestStatus, *others: RequestStatus) -> bool | None:
    """True if the responses to a read of the last entry, and to others, show limbo on a bookie that does not report
    it: in limbo Java's bookie never gives its last entry. None: unknown.
    """
    if Code.EUNKNOWNLEDGERSTATE in (status, *others):
        return True
    return None if status.evidence is Evidence.UNKNOWN else False
