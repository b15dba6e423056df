"""Requests per second of each identity that has a rate limit, over all of its connections."""

from __future__ import annotations

from bkbox.base.token_bucket import TokenBucket


class Buckets:
    """One bucket for all connections of an identity, kept as long as there are any; full at first."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[TokenBucket, int]] = {}

    def open(self, identity: str, per_second: int) -> TokenBucket:
        """For one connection more; ``close`` for one less."""
        bucket, users = self._buckets.get(identity, (None, 0))
        if bucket is None or bucket.rate != per_second:
            bucket = TokenBucket(per_second, is_full=True)
        self._buckets[identity] = bucket, users + 1
        return bucket

    def close(self, identity: str) -> None:
        found = self._buckets.get(identity)
        if found is None:
            return
        bucket, users = found
        if users > 1:
            self._buckets[identity] = bucket, users - 1
        else:
            del self._buckets[identity]
