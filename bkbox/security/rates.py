"""Rate limit of requests: a token bucket that fills as time passes, and from which each request takes a token."""

from __future__ import annotations

from collections.abc import Callable

BURST_S = 1.0
"""The burst: the tokens that arrive in this time, in seconds."""


class Bucket:
    """A token bucket, full at first. ``now_s`` gives the time."""

    __slots__ = ("_at_s", "_left", "_now_s", "_per_second")

    def __init__(self, per_second: int, now_s: Callable[[], float]) -> None:
        self._per_second = per_second
        self._now_s = now_s
        self._at_s = now_s()
        self._left = per_second * BURST_S

    def take(self) -> bool:
        """Take a token; False if there is none."""
        now_s = self._now_s()
        full = self._per_second * BURST_S
        self._left = min(full, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Buckets:
    """One bucket for all connections of an identity, kept as long as there are any."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._buckets: dict[str, tuple[int, Bucket, int]] = {}

    def open(self, identity: str, per_second: int) -> Bucket:
        """For one connection more; ``close`` for one less."""
        rate, bucket, users = self._buckets.get(identity, (0, None, 0))
        if bucket is None or rate != per_second:
            bucket = Bucket(per_second, self._now_s)
        self._buckets[identity] = per_second, bucket, users + 1
        return bucket

    def close(self, identity: str) -> None:
        found = self._buckets.get(identity)
        if found is None:
            return
        rate, bucket, users = found
        if users > 1:
            self._buckets[identity] = rate, bucket, users - 1
        else:
            del self._buckets[identity]
