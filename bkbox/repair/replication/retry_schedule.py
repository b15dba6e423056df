"""The retry schedule of ledgers that could not be replicated.

After a failure that may pass by itself (a time-out, a busy bookie) a ledger is retried with exponential back-off.
After one that does not pass by itself (an entry that no bookie has, no bookie to copy to) it is *quarantined*: it is
retried when the situation has changed, that is the mark, the ledger's metadata or the bookies of the cluster, and after
the longest wait without a change: a bookie that went away and came back between two looks leaves no trace.

Pure: clock and randomness are passed in.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable
from dataclasses import dataclass

from bkbox.base.backoff import JITTER_BELOW, backoff_s, jittered
from bkbox.base.ids import LedgerId


@dataclass(slots=True)
class _Wait:
    tries: int
    until_s: float
    situation: Hashable | None = None
    quarantined_until_s: float = 0.0
    reason: str = ""


class RetrySchedule:
    """The ledgers that wait, by id."""

    def __init__(self, initial_s: float, longest_s: float, rng: random.Random) -> None:
        self._initial_s = initial_s
        self._longest_s = longest_s
        self._rng = rng
        self._waits: dict[LedgerId, _Wait] = {}

    def is_due(self, ledger: LedgerId, now_s: float) -> bool:
        """True if its back-off is over."""
        wait = self._waits.get(ledger)
        return wait is None or wait.until_s <= now_s

    def is_quarantined(self, ledger: LedgerId, situation: Hashable, now_s: float) -> bool:
        """True if a retry in this situation is of no use yet."""
        wait = self._waits.get(ledger)
        if wait is None or wait.situation is None or wait.situation != situation:
            return False
        return now_s < wait.quarantined_until_s

    def has_quarantined(self, ledger: LedgerId) -> bool:
        """True if it is quarantined, in whatever situation."""
        wait = self._waits.get(ledger)
        return wait is not None and wait.situation is not None

    def quarantined(self) -> int:
        """The number of quarantined ledgers."""
        return sum(wait.situation is not None for wait in self._waits.values())

    def failed(self, ledger: LedgerId, now_s: float) -> None:
        """Record a failure: it is retried after a back-off."""
        before = self._waits.get(ledger)
        tries = 0 if before is None else before.tries
        pause_s = backoff_s(tries, self._initial_s, self._longest_s, self._rng)
        self._waits[ledger] = _Wait(tries + 1, now_s + pause_s)

    def later(self, ledger: LedgerId, until_s: float) -> None:
        """Retry at this time; it does not count as a failure."""
        self._waits[ledger] = _Wait(0, until_s)

    def quarantine(
        self, ledger: LedgerId, situation: Hashable, now_s: float, reason: str = ""
    ) -> bool:
        """Retry when the situation has changed, or after the longest wait. Returns False if it was quarantined for the
        same reason before.
        """
        before = self._waits.get(ledger)
        until_s = now_s + jittered(self._longest_s, self._rng, JITTER_BELOW)
        self._waits[ledger] = _Wait(0, 0.0, situation, until_s, reason)
        return before is None or before.situation is None or before.reason != reason

    def forget(self, ledger: LedgerId) -> None:
        """Drop a ledger that is done."""
        self._waits.pop(ledger, None)

    def keep_only(self, marked: Collection[LedgerId]) -> list[LedgerId]:
        """Drop the ledgers that are not marked any more; returns them."""
        unmarked = [ledger for ledger in self._waits if ledger not in marked]
        for ledger in unmarked:
            del self._waits[ledger]
        return unmarked
