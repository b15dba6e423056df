"""Adds under way on one ensemble: shared by the writer and by the write-back of a recovery.

Invariants:
- an add is acknowledged when AQ positions of its write set hold it and every earlier add is
  acknowledged;
- an acknowledgement belongs to a position *of the present ensemble*: when its bookie is replaced,
  what it had stored of the adds still outstanding counts for nothing, and they are sent to the
  replacement;
- answers to what was sent to a bookie before it was replaced, or before it came back, are ignored.

A failed position gets no adds until it is replaced or its bookie is back; AQ of the others go on
acknowledging.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bkbox.ids import BookieId, EntryId
from bkbox.protocol.effects import Acked, SendAdd, Target, Tokens
from bkbox.protocol.events import AddAnswered, Answer, NoAnswer, describe
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.codes import Code
from bkbox.wire.ledger import Fragment


class _Add:
    """One outstanding add: the entry, and the positions that hold it."""

    __slots__ = ("entry_id", "holders", "lac", "length", "payload", "write_set")

    def __init__(
        self,
        entry_id: EntryId,
        lac: EntryId,
        length: int,
        payload: bytes,
        write_set: tuple[int, ...],
    ) -> None:
        self.entry_id = entry_id
        self.lac = lac
        self.length = length
        self.payload = payload
        self.write_set = write_set
        self.holders: set[int] = set()


class Adds:
    """Outstanding adds with ids ``lac + 1``, ``lac + 2``, …; ``length`` is that of the ledger up
    to ``lac``."""

    def __init__(
        self,
        sizes: QuorumSizes,
        ensemble: tuple[BookieId, ...],
        lac: EntryId,
        length: int,
        *,
        recovery: bool,
        tokens: Tokens,
        deferred_sync: bool = False,
    ) -> None:
        self.ensemble = list(ensemble)
        self.failed: dict[int, Answer] = {}
        self.answered_on: list[set[int]] = [set() for _ in ensemble]
        """Per position, the connections on which adds were stored: of interest to a force, whose
        round empties them. Kept with ``deferred_sync`` only."""
        self.lac = lac
        self.length = length
        self._sizes = sizes
        self._recovery = recovery
        self._deferred_sync = deferred_sync
        self._tokens = tokens
        self._write_sets = [sizes.write_set(entry) for entry in range(sizes.ensemble_size)]
        self._outstanding: dict[EntryId, _Add] = {}
        self._sent: dict[int, tuple[_Add, int]] = {}
        # Position -> the last token given out before its bookie joined: what is not above it is
        # stale.
        self._stale = [0] * sizes.ensemble_size
        # Position -> the connection on which its bookie stored something last.
        self._stored_on: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._outstanding)

    def send(self, entry_id: EntryId, lac: EntryId, length: int, payload: bytes) -> list[SendAdd]:
        """Take up the next add. Nothing is sent to positions that have failed."""
        add = _Add(
            entry_id, lac, length, payload, self._write_sets[entry_id % self._sizes.ensemble_size]
        )
        self._outstanding[entry_id] = add
        return self._send_to(add, add.write_set)

    def answered(self, event: AddAnswered) -> Answer | None:
        """Count an answer. Returns it if a position of the present ensemble fails by it, or says
        that it is fenced.

        A bookie that has stored adds, was disconnected, and says now that it is fenced may have
        done that itself: one that lost its host fences its open ledgers when it starts. That is a
        failure (CONNECTION_LOST) and no fence. It is safe: if a recovery has fenced it, then
        enough of the others that no add is acknowledged.
        """
        sent = self._sent.pop(event.token, None)
        if sent is None:
            return None
        add, position = sent
        if event.token <= self._stale[position]:
            return None
        if event.answer is Code.EOK:
            add.holders.add(position)
            self._stored_on[position] = event.connection
            if self._deferred_sync:
                self.answered_on[position].add(event.connection)
            return None
        if position in self.failed and event.answer is not Code.EFENCED:
            return None
        self.failed[position] = event.answer
        if event.answer is Code.EFENCED:
            before = self._stored_on.get(position, event.connection)
            if event.connection != before:
                return NoAnswer.CONNECTION_LOST
        return event.answer

    def advance(self) -> Acked | None:
        """Acknowledge, in order, what has its ack quorum."""
        first = EntryId(self.lac + 1)
        while add := self._outstanding.get(EntryId(self.lac + 1)):
            if len(add.holders) < self._sizes.ack_quorum:
                break
            del self._outstanding[add.entry_id]
            self.lac = add.entry_id
            self.length = add.length
        return Acked(first, self.lac) if self.lac >= first else None

    def replace(self, replacements: Mapping[int, BookieId]) -> list[SendAdd]:
        """Put other bookies into these positions and send them what is outstanding."""
        for position, bookie in replacements.items():
            self.ensemble[position] = bookie
            self.failed.pop(position, None)
            self._joins(position)
            for add in self._outstanding.values():
                add.holders.discard(position)
        return self._resend(frozenset(replacements))

    def bookie_back(self, bookie: BookieId) -> list[SendAdd]:
        """Trust a failed bookie again and send it what is outstanding; nothing if it has not
        failed."""
        positions = {position for position in self.failed if self.ensemble[position] == bookie}
        for position in positions:
            del self.failed[position]
            self._joins(position)
        return self._resend(positions)

    def _joins(self, position: int) -> None:
        self._stale[position] = self._tokens.last
        self._stored_on.pop(position, None)

    def hopeless(self) -> EntryId | None:
        """The first outstanding entry that cannot reach its ack quorum without the failed
        positions."""
        if not self.failed or not any(map(self._is_short, self._write_sets)):
            return None
        for add in self._outstanding.values():
            reachable = add.holders.union(add.write_set).difference(
                self.failed.keys() - add.holders
            )
            if len(reachable) < self._sizes.ack_quorum:
                return add.entry_id
        return None

    def drop(self) -> None:
        """Forget all outstanding adds."""
        self._outstanding.clear()
        self._sent.clear()

    def failures(self) -> str:
        """For people: which bookies failed with what."""
        return describe(
            (self.ensemble[position], self.failed[position]) for position in sorted(self.failed)
        )

    def _is_short(self, write_set: tuple[int, ...]) -> bool:
        healthy = sum(position not in self.failed for position in write_set)
        return healthy < self._sizes.ack_quorum

    def _resend(self, positions: set[int] | frozenset[int]) -> list[SendAdd]:
        effects: list[SendAdd] = []
        for add in self._outstanding.values():
            missing = tuple(p for p in add.write_set if p in positions and p not in add.holders)
            effects += self._send_to(add, missing)
        return effects

    def _send_to(self, add: _Add, positions: tuple[int, ...]) -> list[SendAdd]:
        targets = []
        for position in positions:
            if position not in self.failed:
                token = self._tokens.take()
                self._sent[token] = (add, position)
                targets.append(Target(token, self.ensemble[position]))
        if not targets:
            return []
        return [
            SendAdd(
                add.entry_id,
                add.lac,
                add.length,
                add.payload,
                self._recovery,
                tuple(targets),
                self._deferred_sync,
            )
        ]


def fragments_from(
    fragments: tuple[Fragment, ...], first_entry: EntryId, ensemble: tuple[BookieId, ...]
) -> tuple[Fragment, ...]:
    """Fragments with this ensemble from ``first_entry`` on; a last fragment that starts there gets
    it in place of its own."""
    *before, last = fragments
    if last.first_entry == first_entry:
        return (*before, replace(last, ensemble=ensemble))
    return (*fragments, Fragment(first_entry, ensemble))
