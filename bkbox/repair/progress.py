"""The progress of a job: work done, blockers, rate and estimated time left. Pure: the clock is passed in."""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import Any

_WINDOW_S = 30.0
"""Window, in seconds, over which the rate is taken."""
_SAMPLE_S = 1.0
_STUCK_S = 5.0
"""A job with blockers that made no progress for this many seconds is blocked."""
_BLOCKERS_MAX = 100
_BLOCKERS_BYTES = 65_536
"""Upper bound, in bytes of JSON, on the list of blockers: a report has to fit into a message."""
_TEXT_CHARACTERS = 400

_WHAT = ("ledgers", "entries", "bytes")


class Progress:
    """One run of a job."""

    def __init__(self, now_s: float) -> None:
        self.step = ""
        self.standing_by = False
        self.counts: Counter[str] = Counter()
        self._done = [0, 0, 0]
        self._expected: list[int | None] = [None, None, None]
        self._blockers: dict[int, tuple[str, str]] = {}
        self._last_done_s = now_s
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque([(now_s, (0, 0, 0))])

    def expect(self, ledgers: int | None, entries: int | None, size: int | None) -> None:
        for number, total in enumerate((ledgers, entries, size)):
            if total is not None:
                self._expected[number] = total

    def add_progress(self, ledgers: int, entries: int, size: int, now_s: float) -> None:
        for number, more in enumerate((ledgers, entries, size)):
            self._done[number] += more
        self._last_done_s = now_s
        if now_s - self._samples[-1][0] >= _SAMPLE_S:
            self._samples.append((now_s, tuple(self._done)))

    def count(self, what: str, amount: int, now_s: float) -> None:
        self.counts[what] += amount
        self._last_done_s = now_s

    def block(self, ledger: int, reason: str, what_to_do: str) -> None:
        self._blockers[ledger] = (reason, what_to_do)

    def unblock(self, ledger: int) -> None:
        self._blockers.pop(ledger, None)

    def resume_clock(self, now_s: float) -> None:
        """Record that the job was paused until now: that time is left out of the rate."""
        self._last_done_s = now_s
        self._samples = deque([(now_s, tuple(self._done))])

    def is_blocked(self, now_s: float) -> bool:
        """True if there are blockers and no other progress."""
        return bool(self._blockers) and now_s - self._last_done_s >= _STUCK_S

    def percent(self) -> float | None:
        """The least percentage over all measures of the expected work; None where nothing was expected."""
        shares = [
            min(1.0, done / total) if total else 1.0
            for done, total in zip(self._done, self._expected, strict=True)
            if total is not None
        ]
        return round(100 * min(shares), 1) if shares else None

    def rates(self, now_s: float) -> list[float]:
        """Ledgers, entries, bytes a second."""
        while len(self._samples) > 1 and now_s - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        since_s, before = self._samples[0]
        passed = max(now_s - since_s, _SAMPLE_S)
        return [(now - then) / passed for now, then in zip(self._done, before, strict=True)]

    def eta_s(self, now_s: float) -> float | None:
        """Seconds left at the present rate; None where the rate is no basis for it."""
        waits: list[float] = []
        for done, total, rate in zip(self._done, self._expected, self.rates(now_s), strict=True):
            if total is None or done >= total:
                continue
            if rate <= 0 or self._blockers:
                return None
            waits.append((total - done) / rate)
        known = any(total is not None for total in self._expected)
        return round(max(waits, default=0.0), 1) if known else None

    def values(self, now_s: float) -> dict[str, Any]:
        """The fields of a Job that make up its progress."""
        return {
            "step": self.step[:_TEXT_CHARACTERS],
            "standing_by": self.standing_by,
            "percent": None if self.standing_by else self.percent(),
            "done": dict(zip(_WHAT, self._done, strict=True)),
            "expected": dict(zip(_WHAT, self._expected, strict=True)),
            "rate": dict(zip(_WHAT, self.rates(now_s), strict=True)),
            "eta_s": None if self.standing_by else self.eta_s(now_s),
            "counts": dict(self.counts),
            "blocked": len(self._blockers),
            "blockers": self._first_blockers(),
        }

    def _first_blockers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        space = _BLOCKERS_BYTES
        for ledger, (reason, advice) in sorted(self._blockers.items())[:_BLOCKERS_MAX]:
            item = {
                "ledger": ledger,
                "reason": reason[:_TEXT_CHARACTERS],
                "what_to_do": advice[:_TEXT_CHARACTERS],
            }
            space -= len(json.dumps(item)) + 2
            if space < 0:
                break
            found.append(item)
        return found
