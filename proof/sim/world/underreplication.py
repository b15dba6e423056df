"""Marks, locks, election and maintenance windows of the simulated metadata store (bkbox/metadata/underreplication.py).

A lock, and a vote, ends with its process or with the process's session, whose end the process does not notice. A change
whose response is lost has taken effect all the same. As the real clients of the store do after a lost response, it is
ensured here that a lock is not kept by a process that does not know of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import MetadataUnavailableError
from bkbox.metadata.maintenance import MaintenanceWindow, MaintenanceWindows
from bkbox.metadata.underreplication import (
    Candidacy,
    Lock,
    Mark,
    RecoveryDelay,
    Task,
    UnderReplication,
)
from bkbox.wire.metadata.underreplication import UnderreplicatedLedger
from proof.sim.world.loop import Process, Scheduler

Delay = Callable[[], Awaitable[None]]
"""The delay of one way to the store or back; raises MetadataUnavailableError."""


class SimLock:
    """A lock or a vote. ``name``: given by its holder; ``lost``: the session has ended."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.lost = False

    @property
    def is_live(self) -> bool:
        return not self.lost and not self.process.dead


class Marks:
    """The stored data of all processes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.marks: dict[int, Mark] = {}
        self.locks: dict[int, SimLock] = {}
        self.votes: list[SimLock] = []
        self.delay: RecoveryDelay | None = None
        self.enabled = True
        self.full_check_ms: int | None = None
        self.windows: dict[BookieId, MaintenanceWindow] = {}
        self._last_number = 0

    def new_number(self) -> int:
        """A number that was never used before."""
        self._last_number += 1
        return self._last_number

    def lock(self, ledger: int) -> SimLock | None:
        """The live lock of a ledger."""
        lock = self.locks.get(ledger)
        return lock if lock is not None and lock.is_live else None

    def elected(self) -> SimLock | None:
        self.votes = [vote for vote in self.votes if vote.is_live]
        return self.votes[0] if self.votes else None

    def expire(self, host: str) -> None:
        """Ends the sessions of all processes of a host."""
        for lock in (*self.locks.values(), *self.votes):
            if lock.process.name.startswith(f"{host} "):
                lock.lost = True


class SimUnderReplication(UnderReplication):
    """One process's view. ``request_delay``: delay of a request, or of the response to a read; ``response_delay``: of
    the response to a change.
    """

    def __init__(
        self, marks: Marks, process: Process, request_delay: Delay, response_delay: Delay
    ) -> None:
        self._marks = marks
        self._process = process
        self._request_delay = request_delay
        self._response_delay = response_delay

    # ---- marks ------------------------------------------------------------------------------

    async def mark(self, ledger: LedgerId, replicas: Collection[str], now_ms: int) -> None:
        await self._request_delay()
        marks = self._marks
        found = marks.marks.get(ledger)
        before = UnderreplicatedLedger((), now_ms) if found is None else found.missing
        after = before.marked_again(replicas, now_ms)
        if found is None or after is not before:
            marks.marks[ledger] = Mark(after, marks.new_number())
            missing = " ".join(after.replicas)
            marks.scheduler.note("metadata", "ledger %d is marked: %s", ledger, missing)
        await self._response_delay()

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        await self._request_delay()
        for ledger in sorted(self._marks.marks):
            yield LedgerId(ledger)

    async def read_mark(self, ledger: LedgerId) -> Mark | None:
        await self._request_delay()
        found = self._marks.marks.get(ledger)
        await self._request_delay()
        return found

    # ---- work -------------------------------------------------------------------------------

    async def _acquire_lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        await self._request_delay()
        if self._marks.lock(ledger) is not None:
            return None
        lock = self._marks.locks[ledger] = SimLock(self._process, holder or "")
        try:
            await self._request_delay()
        except MetadataUnavailableError:
            lock.lost = True
            raise
        return Lock(ledger, lock)

    async def _give_back(self, lock: Lock) -> None:
        if self._marks.locks.get(lock.ledger) is lock.owner:
            del self._marks.locks[lock.ledger]
        await self._request_delay()

    async def locked(self) -> frozenset[LedgerId]:
        await self._request_delay()
        locks = self._marks.locks
        return frozenset(LedgerId(ledger) for ledger, lock in locks.items() if lock.is_live)

    async def holder(self, ledger: LedgerId) -> str | None:
        await self._request_delay()
        lock = self._marks.lock(ledger)
        return None if lock is None else lock.name

    async def finish(self, task: Task) -> bool:
        await self._request_delay()
        marks = self._marks
        found = marks.marks.get(task.ledger)
        is_ours = marks.lock(task.ledger) is task.lock.owner
        done = is_ours and found is not None and found.version == task.mark.version
        if done:
            del marks.marks[task.ledger]
            marks.scheduler.note("metadata", "the mark of ledger %d is gone", task.ledger)
        await self.unlock(task.lock)
        await self._response_delay()
        return done

    # ---- the auditor ------------------------------------------------------------------------

    def candidacy(self, name: str) -> Candidacy:
        return SimCandidacy(self._marks, SimLock(self._process, name), self._request_delay)

    async def auditor(self) -> str | None:
        await self._request_delay()
        elected = self._marks.elected()
        return None if elected is None else elected.name

    async def last_full_check_ms(self) -> int | None:
        await self._request_delay()
        return self._marks.full_check_ms

    async def set_last_full_check_ms(self, time_ms: int) -> None:
        await self._request_delay()
        self._marks.full_check_ms = time_ms
        await self._response_delay()

    # ---- switches ---------------------------------------------------------------------------

    async def enabled(self) -> bool:
        await self._request_delay()
        return self._marks.enabled

    async def set_enabled(self, enabled: bool) -> None:
        await self._request_delay()
        self._marks.enabled = enabled
        await self._response_delay()

    async def recovery_delay(self) -> RecoveryDelay | None:
        await self._request_delay()
        return self._marks.delay

    async def set_recovery_delay_s(self, seconds: int) -> None:
        await self._request_delay()
        before = self._marks.delay
        self._marks.delay = RecoveryDelay(seconds, 0 if before is None else before.version + 1)
        await self._response_delay()


class SimCandidacy(Candidacy):
    """A vote; cast again once its session has ended."""

    def __init__(self, marks: Marks, vote: SimLock, request_delay: Delay) -> None:
        self._marks = marks
        self._vote = vote
        self._request_delay = request_delay

    async def is_elected(self) -> bool:
        await self._request_delay()
        if not self._vote.is_live:
            self._vote = SimLock(self._vote.process, self._vote.name)
        if self._vote not in self._marks.votes:
            self._marks.votes.append(self._vote)
        return self._marks.elected() is self._vote

    async def changed(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)

    async def close(self) -> None:
        self._vote.lost = True


class SimMaintenanceWindows(MaintenanceWindows):
    """Without Java's auditors, which have no part in a simulated cluster."""

    java = None

    def __init__(self, marks: Marks, request_delay: Delay, response_delay: Delay) -> None:
        self._marks = marks
        self._request_delay = request_delay
        self._response_delay = response_delay

    async def all(self) -> dict[BookieId, MaintenanceWindow]:
        await self._request_delay()
        return dict(self._marks.windows)

    async def put(self, bookie: BookieId, window: MaintenanceWindow) -> None:
        await self._request_delay()
        self._marks.windows[bookie] = window
        await self._response_delay()

    async def remove(self, bookie: BookieId) -> None:
        await self._request_delay()
        self._marks.windows.pop(bookie, None)
        await self._response_delay()
