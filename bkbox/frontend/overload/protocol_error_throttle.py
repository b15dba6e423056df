"""Throttles addresses that keep sending malformed requests: their next connections wait before they are served.

A connection that begins with garbage costs the front-end as much as dozens of adds, and is closed at once. Without a
delay its client could reconnect thousands of times a second. No connection is refused for it, since innocent clients
may share the address (a test, a proxy): they are delayed, too, but only when they connect, and for PAUSE_S.

Pure: ``now_s`` is the clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from bkbox.security.connection_limits import peer_of

PAUSE_S = 1.0
FREE_ERRORS = 10
"""Errors within WINDOW_S that cause no throttling."""
WINDOW_S = 10.0
_PEERS_MAX = 10_000

_T = TypeVar("_T")


class ProtocolErrorThrottle(Generic[_T]):
    """The errors per address, and the delayed connections, of type T, in the order in which they came."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._errors: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._delayed: deque[tuple[float, _T]] = deque()

    def __len__(self) -> int:
        return len(self._delayed)

    def record_error(self, host: str) -> None:
        """Counts an error: a connection from this address was closed for what it sent."""
        peer, now_s = peer_of(host), self._now_s()
        since_s, count = self._errors.pop(peer, (now_s, 0))
        if now_s - since_s > WINDOW_S:
            since_s, count = now_s, 0
        self._errors[peer] = since_s, count + 1
        if len(self._errors) > _PEERS_MAX:
            self._errors.popitem(last=False)

    def is_throttled(self, host: str) -> bool:
        """True if connections from this address are delayed."""
        if not self._errors:
            return False
        since_s, count = self._errors.get(peer_of(host), (0.0, 0))
        return count > FREE_ERRORS and self._now_s() - since_s <= WINDOW_S

    def delay(self, connection: _T) -> None:
        """Delays a connection by PAUSE_S."""
        self._delayed.append((self._now_s() + PAUSE_S, connection))

    def pop_expired(self) -> list[_T]:
        """Removes and returns the connections whose delay is over."""
        found = []
        while self._delayed and self._delayed[0][0] <= self._now_s():
            found.append(self._delayed.popleft()[1])
        return found

    def wait_s(self) -> float | None:
        """Seconds until the next delay is over; None: no connection is delayed."""
        return max(0.0, self._delayed[0][0] - self._now_s()) if self._delayed else None

    def clear(self) -> list[_T]:
        """Removes and returns all delayed connections."""
        found = [connection for _, connection in self._delayed]
        self._delayed.clear()
        return found
