"""The LAC as the bookies of the last ensemble know it: for tailing readers, and as the fence of a recovery.

Every bookie of the ensemble gets a request for its last entry, whose LAC field was acknowledged when the writer made
it. It is enough once the bookies not heard from could acknowledge nothing among themselves (``QuorumSizes.covered``).
'No entry' counts as heard too. An unknown status (limbo, no connection, time-out, bad digest) does not; Java counts a
bad digest as heard, which could hide an entry. The result is the highest LAC, and never less than the end of the
fragment before, since a fragment starts behind what was acknowledged.

The explicit LAC, which an idle writer stores on an ack quorum of its bookies, is found by the same rule: each
bookie's response holds the one it stored, and its last entry. Java's bookies in limbo respond 'no such entry' to that.
It makes the result older than need be, never wrong.

Source: ReadLastConfirmedOp.java, PendingReadLacOp.java, LedgerRecoveryOp.java, RoundRobinDistributionSchedule.java.
"""

from __future__ import annotations

from bkbox.base.ids import NO_ENTRY, EntryId
from bkbox.errors import BkboxError, RecoveryAbortedError, UnauthorizedError, UnknownEntryError
from bkbox.protocol.effects import Effect, Failed, LacFound, SendRead, SendReadLac, Tokens
from bkbox.protocol.events import LacCompleted, ReadCompleted, RequestStatus, describe
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata


class LacReader:
    """Asks for the LAC once. ``start``, then ``handle`` each event; ends with LacFound or Failed (UnknownEntryError
    or UnauthorizedError; RecoveryAbortedError with ``fence``).

    ``explicit``: ask for the explicit LAC too.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        *,
        fence: bool = False,
        explicit: bool = False,
        tokens: Tokens | None = None,
    ) -> None:
        self._metadata = metadata
        self._ensemble = metadata.last_fragment.ensemble
        self._sizes = QuorumSizes(
            metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
        )
        self._fence = fence
        self._explicit = explicit
        self._tokens = Tokens() if tokens is None else tokens
        self._positions: dict[int, int] = {}
        self._statuses: dict[int, RequestStatus] = {}
        self._lac = EntryId(metadata.last_fragment.first_entry - 1)
        self._last: VerifiedEntry | None = None
        self._done = False

    def start(self) -> list[Effect]:
        effects: list[Effect] = []
        for position, bookie in enumerate(self._ensemble):
            token = self._tokens.next()
            self._positions[token] = position
            if self._explicit:
                effects.append(SendReadLac(token, bookie))
            else:
                effects.append(SendRead(token, bookie, NO_ENTRY, self._fence))
        return effects

    def handle(self, event: ReadCompleted | LacCompleted) -> list[Effect]:
        position = self._positions.pop(event.token, None)
        if position is None or self._done:
            return []
        self._statuses[position] = event.status
        if isinstance(event, LacCompleted):
            self._lac = max(self._lac, event.lac if event.lac is not None else NO_ENTRY)
        elif event.entry is not None and event.entry.lac >= self._lac:
            self._lac = event.entry.lac
            self._last = event.entry
        if event.status is Code.EUA:
            self._done = True
            return [Failed(UnauthorizedError(self._explain("the password is not the ledger's")))]
        of = {position: status.evidence for position, status in self._statuses.items()}
        heard = {position for position in of if of[position] is not Evidence.UNKNOWN}
        if self._sizes.covered(heard):
            self._done = True
            return [LacFound(self._lac, self._last)]
        if self._sizes.contain_ack_quorum(of.keys() - heard):
            self._done = True
            return [Failed(self._stuck())]
        return []

    def _stuck(self) -> BkboxError:
        if self._fence:
            return RecoveryAbortedError(
                self._explain("recovery stopped while fencing, nothing was closed")
            )
        return UnknownEntryError(self._explain("the last add confirmed cannot be found out"))

    def _explain(self, what: str) -> str:
        statuses = describe(
            (bookie, self._statuses.get(position)) for position, bookie in enumerate(self._ensemble)
        )
        return f"ledger {self._metadata.ledger_id}: {what}: {statuses}"
