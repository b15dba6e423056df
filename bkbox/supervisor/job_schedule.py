"""The jobs that a bookie starts by itself, and when. Pure: the clock is passed in.

A job of a kind that comes again and again is started so long after the last one of its kind ended; how that ended, and
who had started it, does not matter. One that failed is not started again at once.
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
"""A bookie that starts has something else to do than to tidy its disks."""
_SCRUB_PART = 7
_SCRUB_BYTES_PER_S_LEAST = 4 << 20


@frozen_struct
class Periodic:
    """``every_s``: seconds from the end of one to the start of the next, by the configuration; None: never.
    ``first_after_s``: from the start of the bookie to that of the first one, at most, where none is remembered.
    """

    kind: JobKind
    every_s: Callable[[Config], float | None]
    first_after_s: float = 0.0


def _autorecovery_again_s(config: Config) -> float | None:
    """These end only where they fail, or are cancelled."""
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
    """How often the jobs that tidy the disks are to run by themselves; None: never."""
    return {each.kind: each.every_s(config) for each in PERIODIC if each.first_after_s}


def speed_limit(kind: JobKind, config: Config, stored_bytes: int) -> int:
    """Bytes per second that a job which starts by itself is to keep to, until an operator says otherwise; 0: no limit
    of its own. A scrub is in no hurry: it takes a seventh of its interval, a day of a week. ``stored_bytes``: what is
    on the bookie's disks.
    """
    if kind is not JobKind.SCRUB:
        return 0
    return max(int(stored_bytes * _SCRUB_PART / config.scrub_interval_s), _SCRUB_BYTES_PER_S_LEAST)


def due(
    config: Config, registry: Registry, *, limbo: bool, now_ms: int, began_ms: int = 0
) -> list[JobKind]:
    """What has to be started now, without arguments. ``limbo``: whether ledgers are in limbo on a disk in service;
    ``began_ms``: when the bookie started.
    """
    up_s = (now_ms - began_ms) / 1000
    wanted = [
        (each.kind, every_s)
        for each in PERIODIC
        if (every_s := each.every_s(config)) is not None
        and (up_s >= min(each.first_after_s, every_s) or registry.last(each.kind, {}) is not None)
    ]
    if limbo:
        wanted.append((JobKind.LIMBO, _LIMBO_AGAIN_S))
    return [kind for kind, every_s in wanted if _may_start(registry, kind, every_s, now_ms)]


def _may_start(registry: Registry, kind: JobKind, every_s: float, now_ms: int) -> bool:
    last = registry.last(kind, {})
    if last is None:
        return True
    if last.ended_ms is None:
        return False
    wait_s = max(every_s, _FAILED_AGAIN_S) if last.state is JobState.FAILED else every_s
    passed_s = (now_ms - last.ended_ms) / 1000
    return passed_s >= wait_s or passed_s < 0
