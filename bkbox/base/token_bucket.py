"""A rate limit: a bucket that tokens flow into at the rate, and that work is paid from.

Pure: the clock's value is passed in.
"""

from __future__ import annotations


class TokenBucket:
    """``rate`` tokens a second on average, None: no bound; it holds what a second brings. It is empty at first unless
    ``is_full``.

    Tokens are spent in two ways. A request of one token (``try_acquire``) is refused if there is none. A piece of work
    of any size (``wait_s``, ``spend``) is paid for afterwards: it passes when nothing is owed, and the next one waits
    until it is paid. So a new rate applies at once, also to pieces that wait already.
    """

    __slots__ = ("_at_s", "_level", "_rate")

    def __init__(self, rate: float | None, *, is_full: bool = False) -> None:
        self._rate = rate
        self._level = rate if is_full and rate is not None else 0.0
        self._at_s: float | None = None

    @property
    def rate(self) -> float | None:
        return self._rate

    def set_rate(self, rate: float | None, now_s: float) -> None:
        self._fill(now_s)
        self._rate = rate

    def try_acquire(self, now_s: float) -> bool:
        """Takes one token; False if there is none."""
        self._fill(now_s)
        if self._rate is None:
            return True
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def wait_s(self, now_s: float) -> float:
        """Seconds until a piece may pass."""
        self._fill(now_s)
        if self._rate is None or self._level >= 0:
            return 0.0
        return -self._level / self._rate

    def spend(self, size: float, now_s: float) -> None:
        """Charge a piece of this size."""
        self._fill(now_s)
        if self._rate is not None:
            self._level -= size

    def _fill(self, now_s: float) -> None:
        passed_s = 0.0 if self._at_s is None else max(0.0, now_s - self._at_s)
        self._at_s = now_s
        if self._rate is None:
            self._level = 0.0
        else:
            self._level = min(self._rate, self._level + passed_s * self._rate)
