"""Circuit breaker per bookie: an audit of many ledgers must not wait for an unresponsive bookie at each of them.

After ``UNRESPONSIVE_AFTER`` requests in a row without a response the bookie is *mute*: for ``RETRY_AFTER_S`` seconds no
request is sent to it, and every copy that it may have is unknown. Then one request is tried. Any response, even a
refusal, closes the circuit again.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.ids import BookieId

UNRESPONSIVE_AFTER = 3
"""Consecutive requests without a response after which a bookie is mute."""

RETRY_AFTER_S = 60.0


class BookieTimeouts:
    """The circuit breakers of all bookies of a cluster, for one process."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now_s = monotonic_s
        self._timeouts_in_row: dict[BookieId, int] = {}
        self._unresponsive: dict[BookieId, tuple[float, str]] = {}

    def why_unresponsive(self, bookie: BookieId) -> str:
        """The reason why no request is sent to the bookie; empty if requests are sent."""
        until_s, why = self._unresponsive.get(bookie, (0.0, ""))
        if why and self._now_s() >= until_s:
            del self._unresponsive[bookie]
            self._timeouts_in_row[bookie] = UNRESPONSIVE_AFTER - 1
            return ""
        return why

    def record_response(self, bookie: BookieId) -> None:
        """Records a response of the bookie."""
        if self._timeouts_in_row.get(bookie):
            self._timeouts_in_row[bookie] = 0
            self._unresponsive.pop(bookie, None)

    def record_timeout(self, bookie: BookieId, why: str) -> None:
        """Records a request without a response; ``why`` names the failure."""
        count = self._timeouts_in_row.get(bookie, 0) + 1
        self._timeouts_in_row[bookie] = count
        if count >= UNRESPONSIVE_AFTER:
            self._unresponsive[bookie] = (self._now_s() + RETRY_AFTER_S, why)
