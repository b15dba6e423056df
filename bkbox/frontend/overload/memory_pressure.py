"""Memory pressure: closes connections when more bytes are buffered for clients than the limit allows.

Reads of all clients are refused while it lasts (frontend/loop/connection.py). A few connections suffice to cause it,
with large frames that never end or responses that are never read. So no connection may keep it up. Stalled connections
with much buffered, without progress for a second, are closed, largest first, until a quarter of the limit is free
again. If the pressure persists, the largest connection is closed even if it makes progress. Time is counted in
event-loop ticks, between which the front-end has served all connections: its own stalls, during which no connection can
make progress, are not charged to clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

_LOOK_EVERY_S = 0.25
_STALLED_TICKS = 4
_FULL_LOOKS = 20
"""Ticks of pressure after which the largest connection is closed even if all make progress."""
_MUCH_BYTES = 256 * 1024


class Room(Protocol):
    """The shared buffer accounting, as in frontend/loop/connection.py."""

    held: int
    held_max: int

    def above_hard_limit(self) -> bool: ...


class MemoryHolder(Protocol):
    """A connection; see frontend/loop/connection.py."""

    number: int
    taken: int
    sent: int

    def holds(self) -> int: ...


_H = TypeVar("_H", bound=MemoryHolder)


class MemoryPressure(Generic[_H]):
    """Closes connections under memory pressure. ``connections``: returns all that are open; ``end``: closes one, with
    the reason."""

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
        """Seconds until ``tick`` must be called; None: no limit."""
        if not self._looks and not self._room.above_hard_limit():
            return None
        return max(0.0, self._next_s - self._now_s())

    def tick(self) -> None:
        """Checks what each connection has buffered, while there is pressure; forgets the marks once it is over."""
        if not self._room.above_hard_limit():
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
            if self._room.held > enough and still >= _STALLED_TICKS:
                self._end(
                    each,
                    f"it holds {bytes_held} bytes, of too many that are held, and does not move",
                )
        if holders and self._looks > _FULL_LOOKS and self._room.above_hard_limit():
            bytes_held, largest = holders[0]
            self._end(largest, f"it holds {bytes_held} bytes, the most of too many that are held")
