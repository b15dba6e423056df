"""How well bookies do, as one client finds.

A bookie that fails often is in *quarantine* for a while: new ensembles do without it where there are enough others.
One that let a read wait so long that another bookie was asked is *slow* for a while. Reads ask slow ones after the
others and those in quarantine last; they are asked all the same, as nobody else may have the entry.

Only what says something of the bookie counts as a failure: no answer in time, a wrong digest, an answer that cannot be
understood, EIO. That it lacks an entry, is fenced, in limbo or read-only are true answers; that it cannot be reached is
known from its connection (BookiePool.suspects). Source: bookieErrorThresholdPerInterval and its like in
ClientConfiguration.java, BookieWatcherImpl.java, RackawareEnsemblePlacementPolicyImpl.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bkbox.base.ids import BookieId
from bkbox.protocol.events import Answer, NoAnswer
from bkbox.wire.codes import Code

FAILURES = frozenset({NoAnswer.TIMEOUT, NoAnswer.BAD_DIGEST, NoAnswer.NOT_UNDERSTOOD, Code.EIO})

INTERVAL_S = 60.0
"""The failures of this long count together."""

SLOW_S = 30.0
"""For how long a bookie counts as slow."""


@dataclass(frozen=True, slots=True)
class Health:
    """What is held against a bookie: failures within INTERVAL_S, and for how many seconds it is yet in quarantine and
    counts as slow (0.0: it does not)."""

    failures: int
    quarantined_s: float
    slow_s: float


class BookieHealth:
    """``clock``: seconds. ``failures_max``: so many within INTERVAL_S bring quarantine for ``quarantine_s``; 0:
    none does."""

    def __init__(self, clock: Callable[[], float], failures_max: int, quarantine_s: float) -> None:
        self._clock = clock
        self._failures_max = failures_max
        self._quarantine_s = quarantine_s
        self._failures: dict[BookieId, deque[float]] = {}
        self._quarantined: dict[BookieId, float] = {}
        self._slow: dict[BookieId, float] = {}

    def failed(self, bookie: BookieId, answer: Answer) -> None:
        """An answer that is not EOK; what says nothing against the bookie is passed over."""
        if not self._failures_max or answer not in FAILURES:
            return
        now = self._clock()
        failures = self._failures.setdefault(bookie, deque(maxlen=self._failures_max))
        failures.append(now)
        if len(failures) == self._failures_max and failures[0] > now - INTERVAL_S:
            self._quarantined[bookie] = now + self._quarantine_s
            del self._failures[bookie]

    def slow(self, bookie: BookieId) -> None:
        """A read waited too long for it."""
        self._slow[bookie] = self._clock() + SLOW_S

    def quarantined(self) -> frozenset[BookieId]:
        return frozenset(self._live(self._quarantined))

    def in_order(self, bookies: tuple[BookieId, ...]) -> tuple[BookieId, ...]:
        """Those that do well first, then slow ones, then those in quarantine; the order is kept otherwise."""
        if not self._slow and not self._quarantined:
            return bookies
        slow, quarantined = self._live(self._slow), self._live(self._quarantined)
        return tuple(sorted(bookies, key=lambda b: 2 if b in quarantined else b in slow))

    def of_all(self) -> dict[BookieId, Health]:
        """Every bookie that something is held against."""
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
