"""The health of bookies, as one client observes it.

A bookie that fails often is in *quarantine* for a while: new ensembles avoid it if there are enough others. A bookie
that delayed a read until another bookie was asked is *slow* for a while. Reads ask slow bookies after the healthy
ones and quarantined bookies last. They are still asked, as no other bookie may have the entry.

Only evidence against the bookie counts as a failure: no response in time, a wrong digest, a malformed response, EIO.
A missing entry, a fence, limbo and read-only are truthful responses. An unreachable bookie is known from its
connection (BookiePool.suspects). Source: bookieErrorThresholdPerInterval and its like in ClientConfiguration.java,
BookieWatcherImpl.java, RackawareEnsemblePlacementPolicyImpl.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bkbox.base.ids import BookieId
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire.codes import Code

FAILURES = frozenset(
    {NoResponse.TIMEOUT, NoResponse.BAD_DIGEST, NoResponse.NOT_UNDERSTOOD, Code.EIO}
)

INTERVAL_S = 60.0
"""Window, in seconds, in which failures are counted together."""

SLOW_S = 30.0
"""Time, in seconds, for which a bookie counts as slow."""


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a bookie: failures within INTERVAL_S, and the seconds for which it remains in quarantine and counts
    as slow (0.0: it does not).
    """

    failures: int
    quarantined_s: float
    slow_s: float


class BookieHealth:
    """``clock``: seconds. ``failures_max``: failures within INTERVAL_S that cause a quarantine of ``quarantine_s``;
    0: quarantine is off.
    """

    def __init__(self, clock: Callable[[], float], failures_max: int, quarantine_s: float) -> None:
        self._clock = clock
        self._failures_max = failures_max
        self._quarantine_s = quarantine_s
        self._failures: dict[BookieId, deque[float]] = {}
        self._quarantined: dict[BookieId, float] = {}
        self._slow: dict[BookieId, float] = {}

    def failed(self, bookie: BookieId, status: RequestStatus) -> None:
        """Record a status that is not EOK; one that does not indicate a failure of the bookie is ignored."""
        if not self._failures_max or status not in FAILURES:
            return
        now = self._clock()
        failures = self._failures.setdefault(bookie, deque(maxlen=self._failures_max))
        failures.append(now)
        if len(failures) == self._failures_max and failures[0] > now - INTERVAL_S:
            self._quarantined[bookie] = now + self._quarantine_s
            del self._failures[bookie]

    def slow(self, bookie: BookieId) -> None:
        """Record that a read waited too long for the bookie."""
        self._slow[bookie] = self._clock() + SLOW_S

    def quarantined(self) -> frozenset[BookieId]:
        return frozenset(self._live(self._quarantined))

    def in_order(self, bookies: tuple[BookieId, ...]) -> tuple[BookieId, ...]:
        """Healthy bookies first, then slow ones, then quarantined ones; otherwise the order is kept."""
        if not self._slow and not self._quarantined:
            return bookies
        slow, quarantined = self._live(self._slow), self._live(self._quarantined)
        return tuple(sorted(bookies, key=lambda b: 2 if b in quarantined else b in slow))

    def of_all(self) -> dict[BookieId, Health]:
        """The health of every bookie that is not entirely healthy."""
        now = self._clock()
        slow, quarantined = self._live(self._slow), self._live(self._quarantined)
        failures = {
            bookie: sum(when > now - INTERVAL_S for when in found)
            for bookie, found in self._failures.items()
        }
        return {
            bookie: Health(
                failures.get(bookie, 0),
                quarantined.get(bookie, now) - now,
                slow.get(bookie, now) - now,
            )
            for bookie in sorted({**failures, **slow, **quarantined})
            if failures.get(bookie) or bookie in slow or bookie in quarantined
        }

    def _live(self, until: dict[BookieId, float]) -> dict[BookieId, float]:
        now = self._clock()
        for bookie in [bookie for bookie, end in until.items() if end <= now]:
            del until[bookie]
        return until
