"""The unacknowledged entries that each position of an ensemble holds.

Bookies mostly store what they are sent in order. So a position is described by a watermark, up to which it holds all
of its entries (those whose write set it is in), and a set of entries beyond, which exists only after something came
out of order. A batch of entries costs the same as one, and acknowledged entries cost nothing: entries at or below the
LAC are never asked for.
"""

from __future__ import annotations

from bkbox.protocol.quorum import QuorumSizes


class UnackedPositions:
    """The state of one ensemble, which may change position by position; initially no position holds an entry."""

    __slots__ = ("_ack_quorum", "_beyond", "_size", "_upto", "_write_sets")

    def __init__(self, sizes: QuorumSizes) -> None:
        self._ack_quorum = sizes.ack_quorum
        self._size = sizes.ensemble_size
        self._write_sets = [sizes.write_set(entry) for entry in range(sizes.ensemble_size)]
        self._upto = [-1] * sizes.ensemble_size
        self._beyond: list[set[int]] = [set() for _ in range(sizes.ensemble_size)]

    def forget(self, position: int) -> None:
        """The position has another bookie now, which holds nothing."""
        self._upto[position] = -1
        self._beyond[position].clear()

    def add(self, position: int, first: int, last: int, lac: int) -> None:
        """The position holds all of its entries from ``first`` to ``last``."""
        upto = max(self._upto[position], lac)
        beyond = self._beyond[position]
        if last <= upto:
            return
        if first > self._following(position, upto):
            beyond.update(
                entry for entry in range(first, last + 1) if self._stripes(position, entry)
            )
            return
        upto = last
        if beyond:
            while (following := self._following(position, upto)) in beyond:
                upto = following
            beyond.difference_update([entry for entry in beyond if entry <= upto])
        self._upto[position] = upto

    def holds(self, position: int, entry: int) -> bool:
        """True if the position holds this entry, which is above the LAC and one of its own."""
        return entry <= self._upto[position] or entry in self._beyond[position]

    def acknowledged(self, lac: int, last: int) -> int:
        """The last entry, ``last`` at most, up to which every entry above ``lac`` is held by an ack quorum."""
        end = last
        striped = len(self._write_sets[0]) < self._size
        for stripe in range(self._size if striped else 1):
            marks = sorted(self._upto[position] for position in self._write_sets[stripe])
            missing = max(marks[-self._ack_quorum], lac) + 1
            if striped:
                missing += (stripe - missing) % self._size
            end = min(end, missing - 1)
        if any(self._beyond):
            while end < last and self._is_acknowledged(end + 1):
                end += 1
        return max(end, lac)

    def _is_acknowledged(self, entry: int) -> bool:
        write_set = self._write_sets[entry % self._size]
        return sum(self.holds(position, entry) for position in write_set) >= self._ack_quorum

    def _stripes(self, position: int, entry: int) -> bool:
        return position in self._write_sets[entry % self._size]

    def _following(self, position: int, entry: int) -> int:
        """The position's first entry after this one."""
        entry += 1
        while not self._stripes(position, entry):
            entry += 1
        return entry
