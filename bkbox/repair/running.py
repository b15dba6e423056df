"""One run of a job in the repair process: the ``Work`` that its code is given, and what is asked of it from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bkbox.errors import JobCancelledError
from bkbox.jobs.job import JobState
from bkbox.repair.pace import Bucket, Pacer
from bkbox.repair.progress import Progress

_LOOK_AGAIN_S = 0.2
"""A budget is looked at again at least so often: it may have been changed, and the job paused or cancelled."""


class RunningJob:
    """Implements ``Work``. Pieces of work of all jobs pass one after the other, in the order in which they asked."""

    def __init__(
        self, number: int, pacer: Pacer, gate: asyncio.Lock, monotonic_s: Callable[[], float]
    ) -> None:
        """``gate``: that of all jobs, in front of ``pacer``."""
        self.number = number
        self._pacer = pacer
        self._gate = gate
        self._own_gate = asyncio.Lock()
        self._own = Bucket(None)
        self._now_s = monotonic_s
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._cancelled = False
        self._progress = Progress(monotonic_s())

    # ---- from outside -------------------------------------------------------------------------------

    def cancel(self) -> None:
        self._cancelled = True
        self._goes_on.set()

    def pause(self) -> None:
        if not self._cancelled:
            self._goes_on.clear()

    def resume(self) -> None:
        if not self._goes_on.is_set():
            self._progress.rested(self._now_s())
            self._goes_on.set()

    def limit(self, bytes_per_second: int) -> None:
        """Its own speed limit; 0: none."""
        self._own.set_rate(bytes_per_second or None, self._now_s())

    def report(self) -> dict[str, Any]:
        """Those fields of a Job that say how it goes."""
        now_s = self._now_s()
        state = JobState.BLOCKED if self._progress.is_blocked(now_s) else JobState.RUNNING
        if not self._goes_on.is_set():
            state = JobState.PAUSED
        return {"id": self.number, "state": state.value, **self._progress.values(now_s)}

    # ---- Work ---------------------------------------------------------------------------------------

    async def turn(
        self, *, disk_bytes: int = 0, network_bytes: int = 0, metadata_calls: int = 0
    ) -> None:
        await self._leave()
        size = max(disk_bytes, network_bytes)
        if size:
            async with self._own_gate:
                await self._wait_for(self._own.wait_s)
                self._own.spend(size, self._now_s())

        def wait_s(now_s: float) -> float:
            return self._pacer.wait_s(disk_bytes, network_bytes, metadata_calls, now_s)

        async with self._gate:
            await self._wait_for(wait_s)
            self._pacer.spend(disk_bytes, network_bytes, metadata_calls, self._now_s())
        await self._leave()

    async def _leave(self) -> None:
        await self._goes_on.wait()
        if self._cancelled:
            raise JobCancelledError(f"job {self.number} was cancelled")

    async def _wait_for(self, wait_s: Callable[[float], float]) -> None:
        while (wait := wait_s(self._now_s())) > 0 and not self._cancelled:
            await asyncio.sleep(min(wait, _LOOK_AGAIN_S))

    def expect(
        self, *, ledgers: int | None = None, entries: int | None = None, size: int | None = None
    ) -> None:
        self._progress.expect(ledgers, entries, size)

    def did(self, *, ledgers: int = 0, entries: int = 0, size: int = 0) -> None:
        self._progress.did(ledgers, entries, size, self._now_s())

    def count(self, what: str, amount: int = 1) -> None:
        self._progress.count(what, amount, self._now_s())

    def say(self, step: str) -> None:
        self._progress.step = step

    def block(self, ledger: int, reason: str, what_to_do: str) -> None:
        self._progress.block(ledger, reason, what_to_do)

    def unblock(self, ledger: int) -> None:
        self._progress.unblock(ledger)
