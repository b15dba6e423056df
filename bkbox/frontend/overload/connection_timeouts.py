"""Connection time-outs: finds connections whose clients keep the bookie waiting for too long, a batch at a time.

No timer runs per request. About once a second each connection is polled; if it has made progress since the last poll,
its time starts again. A frame that has begun must be complete within its time-out, however slowly its bytes arrive. A
client with unsent responses must read some of them within its time-out. The front-end's own stalls are not charged to
clients: after a late tick one round is skipped, so that data which arrived meanwhile is read before any connection is
checked.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from bkbox.base.values import frozen_struct
from bkbox.frontend.loop.connection import IDLE, PARTIAL_FRAME, SERVER, UNSENT

POLL_INTERVAL_S = 1.0
_SLICE = 500
_SLICE_PAUSE_S = 0.01
"""Connections polled per tick, which takes a fraction of a millisecond."""


@frozen_struct
class TimeoutSettings:
    """Time-outs in seconds; 0 means none. ``frame_s`` also applies to a connection's first frame."""

    frame_s: float = 0.0
    unsent_s: float = 0.0
    idle_s: float = 0.0


def enable_keepalive(listener: socket.socket) -> None:
    """Enables TCP keep-alive: the kernel probes each client that has been silent for a minute. Idle clients are not
    closed, so nothing else detects a client whose host has vanished. Accepted sockets inherit the options from the
    listener.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, number in (
        (socket.TCP_KEEPIDLE, 60),
        (socket.TCP_KEEPINTVL, 15),
        (socket.TCP_KEEPCNT, 4),
    ):
        listener.setsockopt(socket.IPPROTO_TCP, option, number)


class Watched(Protocol):
    """A connection. ``watched`` and ``watched_since`` belong to ConnectionTimeouts."""

    received: int
    sent: int
    watched: tuple[int, int]
    watched_since: float

    def blocked_on(self) -> int: ...


_W = TypeVar("_W", bound=Watched)


class ConnectionTimeouts(Generic[_W]):
    """Polls connections for time-outs. ``connections``: returns all that are open; ``end``: closes one, with the
    reason."""

    def __init__(
        self,
        connections: Callable[[], Iterable[_W]],
        end: Callable[[_W, str], None],
        now_s: Callable[[], float],
    ) -> None:
        self.timeouts = TimeoutSettings()
        self._connections = connections
        self._end = end
        self._now_s = now_s
        self._left: list[_W] = []
        self._next_s = 0.0
        self._was_stalled = False

    def wait_s(self) -> float:
        """Seconds until ``tick`` must be called."""
        return max(0.0, self._next_s - self._now_s())

    def tick(self) -> None:
        """Checks the next batch of connections, if it is due."""
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        is_stalled = now_s - self._next_s > POLL_INTERVAL_S
        if is_stalled and not self._was_stalled:
            self._was_stalled = True
            self._next_s = now_s
            return
        self._was_stalled = False
        if not self._left:
            self._left = list(self._connections())
        some, self._left = self._left[-_SLICE:], self._left[:-_SLICE]
        for connection in some:
            reason = self._overdue(connection, now_s)
            if reason is not None:
                self._end(connection, reason)
        self._next_s = now_s + (_SLICE_PAUSE_S if self._left else POLL_INTERVAL_S)

    def _overdue(self, connection: _W, now_s: float) -> str | None:
        blocked_on = connection.blocked_on()
        mark = blocked_on, connection.sent if blocked_on == UNSENT else connection.received
        if blocked_on == SERVER or mark != connection.watched:
            connection.watched, connection.watched_since = mark, now_s
            return None
        return self._verdict(blocked_on, connection.received, now_s - connection.watched_since)

    def _verdict(self, blocked_on: int, received: int, waited_s: float) -> str | None:
        timeouts = self.timeouts
        if blocked_on == UNSENT and 0 < timeouts.unsent_s < waited_s:
            return f"its client has read nothing of its responses for {waited_s:.0f} s"
        if blocked_on == PARTIAL_FRAME and 0 < timeouts.frame_s < waited_s:
            return f"a frame has begun and not ended for {waited_s:.0f} s"
        if blocked_on == IDLE and not received and 0 < timeouts.frame_s < waited_s:
            return f"it has sent no request for {waited_s:.0f} s"
        if blocked_on == IDLE and 0 < timeouts.idle_s < waited_s:
            return f"it was idle for {waited_s:.0f} s"
        return None
