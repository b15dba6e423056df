"""Requests per second of each identity that has a rate limit, over all of its connections."""

from __future__ import annotations

from typing import Protocol

from bkbox.base.token_bucket import TokenBucket

_SECOND_NS = 1_000_000_000


class Bucket(Protocol):
    """A bucket of tokens that a second fills."""

    @property
    def rate(self) -> float | None: ...

    def try_acquire(self, now_s: float) -> bool:
        """Takes one token; False if there is none."""


class FillTimes(Protocol):
    """When buckets are full, as each front-end of a bookie knows that took a token, in ns of the monotonic clock. The
    latest time counts; any in the past is that of a full bucket."""

    def own_full_ns(self, key: int) -> int:
        """The time that this front-end has set for the bucket of this key."""

    def others_full_ns(self, key: int) -> int:
        """The latest time that another has set."""

    def set_full_ns(self, key: int, full_ns: int) -> None:
        """Set the time, after a token was taken."""


class SharedBucket:
    """One bucket of an identity, whose tokens several front-ends take. Its level is a time: when it is full."""

    def __init__(self, identity: str, per_second: int, times: FillTimes) -> None:
        self.rate: float | None = per_second
        self._key = key_of_identity(identity)
        self._token_ns = _SECOND_NS // per_second
        self._times = times

    def try_acquire(self, now_s: float) -> bool:
        """Takes one token; False if there is none, or if another front-end takes the last one at the same moment."""
        now_ns, times, key = int(now_s * _SECOND_NS), self._times, self._key
        own_ns = times.own_full_ns(key)
        full_ns = max(now_ns, own_ns, times.others_full_ns(key)) + self._token_ns
        if full_ns - now_ns > _SECOND_NS:
            return False
        times.set_full_ns(key, full_ns)
        others_ns = times.others_full_ns(key)
        if others_ns < full_ns:
            return True
        # Another front-end took one since the look at the bucket: both count.
        full_ns = others_ns + self._token_ns
        taken = full_ns - now_ns <= _SECOND_NS
        times.set_full_ns(key, full_ns if taken else own_ns)
        return taken


class Buckets:
    """One bucket for all connections of an identity, kept as long as there are any; full at first. ``times``: where
    several front-ends take tokens from one bucket."""

    def __init__(self) -> None:
        self.times: FillTimes | None = None
        self._buckets: dict[str, tuple[Bucket, int]] = {}

    def open(self, identity: str, per_second: int) -> Bucket:
        """For one connection more; ``close`` for one less."""
        bucket, users = self._buckets.get(identity, (None, 0))
        if bucket is None or bucket.rate != per_second:
            bucket = self._new(identity, per_second)
        self._buckets[identity] = bucket, users + 1
        return bucket

    def _new(self, identity: str, per_second: int) -> Bucket:
        if self.times is None:
            return TokenBucket(per_second, is_full=True)
        return SharedBucket(identity, per_second, self.times)

    def close(self, identity: str) -> None:
        found = self._buckets.get(identity)
        if found is None:
            return
        bucket, users = found
        if users > 1:
            self._buckets[identity] = bucket, users - 1
        else:
            del self._buckets[identity]


def key_of_identity(identity: str) -> int:
    """A number for an identity, the same in every process, and not 0: FNV-1a of 63 bits."""
    value = 0xCBF29CE484222325
    for octet in identity.encode():
        value = ((value ^ octet) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value >> 1 or 1
