"""Waits for one entry of an open ledger to be confirmed, without polling repeatedly.

A bookie holds the request until its LAC reaches the entry, or the time is up, and then responds with its LAC, and
with the entry if it has it. Rules:

- one bookie of the ensemble is asked to wait, the first in the write set of the entry after this one: that entry
  brings it the LAC, and it has this entry, unless the write quorum is 1. The next in order is asked to wait too when
  one fails, or when the driver speculates, for a bookie may be behind;
- a LAC that reaches the entry ends the poll, with the entry if it came along;
- a bookie whose time was up without that does not decide alone: the others are asked too, to respond at once, until
  it is known that nothing was confirmed (``QuorumSizes.covered``). 'No such entry' is such a response, of a ledger
  without entries; 'no such ledger' counts as well, but comes at once, so that the next one is asked to wait;
- if the bookies run out before, the poll ends with the LAC heard of, or fails if no bookie responded.

A LAC here is a bookie's claim and not covered by a digest; entries are. Source: ReadLastConfirmedAndEntryOp.java.
"""

from __future__ import annotations

from bkbox.base.ids import EntryId
from bkbox.errors import UnknownEntryError
from bkbox.protocol.effects import Effect, Failed, Polled, SendPoll, Tokens
from bkbox.protocol.events import PollCompleted, RequestStatus, SpeculativeRead, describe
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.metadata.ledger import LedgerMetadata


class LongPoll:
    """Polls for one entry once. ``start``, then ``handle`` each event; ends with Polled or Failed
    (UnknownEntryError).
    """

    def __init__(self, metadata: LedgerMetadata, entry: EntryId) -> None:
        self._ledger_id = metadata.ledger_id
        self._entry = entry
        self._sizes = QuorumSizes(
            metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
        )
        ensemble = metadata.last_fragment.ensemble
        first = (entry + 1) % metadata.ensemble_size
        order = (*range(first, len(ensemble)), *range(first))
        self._left = [(position, ensemble[position]) for position in order]
        self._ensemble = ensemble
        self._tokens = Tokens()
        self._positions: dict[int, int] = {}
        self._statuses: dict[int, RequestStatus] = {}
        self._lac = EntryId(metadata.last_fragment.first_entry - 1)
        self._time_is_up = False
        self._done = False

    def start(self) -> list[Effect]:
        return self._ask_next()

    def handle(self, event: PollCompleted | SpeculativeRead) -> list[Effect]:
        if self._done:
            return []
        if isinstance(event, SpeculativeRead):
            return self._ask_next() if not self._time_is_up else []
        position = self._positions.pop(event.token, None)
        if position is None:
            return []
        self._statuses[position] = event.status
        if event.lac is not None:
            self._lac = max(self._lac, event.lac)
            if event.lac >= self._entry:
                return self._end(Polled(self._lac, event.entry))
        if event.status in (Code.EOK, Code.ENOENTRY):
            self._time_is_up = True
        return self._go_on()

    def _go_on(self) -> list[Effect]:
        heard = {p for p, a in self._statuses.items() if a.evidence is not Evidence.UNKNOWN}
        if self._sizes.covered(heard):
            return self._end(Polled(self._lac, None))
        if self._left:
            asks = self._ask_next()
            while self._time_is_up and self._left:
                asks += self._ask_next()
            return asks
        if self._positions:
            return []
        if heard:
            return self._end(Polled(self._lac, None))
        return self._end(Failed(UnknownEntryError(self._explain())))

    def _ask_next(self) -> list[Effect]:
        if not self._left:
            return []
        position, bookie = self._left.pop(0)
        token = self._tokens.next()
        self._positions[token] = position
        return [SendPoll(token, bookie, EntryId(self._entry - 1), wait=not self._time_is_up)]

    def _end(self, outcome: Polled | Failed) -> list[Effect]:
        self._done = True
        return [outcome]

    def _explain(self) -> str:
        statuses = describe(
            (bookie, self._statuses.get(position)) for position, bookie in enumerate(self._ensemble)
        )
        return (
            f"ledger {self._ledger_id}: no bookie can say whether entry {self._entry} is confirmed: "
            f"{statuses}"
        )
