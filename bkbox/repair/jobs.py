"""The code of each kind of job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bkbox.jobs.context import JobContext
from bkbox.jobs.job import JobKind
from bkbox.repair.context import Environment
from bkbox.repair.decommission import decommission
from bkbox.repair.drain import drain
from bkbox.repair.limbo.job import repair_limbo
from bkbox.repair.limbo.recovery import recover
from bkbox.repair.replication.auditor import run_audits
from bkbox.repair.replication.copies_check import check_copies
from bkbox.repair.replication.replication_worker import replicate
from bkbox.repair.space.compaction import compact
from bkbox.repair.space.gc import collect
from bkbox.repair.space.scrub import scrub

Code = Callable[[JobContext, Environment, dict[str, str]], Awaitable[None]]

JOBS: dict[JobKind, Code] = {
    JobKind.DRAIN: drain,
    JobKind.LIMBO: repair_limbo,
    JobKind.AUDIT: run_audits,
    JobKind.CHECK: check_copies,
    JobKind.DECOMMISSION: decommission,
    JobKind.RECOVERY: recover,
    JobKind.REPLICATION: replicate,
    JobKind.GC: collect,
    JobKind.COMPACTION: compact,
    JobKind.SCRUB: scrub,
}
