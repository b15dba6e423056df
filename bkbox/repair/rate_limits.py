"""Rate limits that all jobs share.

Pure: the clock's value is passed in.
"""

from __future__ import annotations

from bkbox.base.token_bucket import TokenBucket


class RateLimits:
    """The rate limits that all jobs share: bytes of the disks, bytes of the network, calls of the metadata store,
    each per second and 0 for no bound.

    The jobs get their ``share`` of the bytes (adaptive_throttle.py). Of a budget without a bound that is their share of
    the most that was spent in a second.
    """

    def __init__(self, disk: int, network: int, metadata_calls: int) -> None:
        self._configured = (disk, network)
        self._limits = (disk, network)
        self._buckets = (TokenBucket(disk or None), TokenBucket(network or None))
        self._calls = TokenBucket(metadata_calls or None)
        self._spent = [0, 0]
        self._most = [0.0, 0.0]
        self._share = 1.0

    def configure(self, disk: int, network: int, metadata_calls: int, now_s: float) -> None:
        """Set new budgets; a ``limit`` stays."""
        is_limited = self._limits != self._configured
        self._configured = (disk, network)
        if not is_limited:
            self._limits = self._configured
        self._calls.set_rate(metadata_calls or None, now_s)
        self._set_rates(now_s)

    def limit(self, bytes_per_second: int | None, now_s: float) -> None:
        """Limit the rate of the disks and of the network each, in bytes a second; 0: no bound, None: as configured."""
        given = bytes_per_second
        self._limits = self._configured if given is None else (given, given)
        self._set_rates(now_s)

    def wait_s(self, disk: int, network: int, metadata_calls: int, now_s: float) -> float:
        """Seconds until a piece of work with these costs may begin."""
        waits = [0.0]
        if disk:
            waits.append(self._buckets[0].wait_s(now_s))
        if network:
            waits.append(self._buckets[1].wait_s(now_s))
        if metadata_calls:
            waits.append(self._calls.wait_s(now_s))
        return max(waits)

    def spend(self, disk: int, network: int, metadata_calls: int, now_s: float) -> None:
        """Charge a piece of work that begins."""
        for number, size in enumerate((disk, network)):
            self._buckets[number].spend(size, now_s)
            self._spent[number] += size
        self._calls.spend(metadata_calls, now_s)

    def rates(self) -> tuple[float | None, float | None]:
        """The current rates for jobs, in bytes a second, of the disks and of the network."""
        disk, network = self._buckets
        return disk.rate, network.rate

    def second_passed(self, passed_s: float) -> bool:
        """Advance by ``passed_s``, the seconds since the last call; True if the jobs did nothing meanwhile."""
        speeds = [spent / passed_s for spent in self._spent]
        self._spent = [0, 0]
        if self._share == 1.0:
            self._most = [max(pair) for pair in zip(self._most, speeds, strict=True)]
        return not any(speeds)

    def give(self, share: float, now_s: float) -> None:
        """Set the jobs' share of their byte budgets, as a fraction of 1."""
        self._share = share
        self._set_rates(now_s)

    def _set_rates(self, now_s: float) -> None:
        for bucket, limit, most in zip(self._buckets, self._limits, self._most, strict=True):
            bucket.set_rate(self._rate(limit, most), now_s)

    def _rate(self, limit: int, most: float) -> float | None:
        if self._share == 1.0:
            return limit or None
        usual = min(limit, most) if limit and most else limit or most
        rate = max(usual * self._share, _LEAST_BYTES_PER_SECOND)
        return min(rate, limit) if limit else rate


_LEAST_BYTES_PER_SECOND = 65_536
"""The least rate. However slow the foreground is, work goes on: finishing it is what helps the foreground most."""
