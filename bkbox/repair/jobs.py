"""The code of each kind of job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bkbox.jobs.job import JobKind
from bkbox.jobs.work import Work
from bkbox.repair.auditor import watch_over
from bkbox.repair.compaction import compact
from bkbox.repair.decommission import decommission
from bkbox.repair.drain import drain
from bkbox.repair.environment import Environment
from bkbox.repair.gc import collect
from bkbox.repair.limbo import repair_limbo
from bkbox.repair.recovery import recover
from bkbox.repair.replication import replicate
from bkbox.repair.scrub import scrub

Code = Callable[[Work, Environment, dict[str, str]], Awaitable[None]]

JOBS: dict[JobKind, Code] = {
    JobKind.DRAIN: drain,
    JobKind.LIMBO: repair_limbo,
    JobKind.AUDIT: watch_over,
    JobKind.DECOMMISSION: decommission,
    JobKind.RECOVERY: recover,
    JobKind.REPLICATION: replicate,
    JobKind.GC: collect,
    JobKind.COMPACTION: compact,
    JobKind.SCRUB: scrub,
}
