"""The jobs that a bookie starts by itself, and when. Pure: the clock is passed in.

A periodic job is started an interval after the last one of its kind ended, however that ended and whether an operator
or the bookie had started it. A failed job is not restarted at once.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.values import frozen_struct
from bkbox.config.schema import Config
from bkbox.jobs.job import JobKind, JobState
from bkbox.jobs.registry import Registry

_LIMBO_AGAIN_S = 2.0
_AUTORECOVERY_AGAIN_S = 5.0
_FAILED_AGAIN_S = 30.0
_SPACE_FIRST_AFTER_S = 600.0
"""Seconds after the start before the first job that maintains the disks: a start has more urgent work."""
_SCRUB_PART = 7
_SCRUB_BYTES_PER_S_LEAST = 4 << 20


@frozen_struct
class Periodic:
    """A periodic job. ``every_s``: seconds from the end of one to the start of the next, by the configuration; None:
    never. ``first_after_s``: seconds from the start of the bookie to the first one, at most, if none is remembered."""

    kind: JobKind
    every_s: Callable[[Config], float | None]
    first_after_s: float = 0.0


def _autorecovery_again_s(config: Config) -> float | None:
    """Autorecovery jobs end only by failing or being cancelled."""
    return _AUTORECOVERY_AGAIN_S if config.autorecovery_enabled else None


PERIODIC: tuple[Periodic, ...] = (
    Periodic(JobKind.AUDIT, _autorecovery_again_s),
    Periodic(JobKind.REPLICATION, _autorecovery_again_s),
    Periodic(JobKind.GC, lambda config: config.gc_interval_s or None, _SPACE_FIRST_AFTER_S),
    Periodic(
        JobKind.COMPACTION,
        lambda config: config.compaction_interval_s or None,
        _SPACE_FIRST_AFTER_S,
    ),
    Periodic(JobKind.SCRUB, lambda config: config.scrub_interval_s or None, _SPACE_FIRST_AFTER_S),
)


def intervals(config: Config) -> dict[JobKind, float | None]:
    """Intervals, in seconds, of the jobs that maintain the disks; None: never by themselves."""
    return {each.kind: each.every_s(config) for each in PERIODIC if each.first_after_s}


def speed_limit(kind: JobKind, config: Config, stored_bytes: int) -> int:
    """Rate limit, in bytes per second, of a scheduled job, until an operator sets another; 0: none of its own. A scrub
    is spread over a seventh of its interval, a day of a week. ``stored_bytes``: bytes on the bookie's disks."""
    if kind is not JobKind.SCRUB:
        return 0
    return max(int(stored_bytes * _SCRUB_PART / config.scrub_interval_s), _SCRUB_BYTES_PER_S_LEAST)


def due(
    config: Config,
    registry: Registry,
    *,
    limbo: bool,
    now_ms: int,
    began_ms: int = 0,
    was_down: bool = False,
) -> list[JobKind]:
    """The kinds of jobs to start now, without arguments. ``limbo``: True if a disk in service has ledgers in limbo;
    ``began_ms``: start of the bookie; ``was_down``: entries may have been written without it or one of its disks."""
    up_s = (now_ms - began_ms) / 1000
    due = [
        (each.kind, every_s)
        for each in PERIODIC
        if (every_s := each.every_s(config)) is not None
        and (up_s >= min(each.first_after_s, every_s) or registry.last(each.kind, {}) is not None)
    ]
    if limbo:
        due.append((JobKind.LIMBO, _LIMBO_AGAIN_S))
    if was_down:
        due.append((JobKind.CHECK, 0.0))
    return [kind for kind, every_s in due if _may_start(registry, kind, every_s, now_ms)]


def _may_start(registry: Registry, kind: JobKind, every_s: float, now_ms: int) -> bool:
    last = registry.last(kind, {})
    if last is None:
        return True
    if last.ended_ms is None:
        return False
    wait_s = max(every_s, _FAILED_AGAIN_S) if last.state is JobState.FAILED else every_s
    passed_s = (now_ms - last.ended_ms) / 1000
    return passed_s >= wait_s or passed_s < 0
