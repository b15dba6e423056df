"""Runs the jobs of a bookie: starts their code, passes control requests to them, reports their progress.

All jobs share one pacer. While a job runs, the disks are asked once a second how long their adds took, and the
governor sets the share that the jobs may take from the foreground.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from bkbox.base.text import error_text
from bkbox.errors import BkboxError, JobCancelledError, JobRefusedError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.disk import GetLatency, Latency
from bkbox.ipc.messages.process import Settings
from bkbox.ipc.messages.repair import ControlJob, StartJob
from bkbox.jobs.job import JobAction, JobKind, JobState
from bkbox.repair.adaptive_throttle import SHARE_LEAST, AdaptiveThrottle, LatencyBaseline
from bkbox.repair.context import Environment
from bkbox.repair.job_run import JobRun
from bkbox.repair.jobs import Code
from bkbox.repair.rate_limits import RateLimits

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 0.5
_ASK_EVERY_S = 1.0
_ASK_TIMEOUT_S = 1.0


class Scheduler:
    """``code``: the function of each kind of job; ``report`` receives the values of a ``JobReport``."""

    def __init__(
        self,
        environment: Environment,
        code: Mapping[JobKind, Code],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        order = environment.order
        self._environment = environment
        self._code = code
        self._report = report
        self._pacer = RateLimits(
            order.disk_bytes_per_second,
            order.network_bytes_per_second,
            order.metadata_calls_per_second,
        )
        self._governor = AdaptiveThrottle(order.p99_growth_max)
        self._usual: dict[str, LatencyBaseline] = {}
        self._gate = asyncio.Lock()
        self._running: dict[int, JobRun] = {}
        self._reported: dict[int, dict[str, Any]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._busy = asyncio.Event()

    # ---- orders -------------------------------------------------------------------------------------

    def start(self, order: StartJob) -> None:
        """Start a job; one that runs already goes on."""
        if order.id in self._running:
            return
        job = JobRun(order.id, self._pacer, self._gate, self._environment.monotonic_s)
        self._running[order.id] = job
        self._tasks[order.id] = task = asyncio.ensure_future(self._run(job, order))
        task.add_done_callback(lambda done: self._ended(order.id, done))
        self._busy.set()
        self._report(job.report())

    async def _run(self, job: JobRun, order: StartJob) -> None:
        code = self._code.get(JobKind(order.kind))
        if code is None:
            raise JobRefusedError(
                f"this version of bkbox has no code for jobs of kind {order.kind}"
            )
        await code(job, self._environment, dict(order.arguments))

    def control(self, order: ControlJob) -> None:
        """Apply a control request; ignored where the job has ended."""
        action = JobAction(order.action)
        if order.id == 0:
            if action is JobAction.RATE:
                given = None if order.bytes_per_second < 0 else order.bytes_per_second
                self._pacer.limit(given, self._environment.monotonic_s())
            return
        job = self._running.get(order.id)
        if job is None:
            return
        match action:
            case JobAction.CANCEL:
                job.cancel()
            case JobAction.PAUSE:
                job.pause()
            case JobAction.RESUME:
                job.resume()
            case JobAction.RATE:
                job.limit(order.bytes_per_second)
        self._send_report(job)

    def configure(self, order: Settings) -> None:
        """Apply a changed configuration."""
        values = order.values
        self._governor.growth_max = values["jobs_p99_growth_max"]
        self._pacer.configure(
            values["jobs_disk_bytes_per_second"],
            values["jobs_network_bytes_per_second"],
            values["jobs_metadata_calls_per_second"],
            self._environment.monotonic_s(),
        )

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        """Send the last report of a job. A run that ends with its process sends none: it is started again."""
        del self._tasks[number]
        job = self._running.pop(number)
        self._reported.pop(number, None)
        if not self._running:
            self._busy.clear()
        if task.cancelled():
            return
        state, text = JobState.DONE, ""
        error = task.exception()
        if isinstance(error, JobCancelledError):
            state = JobState.CANCELLED
        elif isinstance(error, BkboxError):
            state, text = JobState.FAILED, error_text(error)
        elif error is not None:
            log.error("job %d ended by a fault of bkbox itself", number, exc_info=error)
            state, text = JobState.FAILED, f"a fault of bkbox itself: {error_text(error)}"
        self._report({**job.report(), "state": state.value, "error": text[:1000]})

    # ---- beside the jobs ----------------------------------------------------------------------------

    async def send_reports(self) -> None:
        """For ever: send reports that changed."""
        while True:
            await self._busy.wait()
            await asyncio.sleep(_REPORT_EVERY_S)
            for job in list(self._running.values()):
                self._send_report(job)

    def _send_report(self, job: JobRun) -> None:
        values = job.report()
        if self._reported.get(job.number) != values:
            self._reported[job.number] = values
            self._report(values)

    async def watch_foreground(self) -> None:
        """For ever: set the jobs' share by the latency of adds."""
        clock = self._environment.monotonic_s
        while True:
            await self._busy.wait()
            before_s = clock()
            await asyncio.sleep(_ASK_EVERY_S)
            disks = list(self._environment.disks.items())
            latencies = await asyncio.gather(*(self._latency(disk) for _name, disk in disks))
            now_s = clock()
            idle = self._pacer.second_passed(now_s - before_s)
            is_idle = idle or self._governor.share == SHARE_LEAST
            growth, unknown = 1.0, False
            for (name, _disk), found in zip(disks, latencies, strict=True):
                if found is not None:
                    usual = self._usual.setdefault(name, LatencyBaseline())
                    growth = max(growth, usual.growth(found.adds, found.p99_us, idle=is_idle))
                    unknown = unknown or usual.is_unknown
            self._pacer.give(self._governor.second_passed(growth, unknown=unknown), now_s)

    async def _latency(self, disk: AsyncChannel) -> Latency | None:
        if disk.closed:
            return None
        try:
            found = await disk.call(GetLatency(), timeout_s=_ASK_TIMEOUT_S)
        except (BkboxError, TimeoutError):
            return None
        assert isinstance(found, Latency)
        return found

    async def close(self) -> None:
        """Cancel all jobs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
