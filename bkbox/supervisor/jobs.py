"""The supervisor's side of jobs: gives them ids, hands them to the repair process, receives its reports, keeps the
history on disk, and starts scheduled jobs that are due.

The repair process may end at any time. Every unfinished job is then handed to the next one, with the operator's
requests for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from bkbox.base import background
from bkbox.errors import BkboxError, DiskError, JobRefusedError
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import GetStats, Stats
from bkbox.ipc.messages.repair import ControlJob, JobReport, StartJob
from bkbox.jobs.arguments import ARGUMENTS, checked_arguments
from bkbox.jobs.job import Job, JobAction, JobKind, JobState
from bkbox.jobs.stall import Stall, stalls
from bkbox.supervisor import job_schedule
from bkbox.supervisor.job_file import JobFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bkbox.config.schema import Config
    from bkbox.supervisor.children.process import Child
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.disks.drain import Drains

    class HasDrains(Protocol):
        @property
        def drains(self) -> Drains: ...

    class WorkingBookie(Protocol):
        """The part of a bookie that jobs use. ``changes``: None until the bookie is up."""

        @property
        def config(self) -> Config: ...
        @property
        def disks(self) -> list[Disk]: ...
        @property
        def repair(self) -> Child | None: ...
        @property
        def changes(self) -> HasDrains | None: ...


log = logging.getLogger(__name__)

_POLL_EVERY_S = 0.5
_SAVE_PROGRESS_EVERY_S = 5.0
_ASK_TIMEOUT_S = 5.0
_SAVE_TIMEOUT_S = 5.0
"""Time-out for writing the history to a disk. A slower disk is skipped until its write has finished: no caller waits
for a history."""

AS_CONFIGURED = -1
"""The speed limit of all jobs that the configuration gives."""


class Jobs:
    """The jobs of one bookie. ``bookie``: provides the disks, the configuration and the repair process."""

    def __init__(self, bookie: WorkingBookie, file: JobFile, *, was_down: bool = False) -> None:
        """``was_down``: the bookie has run before, and entries may have been written without it since."""
        self._bookie = bookie
        self._file = file
        self.registry = file.load([disk.path for disk in bookie.disks])
        self.must_check = was_down and not any(map(_is_check, self.registry.active()))
        """The copies on the disks were not compared since an absence, and no job is at it."""
        self._began_ms = _now_ms()
        self.registry.process_ended(self._began_ms, None)
        self.bytes_per_second = AS_CONFIGURED
        """The rate limit of all jobs, until the bookie ends."""
        self._repair_since_s = time.monotonic()
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._document: dict[str, object] = {}
        self._refusing: set[str] = set()
        """Disks that failed the last write of the history."""
        self._changed = False
        self._saved_s = 0.0
        for disk in bookie.disks:
            self.note_rebuild(disk)
        self.hand_over()

    def note_rebuild(self, disk: Disk) -> None:
        """Record the rebuild of an index in the history. Its progress is in the phase of the start."""
        opened = disk.opened
        if opened is None or not opened.rebuilt:
            return
        now_ms = _now_ms()
        job = self.registry.add(JobKind.REBUILD, {"disk": disk.uuid}, now_ms, automatic=True)
        self.registry.report({"id": job.id, "state": "running"}, now_ms)
        step = f"the index was made anew from the entry log: {opened.rebuilt}"
        values = {"id": job.id, "state": "done", "step": step, "percent": 100.0}
        done = {"ledgers": 0, "entries": opened.entries, "bytes": opened.replayed_bytes}
        self.registry.report({**values, "done": done}, now_ms)
        self._changed = True

    def stalls(self) -> list[Stall]:
        """Jobs that should make progress and do not."""
        every_s = job_schedule.intervals(self._bookie.config)
        return stalls(self.registry, every_s, began_ms=self._began_ms, now_ms=_now_ms())

    def limbo(self) -> Job | None:
        """The limbo job that runs, or else the last one since the bookie started."""
        job = self.registry.last(JobKind.LIMBO, {})
        if job is None or (job.ended_ms is not None and job.ended_ms < self._began_ms):
            return None
        return job

    async def run(self) -> None:
        """Start jobs that are due and save the history, until cancelled."""
        while True:
            await self._start_due()
            if self._changed and time.monotonic() - self._saved_s >= _SAVE_PROGRESS_EVERY_S:
                await self.save()
            await asyncio.sleep(_POLL_EVERY_S)

    async def _start_due(self) -> None:
        if self.must_check:  # a check that only follows open ledgers gives way to a new one
            for job in self.registry.active():
                if _is_check(job) and job.standing_by and not job.asked:
                    await self.control(job.id, JobAction.CANCEL)
        limbo = any([await self._has_limbo(disk) for disk in self._bookie.disks])
        config = self._bookie.config
        due = job_schedule.due(
            config,
            self.registry,
            limbo=limbo,
            now_ms=_now_ms(),
            began_ms=self._began_ms,
            was_down=self.must_check,
        )
        stats = [disk.stats for disk in self._bookie.disks if disk.usable]
        stored = sum(each.get("total_bytes", 0) - each.get("free_bytes", 0) for each in stats)
        for kind in due:
            limit = job_schedule.speed_limit(kind, config, stored)
            job = self.registry.add(kind, {}, _now_ms(), automatic=True, bytes_per_second=limit)
            self._changed = True
            if kind is JobKind.CHECK:
                self.must_check = False
            self._start(job)

    async def _has_limbo(self, disk: Disk) -> bool:
        """True if the disk has ledgers in limbo. If its last report says so and no limbo job runs, the worker is asked
        again: the report may be older than the end of the last limbo job."""
        if not disk.usable or not disk.stats.get("limbo_ledgers"):
            return False
        if any(job.kind is JobKind.LIMBO for job in self.registry.active()):
            return True
        try:
            found = await disk.call(GetStats(), timeout_s=_ASK_TIMEOUT_S)
        except (BkboxError, TimeoutError):
            return False  # checked again soon
        assert isinstance(found, Stats)
        return bool(found.values["limbo_ledgers"])

    # ---- what operators ask -------------------------------------------------------------------------

    async def start(self, kind: JobKind, arguments: Mapping[str, str]) -> Job:
        """Start a job for an operator. Raises BadRequestError (the arguments do not fit the kind), JobRefusedError."""
        if kind not in ARGUMENTS:
            raise JobRefusedError(
                f"the bookie starts the {kind} job by itself when there is need of it"
            )
        found = checked_arguments(kind, arguments, self._disk_uuid)
        job = self.registry.add(kind, found, _now_ms())
        await self.save()  # an id that a client has seen is never given again
        self._start(job)
        return job

    def _disk_uuid(self, name: str) -> str:
        if self._bookie.changes is None:
            raise JobRefusedError("the bookie is still starting: try again when it is up")
        return self._bookie.changes.drains.find(name).uuid

    async def control(self, number: int, action: JobAction, bytes_per_second: int = 0) -> Job:
        """Carry out an operator's action on a job. Raises NoSuchJobError, JobRefusedError."""
        job = self.registry.control(number, action, bytes_per_second)
        self._send(ControlJob(id=number, action=action, bytes_per_second=bytes_per_second))
        await self.save()
        return job

    @property
    def rate(self) -> int | None:
        """The rate limit of all jobs that an operator set; None: as configured."""
        return None if self.bytes_per_second == AS_CONFIGURED else self.bytes_per_second

    def pace(self, bytes_per_second: int) -> None:
        """Set the rate limit of all jobs: 0 for none, or AS_CONFIGURED."""
        self.bytes_per_second = bytes_per_second
        self._send(ControlJob(id=0, action=JobAction.RATE, bytes_per_second=bytes_per_second))

    # ---- the repair process -------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Hand all unfinished jobs to a new repair process."""
        self._repair_since_s = time.monotonic()
        if self.bytes_per_second != AS_CONFIGURED:
            self.pace(self.bytes_per_second)
        for job in self.registry.active():
            self._start(job)

    def lost(self) -> None:
        """Note that the repair process has ended."""
        self.registry.process_ended(_now_ms(), time.monotonic() - self._repair_since_s)
        self._changed = True

    def report(self, message: JobReport) -> None:
        """Take the repair process's report on a job."""
        job = self.registry.report(message.values, _now_ms())
        if job is None:
            return
        self._changed = True
        if _is_check(job) and job.state is JobState.FAILED:
            self.must_check = True
        if job.state.ended:
            self._saved_s = 0.0  # saved at the next tick
            level = logging.ERROR if job.state is JobState.FAILED else logging.INFO
            log.log(level, "job %d (%s) %s %s", job.id, job.kind, job.state, job.error)

    def _start(self, job: Job) -> None:
        self._send(StartJob(id=job.id, kind=job.kind, arguments=job.arguments))
        if job.bytes_per_second:
            rate = job.bytes_per_second
            self._send(ControlJob(id=job.id, action=JobAction.RATE, bytes_per_second=rate))
        if job.asked:
            self._send(ControlJob(id=job.id, action=job.asked))

    def _send(self, message: Message) -> None:
        if self._bookie.repair is not None and self._bookie.repair.running:
            self._bookie.repair.control.send(message)

    # ---- the history --------------------------------------------------------------------------------

    async def save(self) -> None:
        """Write the history to every disk that can take it now."""
        self._changed = False
        self._saved_s = time.monotonic()
        self._document = self._file.next_document(self.registry)
        for disk in self._bookie.disks:
            before = self._saving.get(disk.uuid)
            if disk.usable and not disk.trouble and (before is None or before.done()):
                self._saving[disk.uuid] = background.start(
                    self._save_to(disk), "keeping the history of jobs"
                )
        if self._saving:
            _done, unsaved = await asyncio.wait(self._saving.values(), timeout=_SAVE_TIMEOUT_S)
            if unsaved:
                log.warning("%d disks are slow to take the history of jobs", len(unsaved))

    async def _save_to(self, disk: Disk) -> None:
        """Write until the disk has the newest history: it may change while an older one is written."""
        written: dict[str, object] = {}
        try:
            while written is not self._document:
                written = self._document
                await asyncio.to_thread(self._file.write, disk.path, written)
            self._refusing.discard(disk.uuid)
        except DiskError as error:
            if disk.uuid not in self._refusing:
                log.warning("the history of jobs cannot be kept on %s: %s", disk.path, error)
            self._refusing.add(disk.uuid)


def _is_check(job: Job) -> bool:
    """True if it compares all copies of this bookie."""
    return job.kind is JobKind.CHECK and not job.arguments


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
