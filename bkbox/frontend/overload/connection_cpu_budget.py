"""The CPU budget for new connections: accept, TLS handshake, authentication and close.

While authenticated connections are active, new ones get 1/32 of the thread's CPU time. Unused budget accumulates up to
one second: a thousand handshakes, as when all clients reconnect after a restart. While no other connection is active
there is no limit. So a flood of connections delays other new connections, and hardly those that are established.

Pure: ``now_s`` is the clock, ``cpu_s`` this thread's CPU clock. Time during which another process had the processor is
therefore not charged.
"""

from __future__ import annotations

from collections.abc import Callable

SHARE = 1 / 32
SAVED_S = 1.0
_LEAST_S = 1e-6
"""Seconds; a smaller deficit is not throttled, as it is below the clocks' resolution."""


class ConnectionCpuBudget:
    """The budget. ``others_work``: returns True while established connections are active."""

    def __init__(
        self,
        now_s: Callable[[], float],
        cpu_s: Callable[[], float],
        others_work: Callable[[], bool],
    ) -> None:
        self._now_s = now_s
        self.cpu_s = cpu_s
        self._others_work = others_work
        self._left_s = SAVED_S
        self._at_s = now_s()

    def charge(self, began_cpu_s: float) -> None:
        """Charges the CPU time since ``began_cpu_s``, a value of ``cpu_s``."""
        if self._others_work():
            self._fill()
            self._left_s -= self.cpu_s() - began_cpu_s

    def throttle_s(self) -> float:
        """Seconds for which all new connections are throttled from now on; 0 if there is budget."""
        if not self._others_work():
            return 0.0
        self._fill()
        return 0.0 if self._left_s > -_LEAST_S else -self._left_s / SHARE

    def _fill(self) -> None:
        now_s = self._now_s()
        self._left_s = min(SAVED_S, self._left_s + (now_s - self._at_s) * SHARE)
        self._at_s = now_s
