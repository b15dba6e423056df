"""Ledgers that lack replicas, and who is at work on them: what every metadata store offers for it.

A ledger is *marked* with the names of the bookies whose copies are missing. A worker *acquires* it: it notes which mark
it saw, then takes the ledger's lock. It *finishes* by deleting the mark that it saw (marked again meanwhile: the mark
stays, for the next worker) and then the lock, or *releases* the lock alone. A lock belongs to a living process and
vanishes with it; a worker that has lost its lock without knowing harms nobody, since ledger metadata is changed by
compare-and-set alone, and finishes nothing.

The lock is also for whoever must not meet a worker at a ledger, as a bookie that is about to delete its surplus copy.

One *auditor* is elected among the candidates; the vote vanishes with its process, too. Two auditors at once, which
nothing here can exclude for a moment, do the same work twice.

Source: LedgerUnderreplicationManager.java, LedgerAuditorManager.java.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import NamedTuple

from bkbox.base.ids import LedgerId
from bkbox.errors import MetadataError
from bkbox.wire.metadata.underreplication import UnderreplicatedLedger


class Lock(NamedTuple):
    """The lock of a ledger, held; ``owner`` tells it from a later one of somebody else."""

    ledger: LedgerId
    owner: object


class Mark(NamedTuple):
    """A mark as it was when it was looked at; ``version`` tells it from what it became since."""

    missing: UnderreplicatedLedger
    version: object


class Task(NamedTuple):
    """An acquired ledger: its mark, as far as it will be finished, and the lock."""

    ledger: LedgerId
    mark: Mark
    lock: Lock


class RecoveryDelay(NamedTuple):
    """How long the auditor waits for a lost bookie. ``version`` changes when it is written, even with the same value:
    that tells the auditor to begin at once."""

    seconds: int
    version: int


class Candidacy(ABC):
    """A vote in an election, of the auditor or of who writes a log; given anew where it was lost."""

    @abstractmethod
    async def is_elected(self) -> bool:
        """Whether this candidate is elected now. Raises MetadataError."""

    @abstractmethod
    async def changed(self, wait_s: float) -> None:
        """Wait until that may have changed, ``wait_s`` at most."""

    @abstractmethod
    async def close(self) -> None:
        """Stand no more."""


class UnderReplication(ABC):
    """Marks, locks, election and switches of one cluster. Every method raises MetadataError."""

    # ---- marks ------------------------------------------------------------------------------

    @abstractmethod
    async def mark(self, ledger: LedgerId, replicas: Collection[str], now_ms: int) -> None:
        """Say that these bookies' copies of a ledger are missing, beside those said before."""

    @abstractmethod
    def ledgers(self) -> AsyncIterator[LedgerId]:
        """All marked ledgers, ascending; the marks themselves are not read."""

    @abstractmethod
    async def look(self, ledger: LedgerId) -> Mark | None:
        """The mark of a ledger and its version, or None."""

    async def find(self, ledger: LedgerId) -> UnderreplicatedLedger | None:
        """The mark of a ledger, or None."""
        found = await self.look(ledger)
        return None if found is None else found.missing

    async def count(self) -> int:
        """How many ledgers are marked."""
        return sum([1 async for _ in self.ledgers()])

    # ---- work -------------------------------------------------------------------------------

    async def lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        """Take the lock of a ledger, marked or not; None if somebody has it. ``holder``: host name of the taker."""
        taking = asyncio.ensure_future(self._take_lock(ledger, holder))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # It may be ours by now, and nobody would ever give it back.
            with suppress(MetadataError):
                taken = await taking
                if taken is not None:
                    await self.unlock(taken)
            raise

    @abstractmethod
    async def _take_lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        """As ``lock``; not cancelled."""

    async def unlock(self, lock: Lock) -> None:
        """Give a lock back, also where the caller is cancelled; one that was lost meanwhile is let alone."""
        giving = asyncio.ensure_future(self._give_back(lock))
        try:
            await asyncio.shield(giving)
        except asyncio.CancelledError:
            with suppress(MetadataError):
                await giving
            raise

    @abstractmethod
    async def _give_back(self, lock: Lock) -> None:
        """As ``unlock``; not cancelled."""

    @abstractmethod
    async def locked(self) -> frozenset[LedgerId]:
        """The ledgers that are locked now."""

    @abstractmethod
    async def holder(self, ledger: LedgerId) -> str | None:
        """Who has the lock of a ledger: the host name that he gave, empty if none; None while nobody has it."""

    async def acquire(self, ledger: LedgerId, holder: str | None) -> Task | None:
        """Take a ledger; None if it is not marked or somebody else has it."""
        # The version has to be older than all that the taker looks at: what is marked later is not done by it.
        mark = await self.look(ledger)
        if mark is None:
            return None
        lock = await self.lock(ledger, holder)
        return None if lock is None else Task(ledger, mark, lock)

    async def claim(
        self, ledger: LedgerId, replicas: Collection[str], now_ms: int, holder: str | None
    ) -> Task | None:
        """Mark a ledger and take it, so that no other worker is first; None if somebody else has it."""
        lock = await self.lock(ledger, holder)
        if lock is None:
            return None
        try:
            await self.mark(ledger, replicas, now_ms)
            mark = await self.look(ledger)
        except BaseException:
            await self.unlock(lock)
            raise
        if mark is None:  # deleted by hand
            await self.unlock(lock)
            return None
        return Task(ledger, mark, lock)

    @abstractmethod
    async def finish(self, task: Task) -> bool:
        """The ledger has all its replicas again, as far as it was marked when it was taken. False if the mark stays:
        it was marked again, or the lock was lost."""

    async def release(self, task: Task) -> None:
        """Give a ledger back."""
        await self.unlock(task.lock)

    # ---- the auditor ------------------------------------------------------------------------

    @abstractmethod
    def candidacy(self, name: str) -> Candidacy:
        """Stand for auditor, under this bookie id, from the first ``is_elected`` on."""

    @abstractmethod
    async def auditor(self) -> str | None:
        """The bookie id that the present auditor gave with its vote; None without an auditor."""

    @abstractmethod
    async def last_full_check_ms(self) -> int | None:
        """When all ledgers were last checked entry by entry; None if never."""

    @abstractmethod
    async def set_last_full_check_ms(self, time_ms: int) -> None:
        """A full check is complete."""

    # ---- switches ---------------------------------------------------------------------------

    @abstractmethod
    async def enabled(self) -> bool:
        """Whether auditor and workers may work."""

    @abstractmethod
    async def set_enabled(self, enabled: bool) -> None:
        """Let auditor and workers work, or pause them."""

    @abstractmethod
    async def recovery_delay(self) -> RecoveryDelay | None:
        """How long the auditor waits for a lost bookie to come back; None if nobody has said."""

    @abstractmethod
    async def set_recovery_delay_s(self, seconds: int) -> None:
        """Writing the same value again tells the auditor to start at once."""
