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

_TICK_S = 0.25
_STALLED_TICKS = 4
_FULL_TICKS = 20
"""Ticks of pressure after which the largest connection is closed even if all make progress."""
_MUCH_BYTES = 256 * 1024


class BufferAccounting(Protocol):
    """The shared buffer accounting, as in frontend/loop/connection.py."""

    buffered: int
    buffered_max: int

    def above_hard_limit(self) -> bool: ...


class MemoryHolder(Protocol):
    """A connection; see frontend/loop/connection.py."""

    number: int
    received: int
    sent: int

    def buffered_bytes(self) -> int: ...


_H = TypeVar("_H", bound=MemoryHolder)


class MemoryPressure(Generic[_H]):
    """Closes connections under memory pressure. ``connections``: returns all that are open; ``end``: closes one, with
    the reason."""

    def __init__(
        self,
        accounting: BufferAccounting,
        connections: Callable[[], Iterable[_H]],
        end: Callable[[_H, str], None],
        now_s: Callable[[], float],
    ) -> None:
        self._accounting = accounting
        self._connections = connections
        self._end = end
        self._now_s = now_s
        self._next_s = 0.0
        self._ticks = 0
        self._marks: dict[int, tuple[int, int, int]] = {}

    def wait_s(self) -> float | None:
        """Seconds until ``tick`` must be called; None: no limit."""
        if not self._ticks and not self._accounting.above_hard_limit():
            return None
        return max(0.0, self._next_s - self._now_s())

    def tick(self) -> None:
        """Checks what each connection has buffered, while there is pressure; forgets the marks once it is over."""
        if not self._accounting.above_hard_limit():
            self._ticks = 0
            self._marks.clear()
            return
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _TICK_S
        self._ticks += 1
        holders = [(each.buffered_bytes(), each) for each in self._connections()]
        holders = [(size, each) for size, each in holders if size >= _MUCH_BYTES]
        holders.sort(key=lambda holder: holder[0], reverse=True)
        before, self._marks = self._marks, {}
        enough = self._accounting.buffered_max * 3 // 4
        for size, each in holders:
            received, sent, still = before.get(each.number, (-1, -1, 0))
            still = still + 1 if (received, sent) == (each.received, each.sent) else 0
            self._marks[each.number] = each.received, each.sent, still
            if self._accounting.buffered > enough and still >= _STALLED_TICKS:
                self._end(
                    each,
                    f"{size} bytes are buffered for it, over the limit of all together, and it makes no progress",
                )
        if holders and self._ticks > _FULL_TICKS and self._accounting.above_hard_limit():
            size, largest = holders[0]
            self._end(
                largest,
                f"{size} bytes are buffered for it, the most of all, over the limit of all together",
            )
