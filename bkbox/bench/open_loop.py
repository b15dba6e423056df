"""An open loop on a bookie: requests are due at a constant rate, whatever the responses do.

Every request that is due within the measured time counts, also one that is answered after it, and its latency
counts from the time at which it was due. After the measured time nothing more is due, and what was due is drained for
as long as the measured time at most; what has no response then counts with the time for which it has been due.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bkbox.bench.load import Load
from bkbox.bench.load_loop import ENDLESS, Stream
from bkbox.native.histogram import Histogram

_S = 1_000_000_000
_DRAIN_S = 0.25
_DRAIN_SHARE = 0.01
_DRAIN_S_MIN = 1.0
_LATE_SHARE = 4
_TIMER_SLACK = Path("/proc/self/timerslack_ns")


@dataclass(frozen=True, slots=True)
class Rate:
    """``per_s`` requests per second altogether, of which the share ``reads`` (0 to 1) are reads."""

    per_s: int
    reads: float


@dataclass(frozen=True, slots=True)
class RateReport:
    """Requests per second that were asked for and that were answered with EOK, up to the last response.

    ``drain_s``: how long the bookie needed, after the measured time, for what was due; ``unanswered``: requests without
    a response even then; ``refused``: requests answered with an error. ``deepest_backlog``: the most requests that were
    due and not answered at one time. ``is_reached``: the bookie keeps up, and refuses nothing. ``late_…``: how late the
    load generator sent requests that it could have sent, by percentile; ``is_late``: so late that it is a quarter, or
    more, of the latency at p99 or p99.9."""

    asked_per_s: int
    achieved_per_s: float
    is_reached: bool
    drain_s: float
    unanswered: int
    refused: int
    deepest_backlog: int
    late_p50_us: float
    late_p99_us: float
    late_p999_us: float
    late_max_us: float
    is_late: bool


class OpenLoop:
    """The open loop over the streams of a load that has not run yet: ``warm_up``, then ``measure``."""

    def __init__(
        self,
        load: Load,
        rate: Rate,
        adds: Sequence[Stream],
        reads: Sequence[Stream],
        warmup_s: float,
        seconds: float,
    ) -> None:
        self._load = load
        self._rate = rate
        self._streams = (*adds, *reads)
        self._seconds = seconds
        self._start = time.perf_counter_ns()
        self._counted_from = self._start + int(warmup_s * _S)
        self._end = self._counted_from + int(seconds * _S)
        self._pace(adds, rate.per_s * (1 - rate.reads))
        self._pace(reads, rate.per_s * rate.reads)

    def warm_up(self) -> None:
        """Runs up to the measured time. Raises BenchError, FrameError."""
        with _precise_timers():
            self._load.run_paced(self._counted_from)

    def measure(self) -> tuple[float, RateReport]:
        """Runs through the measured time and the drain; returns the seconds of both. Raises BenchError, FrameError."""
        drain = max(self._seconds, _DRAIN_S_MIN)
        with _precise_timers():
            deepest = self._load.run_paced(self._end + int(drain * _S))
        now = time.perf_counter_ns()
        refused = sum(sum(stream.codes[1:]) for stream in self._streams)
        answered = sum(stream.responded for stream in self._streams) - refused
        unanswered = sum(stream.give_up(now) for stream in self._streams)
        drain_s = max(now - self._end, 0) / _S
        seconds = self._seconds + drain_s
        lateness, latency = Histogram(), Histogram()
        for stream in self._streams:
            lateness.merge(stream.lateness)
            latency.merge(stream.latency)
        return seconds, RateReport(
            asked_per_s=self._rate.per_s,
            achieved_per_s=answered / seconds,
            is_reached=unanswered == 0
            and refused == 0
            and drain_s <= max(_DRAIN_S, _DRAIN_SHARE * self._seconds),
            drain_s=drain_s,
            unanswered=unanswered,
            refused=refused,
            deepest_backlog=deepest,
            late_p50_us=lateness.percentile(50) / 1000,
            late_p99_us=lateness.percentile(99) / 1000,
            late_p999_us=lateness.percentile(99.9) / 1000,
            late_max_us=lateness.max / 1000,
            is_late=any(
                lateness.percentile(percent) * _LATE_SHARE >= latency.percentile(percent) > 0
                for percent in (99, 99.9)
            ),
        )

    def _pace(self, streams: Sequence[Stream], per_s: float) -> None:
        """Shares a rate out over the streams, whose requests are due in turn."""
        if not streams:
            return
        step = _S / per_s
        interval = step * len(streams)
        for number, stream in enumerate(streams):
            first = self._start + int(step * number)
            counted, end = (
                max(math.ceil((until - first) / interval), 0)
                for until in (self._counted_from, self._end)
            )
            stream.pace(first, interval, counted, min(end, ENDLESS))


@contextmanager
def _precise_timers() -> Iterator[None]:
    """Timers of this thread fire within microseconds instead of 50 µs late. Children would inherit the setting, so it
    is taken back."""
    before = _TIMER_SLACK.read_text()
    _TIMER_SLACK.write_text("1")
    try:
        yield
    finally:
        _TIMER_SLACK.write_text(before)
