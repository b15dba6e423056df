"""What happens when more is held for clients than there may be: those who hold most of it and do not move have to go.

Reads of everybody are refused as long as it is so (kernel/stream.py). Few connections are enough to bring it about,
with large frames that do not end or answers that nobody takes; so nobody may keep it up. Whoever holds much and has not
moved for a second goes, the largest first, until a quarter is free again; and if that is not enough, the largest goes
all the same. Seconds are counted in looks, between which the front-end has served everybody: while it is held up itself
nobody can move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

_LOOK_EVERY_S = 0.25
_STILL_LOOKS = 4
_FULL_LOOKS = 20
"""So long it may go on while all of them move."""
_MUCH_BYTES = 256 * 1024


class Room(Protocol):
    """Of kernel/stream.py."""

    held: int
    held_max: int

    def is_full(self) -> bool: ...


class Holder(Protocol):
    """A connection; see kernel/stream.py."""

    number: int
    taken: int
    sent: int

    def holds(self) -> int: ...


_H = TypeVar("_H", bound=Holder)


class Shedding(Generic[_H]):
    """``connections``: all there are; ``end`` closes one, with what is to be said of it."""

    def __init__(
        self,
        room: Room,
        connections: Callable[[], Iterable[_H]],
        end: Callable[[_H, str], None],
        now_s: Callable[[], float],
    ) -> None:
        self._room = room
        self._connections = connections
        self._end = end
        self._now_s = now_s
        self._next_s = 0.0
        self._looks = 0
        self._marks: dict[int, tuple[int, int, int]] = {}

    def wait_s(self) -> float | None:
        """How long until ``tick`` has to be called; None: for ever."""
        if not self._looks and not self._room.is_full():
            return None
        return max(0.0, self._next_s - self._now_s())

    def tick(self) -> None:
        """Look at who holds what, if it is full, or was a moment ago."""
        if not self._room.is_full():
            self._looks = 0
            self._marks.clear()
            return
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _LOOK_EVERY_S
        self._looks += 1
        holders = [(each.holds(), each) for each in self._connections()]
        holders = [(bytes_held, each) for bytes_held, each in holders if bytes_held >= _MUCH_BYTES]
        holders.sort(key=lambda holder: holder[0], reverse=True)
        before, self._marks = self._marks, {}
        enough = self._room.held_max * 3 // 4
        for bytes_held, each in holders:
            taken, sent, still = before.get(each.number, (-1, -1, 0))
            still = still + 1 if (taken, sent) == (each.taken, each.sent) else 0
            self._marks[each.number] = each.taken, each.sent, still
            if self._room.held > enough and still >= _STILL_LOOKS:
                self._end(
                    each,
                    f"it holds {bytes_held} bytes, of too many that are held, and does not move",
                )
        if holders and self._looks > _FULL_LOOKS and self._room.is_full():
            bytes_held, largest = holders[0]
            self._end(largest, f"it holds {bytes_held} bytes, the most of too many that are held")
