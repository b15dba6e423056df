"""One run of a job in the repair process: the ``Work`` passed to its code, and the control requests for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from bkbox.base.token_bucket import TokenBucket
from bkbox.errors import JobCancelledError
from bkbox.jobs.job import JobState
from bkbox.repair.progress import Progress
from bkbox.repair.rate_limits import RateLimits

_RECHECK_S = 0.2
"""Seconds after which a waiting job checks its budget again: it may have been changed, and the job paused or
cancelled.
"""


class _JobControl(NamedTuple):
    """A request for a turn: pieces of work, and their costs together."""

    pieces: int
    disk_bytes: int
    network_bytes: int
    metadata_calls: int

    @property
    def costs(self) -> tuple[int, int, int]:
        return self[1:]

    @property
    def size(self) -> int:
        """Bytes that count for the job's own limit."""
        return max(self.disk_bytes, self.network_bytes)

    def within(self, own: float | None, shared: tuple[float | None, float | None]) -> _JobControl:
        """The number of pieces that these rates, in bytes per second, cover in a second, and at least one."""
        sizes = (self.size, self.disk_bytes, self.network_bytes)
        part = min(
            (
                rate / size
                for rate, size in zip((own, *shared), sizes, strict=True)
                if rate and size
            ),
            default=1.0,
        )
        count = max(1, int(self.pieces * min(1.0, part)))
        return _JobControl(count, *(cost * count // self.pieces for cost in self.costs))


class JobRun:
    """Implements ``Work``. Pieces of work of all jobs pass one after the other, in the order of their requests."""

    def __init__(
        self, number: int, pacer: RateLimits, gate: asyncio.Lock, monotonic_s: Callable[[], float]
    ) -> None:
        """``gate``: shared by all jobs, in front of ``pacer``."""
        self.number = number
        self._pacer = pacer
        self._gate = gate
        self._own_gate = asyncio.Lock()
        self._own = TokenBucket(None)
        self._now_s = monotonic_s
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._cancelled = False
        self._progress = Progress(monotonic_s())
        self._turn_s = monotonic_s()
        """Time when a turn was last requested or granted."""

    # ---- from outside -------------------------------------------------------------------------------

    def cancel(self) -> None:
        self._cancelled = True
        self._resumed.set()

    def pause(self) -> None:
        if not self._cancelled:
            self._resumed.clear()

    def resume(self) -> None:
        if not self._resumed.is_set():
            self._progress.resume_clock(self._now_s())
            self._resumed.set()

    def limit(self, bytes_per_second: int) -> None:
        """Set the job's own rate limit, in bytes a second; 0: none."""
        self._own.set_rate(bytes_per_second or None, self._now_s())

    def report(self) -> dict[str, Any]:
        """The fields of a Job that report its progress."""
        now_s = self._now_s()
        state = JobState.BLOCKED if self._progress.is_blocked(now_s) else JobState.RUNNING
        if not self._resumed.is_set():
            state = JobState.PAUSED
        idle_minutes = int((now_s - self._turn_s) / 60)
        values = self._progress.values(now_s)
        return {"id": self.number, "state": state.value, "idle_minutes": idle_minutes, **values}

    # ---- Work ---------------------------------------------------------------------------------------

    async def checkpoint(
        self,
        *,
        pieces: int = 1,
        disk_bytes: int = 0,
        network_bytes: int = 0,
        metadata_calls: int = 0,
    ) -> int:
        self._turn_s = self._now_s()
        request = _JobControl(pieces, disk_bytes, network_bytes, metadata_calls)
        async with self._own_gate if request.size else nullcontext():
            while (granted := await self._try(request)) is None:
                pass
        self._turn_s = self._now_s()
        return granted

    async def _try(self, request: _JobControl) -> int | None:
        """Try to get a turn; None where a pause, a cancel or another limit came while it waited at the shared gate."""
        await self._resumed.wait()
        if self._cancelled:
            raise JobCancelledError(f"job {self.number} was cancelled")
        if request.size:
            await self._wait_for(self._own.wait_s)
        async with self._gate:
            await self._wait_for(partial(self._pacer.wait_s, *request.costs))
            now_s = self._now_s()
            if not self._may_go or (request.size and self._own.wait_s(now_s) > 0):
                return None
            granted = request.within(self._own.rate, self._pacer.rates())
            self._own.spend(granted.size, now_s)
            self._pacer.spend(*granted.costs, now_s)
            return granted.pieces

    @property
    def _may_go(self) -> bool:
        return self._resumed.is_set() and not self._cancelled

    async def _wait_for(self, wait_s: Callable[[float], float]) -> None:
        while self._may_go and (wait := wait_s(self._now_s())) > 0:
            await asyncio.sleep(min(wait, _RECHECK_S))

    def allowance(self) -> int | None:
        rates = [rate for rate in (self._own.rate, *self._pacer.rates()) if rate is not None]
        return int(min(rates)) if rates else None

    def expect(
        self, *, ledgers: int | None = None, entries: int | None = None, size: int | None = None
    ) -> None:
        self._progress.expect(ledgers, entries, size)

    def add_progress(self, *, ledgers: int = 0, entries: int = 0, size: int = 0) -> None:
        self._progress.add_progress(ledgers, entries, size, self._now_s())

    def count(self, what: str, amount: int = 1) -> None:
        self._progress.count(what, amount, self._now_s())

    def set_step(self, step: str, *, standing_by: bool = False) -> None:
        self._progress.step, self._progress.standing_by = step, standing_by

    def block(self, ledger: int, reason: str, what_to_do: str) -> None:
        self._progress.block(ledger, reason, what_to_do)

    def unblock(self, ledger: int) -> None:
        self._progress.unblock(ledger)
