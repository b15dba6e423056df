"""How long a bookie that does not answer is waited for: an audit of many ledgers must not wait for it at each of them.

One request after the other goes unanswered, and after a few the bookie is *mute*: for a while nobody asks it, and all
that it may have is unknown. Then it is tried again. Anything that it says, even a refusal, ends that.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.ids import BookieId

MUTE_AFTER = 3
"""Requests without an answer, one after the other."""

ASKED_AGAIN_S = 60.0


class BookieTimeouts:
    """With all bookies of a cluster, for one process."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now_s = monotonic_s
        self._unanswered: dict[BookieId, int] = {}
        self._unresponsive: dict[BookieId, tuple[float, str]] = {}

    def why_mute(self, bookie: BookieId) -> str:
        """What it is not asked for, empty where it is to be asked."""
        until_s, why = self._unresponsive.get(bookie, (0.0, ""))
        if why and self._now_s() >= until_s:
            del self._unresponsive[bookie]
            self._unanswered[bookie] = MUTE_AFTER - 1
            return ""
        return why

    def answered(self, bookie: BookieId) -> None:
        """It said something."""
        if self._unanswered.get(bookie):
            self._unanswered[bookie] = 0
            self._unresponsive.pop(bookie, None)

    def unanswered(self, bookie: BookieId, why: str) -> None:
        """It did not."""
        count = self._unanswered.get(bookie, 0) + 1
        self._unanswered[bookie] = count
        if count >= MUTE_AFTER:
            self._unresponsive[bookie] = (self._now_s() + ASKED_AGAIN_S, why)
