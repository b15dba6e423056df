"""The jobs of a bookie, as its supervisor keeps them: it gives them their ids, hands them to the repair process, takes
its reports, keeps the history on disk, and starts by itself what is due.

The repair process may end at any time: every job that goes on is handed to the next one, with what was asked of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from bkbox.errors import BkboxError, DiskError, EncodingError
from bkbox.ipc import messages
from bkbox.jobs.job import Job, JobAction, JobKind, JobState
from bkbox.supervisor import schedule
from bkbox.supervisor.jobfile import JobFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bkbox.supervisor.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
_SAVE_PROGRESS_EVERY_S = 5.0
_ASK_TIMEOUT_S = 5.0
_SAVE_TIMEOUT_S = 5.0
"""A disk that takes longer is left alone until it has finished: nobody waits for a history."""

AS_CONFIGURED = -1
"""The speed limit of all jobs that the configuration gives."""


class Jobs:
    """``bookie``: whose disks, configuration and repair process these are."""

    def __init__(self, bookie: Supervisor, file: JobFile) -> None:
        self._bookie = bookie
        self._file = file
        self.registry = file.load([disk.path for disk in bookie.disks])
        self._began_ms = _now_ms()
        self.registry.process_ended(self._began_ms, None)
        self.bytes_per_second = AS_CONFIGURED
        """Of all jobs, until the bookie ends."""
        self._repair_since_s = time.monotonic()
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._document: dict[str, object] = {}
        self._refusing: set[str] = set()
        """Disks that did not take the history when it was last written."""
        self._changed = False
        self._saved_s = 0.0
        self.hand_over()

    def limbo(self) -> Job | None:
        """The limbo job that goes on, or else the last one since the bookie began."""
        job = self.registry.last(JobKind.LIMBO, {})
        if job is None or (job.ended_ms is not None and job.ended_ms < self._began_ms):
            return None
        return job

    async def run(self) -> None:
        """For ever: start what is due, keep the history."""
        while True:
            await self._start_due()
            if self._changed and time.monotonic() - self._saved_s >= _SAVE_PROGRESS_EVERY_S:
                await self.save()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _start_due(self) -> None:
        limbo = any([await self._has_limbo(disk) for disk in self._bookie.disks])
        config = self._bookie.config
        due = schedule.due(
            config, self.registry, limbo=limbo, now_ms=_now_ms(), began_ms=self._began_ms
        )
        for kind in due:
            job = self.registry.add(kind, {}, _now_ms(), automatic=True)
            self._changed = True
            self._start(job)

    async def _has_limbo(self, disk: Disk) -> bool:
        """Asked anew where it looks so and no limbo job is at work: what was said last may be older than its end."""
        if not disk.usable or not disk.stats.get("limbo_ledgers"):
            return False
        if any(job.kind is JobKind.LIMBO for job in self.registry.active()):
            return True
        try:
            found = await disk.call(messages.GetStats(), timeout_s=_ASK_TIMEOUT_S)
        except (BkboxError, TimeoutError):
            return False  # it is looked at again soon
        assert isinstance(found, messages.Stats)
        return bool(found.values["limbo_ledgers"])

    # ---- what operators ask -------------------------------------------------------------------------

    async def start(self, kind: JobKind, arguments: Mapping[str, str]) -> Job:
        """Raises JobRefusedError."""
        job = self.registry.add(kind, arguments, _now_ms())
        await self.save()  # an id that was told is never given again
        self._start(job)
        return job

    async def control(self, number: int, action: JobAction, bytes_per_second: int = 0) -> Job:
        """Raises NoSuchJobError, JobRefusedError."""
        job = self.registry.control(number, action, bytes_per_second)
        self._send(messages.ControlJob(id=number, action=action, bytes_per_second=bytes_per_second))
        await self.save()
        return job

    def pace(self, bytes_per_second: int) -> None:
        """The speed limit of all jobs: 0 for none, or AS_CONFIGURED."""
        self.bytes_per_second = bytes_per_second
        self._send(
            messages.ControlJob(id=0, action=JobAction.RATE, bytes_per_second=bytes_per_second)
        )

    # ---- the repair process -------------------------------------------------------------------------

    def hand_over(self) -> None:
        """There is a new repair process: it gets all that goes on."""
        self._repair_since_s = time.monotonic()
        if self.bytes_per_second != AS_CONFIGURED:
            self.pace(self.bytes_per_second)
        for job in self.registry.active():
            self._start(job)

    def lost(self) -> None:
        """The repair process has ended."""
        self.registry.process_ended(_now_ms(), time.monotonic() - self._repair_since_s)
        self._changed = True

    def report(self, message: messages.JobReport) -> None:
        """The repair process says how a job goes."""
        job = self.registry.report(message.values, _now_ms())
        if job is None:
            return
        self._changed = True
        if job.state.ended:
            self._saved_s = 0.0  # at the next look
            level = logging.ERROR if job.state is JobState.FAILED else logging.INFO
            log.log(level, "job %d (%s) %s %s", job.id, job.kind, job.state, job.error)

    def _start(self, job: Job) -> None:
        self._send(messages.StartJob(id=job.id, kind=job.kind, arguments=job.arguments))
        if job.bytes_per_second:
            rate = job.bytes_per_second
            self._send(messages.ControlJob(id=job.id, action=JobAction.RATE, bytes_per_second=rate))
        if job.asked:
            self._send(messages.ControlJob(id=job.id, action=job.asked))

    def _send(self, message: messages.Message) -> None:
        if self._bookie.repair is not None and self._bookie.repair.running:
            self._bookie.repair.control.send(message)

    # ---- the history --------------------------------------------------------------------------------

    async def save(self) -> None:
        """Write the history to every disk that takes it now."""
        self._changed = False
        self._saved_s = time.monotonic()
        self._document = self._file.next_document(self.registry)
        for disk in self._bookie.disks:
            before = self._saving.get(disk.uuid)
            if disk.usable and not disk.trouble and (before is None or before.done()):
                self._saving[disk.uuid] = asyncio.ensure_future(self._save_to(disk))
        if self._saving:
            _done, late = await asyncio.wait(self._saving.values(), timeout=_SAVE_TIMEOUT_S)
            if late:
                log.warning("%d disks are slow to take the history of jobs", len(late))

    async def _save_to(self, disk: Disk) -> None:
        """Until the newest is there: it may change while an older one is written."""
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


def kind_of(text: object) -> JobKind:
    """Raises EncodingError."""
    try:
        return JobKind(str(text))
    except ValueError:
        kinds = ", ".join(JobKind)
        raise EncodingError(f"there is no kind of job {text!r}; there are {kinds}") from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
