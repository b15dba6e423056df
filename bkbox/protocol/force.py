"""Forcing: makes entries added with deferred sync durable, and so confirmed.

The response to such an add says that the bookie has the entry, not that it has synced it. A force that is answered
EOK says so for everything that the bookie had acknowledged before. LAC advances to what was acknowledged when the
force was sent, once

- every bookie of the ensemble has answered EOK, and
- each of them on the very connection on which it had answered its adds since the force before. Java's client does not
  require that. A bookie that lost its host between an add and the force has nothing to sync when it is back, and
  answers EOK for entries that it has lost. Only its different connection shows that it was away.

A force that misses either ends the writer: no later one could make up for it.

Source: ForceLedgerOp.java; FORCE_LEDGER in the wire protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.base.ids import NO_ENTRY, EntryId
from bkbox.protocol.adds import Adds
from bkbox.protocol.effects import Effect, Forced, SendForce, Target, Tokens
from bkbox.protocol.events import ForceAnswered, describe
from bkbox.wire.codes import Code


@dataclass(slots=True)
class _Round:
    """One force in flight: what it will have confirmed, and the bookies that still have to answer."""

    lac: EntryId
    length: int
    calls: int
    unanswered: dict[int, int]
    adds_answered_on: list[set[int]]


class Forcing:
    """``lac`` and ``length`` are those of the entries known to be on disk."""

    def __init__(self, tokens: Tokens) -> None:
        self.lac = NO_ENTRY
        self.length = 0
        self._tokens = tokens
        self._calls = 0
        self._done = 0
        self._round: _Round | None = None

    def call(self) -> None:
        """Request a force."""
        self._calls += 1

    def go_on(self, adds: Adds, *, closing: bool) -> list[Effect]:
        """Answer the calls that are finished, and begin the next round if one was requested.

        One round at a time; calls that come meanwhile share the next one.
        """
        effects: list[Effect] = [Forced(self.lac)] * self._done
        self._done = 0
        if self._round is not None:
            return effects
        calls, self._calls = self._calls, 0
        if adds.lac == self.lac:
            return [*effects, *[Forced(self.lac)] * calls]
        if calls or closing:
            effects.append(self._begin(adds, calls))
        return effects

    def _begin(self, adds: Adds, calls: int) -> SendForce:
        targets = tuple(Target(self._tokens.take(), bookie) for bookie in adds.ensemble)
        self._round = _Round(
            adds.lac,
            adds.length,
            calls,
            {target.token: position for position, target in enumerate(targets)},
            adds.answered_on,
        )
        adds.answered_on = [set() for _ in targets]
        return SendForce(targets)

    def answered(self, event: ForceAnswered, adds: Adds) -> str | None:
        """Count a response. Returns the reason, for messages, if the force has failed by it."""
        under_way = self._round
        if under_way is None or event.token not in under_way.unanswered:
            return None
        position = under_way.unanswered.pop(event.token)
        if event.answer is not Code.EOK:
            self._round = None
            return describe([(adds.ensemble[position], event.answer)])
        if not under_way.adds_answered_on[position] <= {event.connection}:
            self._round = None
            return (
                f"{adds.ensemble[position]} was disconnected since it answered adds: "
                f"it may have lost them"
            )
        if not under_way.unanswered:
            self.lac, self.length = under_way.lac, under_way.length
            self._done = under_way.calls
            self._round = None
        return None
