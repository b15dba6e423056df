"""Adds in flight on one ensemble: shared by the writer and by the write-back of a recovery.

Invariants:

- an add is acknowledged when AQ positions of its write set hold it and every earlier add is acknowledged;
- an acknowledgement belongs to a position *of the present ensemble*: when its bookie is replaced, what it had stored
  of the outstanding adds counts for nothing, and they are sent to the replacement;
- responses to adds sent to a bookie before it was replaced, or before it came back, are ignored.

Entries are queued, sent and completed in batches; the entries that each position holds are kept as ranges as well
(unacked_positions.py).

A failed position gets no adds until it is replaced or its bookie is back; AQ of the others go on acknowledging.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from bkbox.base.ids import BookieId, EntryId
from bkbox.protocol.effects import Acked, AddTarget, SendAdds, Tokens
from bkbox.protocol.events import AddsCompleted, NoResponse, RequestStatus, describe
from bkbox.protocol.quorum import QuorumSizes
from bkbox.protocol.unacked_positions import UnackedPositions
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import Fragment


class _Run:
    """Consecutive entries that were queued together, from ``first`` to ``last``."""

    __slots__ = ("first", "lac", "last", "length", "payloads")

    def __init__(
        self, first: EntryId, lac: EntryId, length: int, payloads: Sequence[bytes]
    ) -> None:
        self.first = first
        self.last = EntryId(first + len(payloads) - 1)
        self.lac = lac
        self.length = length
        self.payloads = payloads

    def length_at(self, entry: int) -> int:
        """Payload bytes of the ledger up to this entry, itself included."""
        return self.length + sum(map(len, islice(self.payloads, entry - self.first + 1)))


class _Sent:
    """Entries of a batch in flight to one position, and the number of them that are pending."""

    __slots__ = ("entries", "pending", "position")

    def __init__(self, position: int, entries: Sequence[int]) -> None:
        self.position = position
        self.entries = entries
        self.pending = len(entries)


class Adds:
    """Outstanding adds with ids ``lac + 1``, ``lac + 2``, …; ``length`` is the ledger's length up to ``lac``."""

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
        self.failed: dict[int, RequestStatus] = {}
        self.stored_connections: list[set[int]] = [set() for _ in ensemble]
        """Per position, the connections on which adds were stored. A force needs them, and each of its rounds empties
        them. Kept with ``deferred_sync`` only.
        """
        self.lac = lac
        self._last = lac
        self._length = length
        """The ledger's length up to the LAC, or up to the first batch if the LAC lies within it."""
        self._sizes = sizes
        self._recovery = recovery
        self._deferred_sync = deferred_sync
        self._tokens = tokens
        self._write_sets = [sizes.write_set(entry) for entry in range(sizes.ensemble_size)]
        self._holdings = UnackedPositions(sizes)
        self._runs: deque[_Run] = deque()
        self._sent: dict[int, _Sent] = {}
        # Position -> the last token issued before its bookie joined: this one and lower ones are stale.
        self._stale = [0] * sizes.ensemble_size
        # Position -> the connection on which its bookie last stored an add.
        self._stored_on: dict[int, int] = {}

    def __len__(self) -> int:
        return self._last - self.lac

    @property
    def length(self) -> int:
        if self._runs and self._runs[0].first <= self.lac:
            return self._runs[0].length_at(self.lac)
        return self._length

    def send(
        self, first: EntryId, lac: EntryId, length: int, payloads: Sequence[bytes]
    ) -> list[SendAdds]:
        """Queue the next adds; ``length`` is the ledger's length before them. Nothing is sent to failed positions."""
        run = _Run(first, lac, length, payloads)
        self._runs.append(run)
        self._last = run.last
        entries = range(first, run.last + 1)
        if self._sizes.write_quorum == self._sizes.ensemble_size:
            return self._send_to(run, dict.fromkeys(self._from(first), entries))
        return self._send_to(
            run, {position: self._stripe(position, entries) for position in self._from(first)}
        )

    def on_completed(self, event: AddsCompleted) -> RequestStatus | None:
        """Count completed adds. Returns the status if it fails a position of the present ensemble, or reports a fence.

        A bookie that has stored adds, was disconnected, and now reports a fence may have fenced itself: a bookie that
        lost its host fences its open ledgers when it starts. That is a failure (CONNECTION_LOST) and no fence. It is
        safe: if a recovery has fenced this bookie, it has fenced enough of the others that no add is acknowledged.
        """
        sent = self._sent.get(event.token)
        if sent is None:
            return None
        sent.pending -= bisect_right(sent.entries, event.last) - bisect_left(
            sent.entries, event.first
        )
        if sent.pending <= 0:
            del self._sent[event.token]
        position = sent.position
        if event.token <= self._stale[position]:
            return None
        if event.status is Code.EOK:
            # Entries of the position between these two that were not sent with them are those that it held already.
            self._holdings.add(position, event.first, event.last, self.lac)
            self._stored_on[position] = event.connection
            if self._deferred_sync:
                self.stored_connections[position].add(event.connection)
            return None
        if position in self.failed and event.status is not Code.EFENCED:
            return None
        self.failed[position] = event.status
        if event.status is Code.EFENCED:
            before = self._stored_on.get(position, event.connection)
            if event.connection != before:
                return NoResponse.CONNECTION_LOST
        return event.status

    def advance(self) -> Acked | None:
        """Acknowledge, in order, every entry that has its ack quorum."""
        before = self.lac
        if before == self._last:
            return None
        lac = EntryId(self._holdings.acknowledged(before, self._last))
        if lac == before:
            return None
        self.lac = lac
        while self._runs and self._runs[0].last <= lac:
            run = self._runs.popleft()
            self._length = run.length_at(run.last)
        return Acked(EntryId(before + 1), lac)

    def replace(self, replacements: Mapping[int, BookieId]) -> list[SendAdds]:
        """Put other bookies into these positions and send them the outstanding adds."""
        for position, bookie in replacements.items():
            self.ensemble[position] = bookie
            self.failed.pop(position, None)
            self._joins(position)
            self._holdings.forget(position)
        return self._resend(replacements.keys())

    def bookie_back(self, bookie: BookieId) -> list[SendAdds]:
        """Use a failed bookie again and send it the outstanding adds; does nothing if it has not failed."""
        positions = {position for position in self.failed if self.ensemble[position] == bookie}
        for position in positions:
            del self.failed[position]
            self._joins(position)
        return self._resend(positions)

    def _joins(self, position: int) -> None:
        self._stale[position] = self._tokens.last
        self._stored_on.pop(position, None)

    def hopeless(self) -> EntryId | None:
        """The first outstanding entry that cannot reach its ack quorum without the failed positions."""
        if not self.failed or not any(map(self._is_short, self._write_sets)):
            return None
        for entry in range(self.lac + 1, self._last + 1):
            reachable = sum(
                position not in self.failed or self._holdings.holds(position, entry)
                for position in self._write_set(entry)
            )
            if reachable < self._sizes.ack_quorum:
                return EntryId(entry)
        return None

    def drop(self) -> None:
        """Forget all outstanding adds."""
        self._length = self.length
        self._runs.clear()
        self._last = self.lac
        self._sent.clear()

    def failures(self) -> str:
        """The failed bookies and their failures, for messages."""
        return describe(
            (self.ensemble[position], self.failed[position]) for position in sorted(self.failed)
        )

    def _is_short(self, write_set: tuple[int, ...]) -> bool:
        healthy = sum(position not in self.failed for position in write_set)
        return healthy < self._sizes.ack_quorum

    def _write_set(self, entry: int) -> tuple[int, ...]:
        return self._write_sets[entry % self._sizes.ensemble_size]

    def _from(self, entry: int) -> list[int]:
        """All positions, those of the entry's write set first and in its order."""
        size = self._sizes.ensemble_size
        return [(entry + step) % size for step in range(size)]

    def _stripe(self, position: int, entries: Iterable[int]) -> tuple[int, ...]:
        return tuple(entry for entry in entries if position in self._write_set(entry))

    def _resend(self, positions: Iterable[int]) -> list[SendAdds]:
        effects: list[SendAdds] = []
        positions = set(positions)
        for run in self._runs if positions else ():
            entries = range(max(run.first, self.lac + 1), run.last + 1)
            missing: dict[int, Sequence[int]] = {}
            for position in self._from(run.first):
                if position in positions:
                    lacks = tuple(
                        entry
                        for entry in self._stripe(position, entries)
                        if not self._holdings.holds(position, entry)
                    )
                    missing[position] = entries if len(lacks) == len(entries) else lacks
            effects += self._send_to(run, missing)
        return effects

    def _send_to(self, run: _Run, missing: Mapping[int, Sequence[int]]) -> list[SendAdds]:
        targets = []
        for position, entries in missing.items():
            if entries and position not in self.failed:
                token = self._tokens.next()
                self._sent[token] = _Sent(position, entries)
                targets.append(AddTarget(token, self.ensemble[position], entries))
        if not targets:
            return []
        return [
            SendAdds(
                run.first,
                run.lac,
                run.length,
                run.payloads,
                self._recovery,
                tuple(targets),
                self._deferred_sync,
            )
        ]


def fragments_from(
    fragments: tuple[Fragment, ...], first_entry: EntryId, ensemble: tuple[BookieId, ...]
) -> tuple[Fragment, ...]:
    """The fragments with this ensemble from ``first_entry`` on; it replaces the ensemble of a last fragment that
    starts there.
    """
    *before, last = fragments
    if last.first_entry == first_entry:
        return (*before, replace(last, ensemble=ensemble))
    return (*fragments, Fragment(first_entry, ensemble))
