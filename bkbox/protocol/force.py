"""Forcing: makes entries added with deferred sync durable, and so confirmed.

The response to such an add means that the bookie has the entry, not that it has synced it. A force that gets
EOK confirms it for everything that the bookie had acknowledged before. LAC advances to what was acknowledged when the
force was sent, once

- every bookie of the ensemble has responded EOK, and
- each of them on the very connection on which it had acknowledged its adds since the force before. Java's client does
  not require that. A bookie that lost its host between an add and the force has nothing to sync when it is back, and
  responds EOK for entries that it has lost. Only its different connection shows that it was disconnected.

A force that misses either ends the writer: no later one could make up for it.

Source: ForceLedgerOp.java; FORCE_LEDGER in the wire protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.base.ids import NO_ENTRY, EntryId
from bkbox.protocol.adds import Adds
from bkbox.protocol.effects import Effect, Forced, SendForce, Target, Tokens
from bkbox.protocol.events import ForceCompleted, describe
from bkbox.wire.codes import Code


@dataclass(slots=True)
class _Round:
    """One force in flight: what it will have confirmed, and the bookies whose response is pending."""

    lac: EntryId
    length: int
    calls: int
    pending: dict[int, int]
    stored_connections: list[set[int]]


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
        """Complete the calls that are finished, and begin the next round if one was requested.

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
        targets = tuple(Target(self._tokens.next(), bookie) for bookie in adds.ensemble)
        self._round = _Round(
            adds.lac,
            adds.length,
            calls,
            {target.token: position for position, target in enumerate(targets)},
            adds.stored_connections,
        )
        adds.stored_connections = [set() for _ in targets]
        return SendForce(targets)

    def on_completed(self, event: ForceCompleted, adds: Adds) -> str | None:
        """Count a response. Returns the reason, for messages, if the force has failed by it."""
        current = self._round
        if current is None or event.token not in current.pending:
            return None
        position = current.pending.pop(event.token)
        if event.status is not Code.EOK:
            self._round = None
            return describe([(adds.ensemble[position], event.status)])
        if not current.stored_connections[position] <= {event.connection}:
            self._round = None
            return (
                f"{adds.ensemble[position]} was disconnected since it acknowledged adds: "
                f"it may have lost them"
            )
        if not current.pending:
            self.lac, self.length = current.lac, current.length
            self._done = current.calls
            self._round = None
        return None
