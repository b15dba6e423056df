"""What those who come may take of the front-end's time: to be taken, TLS handshakes, proofs, and to be closed again.

Beside others who work they have a thirty-second of it, and what is saved, which is a second's worth: a thousand
handshakes, as when all clients come back after a start. Where nobody else works they may have all. So whoever floods
the door holds up others who come, and hardly those inside.

Pure: ``now_s`` is the clock, and ``cpu_s`` that of this thread's processor time: that somebody else had the processor
is nobody's fault here.
"""

from __future__ import annotations

from collections.abc import Callable

SHARE = 1 / 32
SAVED_S = 1.0
_LEAST_S = 1e-6
"""Less is not worth a rest: clocks do not count so far."""


class Newcomers:
    """``others_work`` tells whether there is anybody to be held up."""

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

    def served_since(self, began_cpu_s: float) -> None:
        """One of them was served from then until now, by ``cpu_s``."""
        if self._others_work():
            self._fill()
            self._left_s -= self.cpu_s() - began_cpu_s

    def rest_s(self) -> float:
        """How long all of them have to wait now."""
        if not self._others_work():
            return 0.0
        self._fill()
        return 0.0 if self._left_s > -_LEAST_S else -self._left_s / SHARE

    def _fill(self) -> None:
        now_s = self._now_s()
        self._left_s = min(SAVED_S, self._left_s + (now_s - self._at_s) * SHARE)
        self._at_s = now_s
