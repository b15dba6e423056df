"""The background jobs of a bookie's repair process in addition to limbo: audit, re-replication, collection and
compaction, with the real jobs (bkbox/repair)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bkbox.errors import BkboxError
from bkbox.repair.context import Environment
from bkbox.repair.limbo.limbo_repair import LimboRepair
from bkbox.repair.replication.auditor import run_audits
from bkbox.repair.replication.replication_worker import replicate
from bkbox.repair.space.gc import collect
from proof.sim.world.job_context import SimJobContext
from proof.sim.world.loop import Process

NEVER_S = 1e9


@dataclass(frozen=True, slots=True)
class BackgroundJobs:
    """Parameters for one cluster, as OpenRepair names them. A deleted ledger is remembered for good: so its fence
    outlives every writer of a simulation."""

    lost_bookie_delay_s: int
    open_ledger_grace_s: float
    full_check_interval_s: float
    gc_interval_s: float
    gc_confirm_s: float
    gc_trash_s: float
    gc_overreplicated_s: float

    @classmethod
    def of(cls, seed: int) -> BackgroundJobs:
        rng = random.Random(f"upkeep {seed}")  # noqa: S311 - of a seed
        return cls(
            lost_bookie_delay_s=rng.choice((0, 5, 20, 60)),
            open_ledger_grace_s=rng.choice((0.0, 5.0, 30.0)),
            full_check_interval_s=rng.choice((0.0, 300.0, 900.0)),
            gc_interval_s=rng.choice((30.0, 100.0, 300.0)),
            gc_confirm_s=rng.choice((0.0, 1.0, 10.0)),
            gc_trash_s=rng.choice((0.0, 10.0, 200.0)),
            gc_overreplicated_s=rng.choice((1.0, 400.0)),
        )

    def settings(self) -> dict[str, Any]:
        """Fields of OpenRepair."""
        return {
            "autorecovery": True,
            "gc_remember_s": NEVER_S,
            "compaction_garbage_ratio": 0.2,
            **{name: getattr(self, name) for name in self.__slots__},
        }


def start_background_jobs(process: Process, environment: Environment, runner: LimboRepair) -> None:
    """Starts all of it, in this process."""
    for name, job in (
        ("audit", partial(run_audits, SimJobContext(), environment, {})),
        ("re-replication", partial(replicate, SimJobContext(), environment, {})),
        ("collection", partial(_collect, process, environment, runner)),
    ):
        process.run_task(_run_job(process, name, job))


async def _run_job(process: Process, name: str, job: Callable[[], Awaitable[None]]) -> None:
    try:
        await job()
    except BkboxError as error:
        process.note("%s has ended: %s: %s", name, type(error).__name__, error)


async def _collect(process: Process, environment: Environment, runner: LimboRepair) -> None:
    """Collects repeatedly, and compacts in some cases; a failed run is traced. What comes back after it was removed is
    in limbo, which the supervisor handles elsewhere."""
    while True:
        await asyncio.sleep(environment.order.gc_interval_s * environment.rng.uniform(0.5, 1.0))
        arguments = {"compact": ""} if environment.rng.random() < 0.5 else {}
        await _run_job(
            process, "collection", partial(collect, SimJobContext(), environment, arguments)
        )
        for disk in list(environment.disks.values()):
            if not disk.closed:
                await _run_job(process, "repair", partial(runner.serve_disk, disk))
