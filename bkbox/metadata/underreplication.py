"""Ledgers that lack replicas, and the locks of the workers that repair them: the interface of every metadata store.

A ledger is *marked* with the names of the bookies whose copies are missing. A worker *acquires* it: it notes the
mark's version, then takes the ledger's lock. It *finishes* by deleting the mark of that version (marked again
meanwhile: the mark stays, for the next worker) and then the lock, or *releases* the lock alone. A lock belongs to a
living process and vanishes with it. A worker that has lost its lock unawares does no harm, since ledger metadata is
changed by compare-and-set alone, and it finishes nothing.

The lock also serves other parties that must not meet a worker at a ledger, such as a bookie that is about to delete
its surplus copy.

One *auditor* is elected among the candidates; its vote, too, vanishes with its process. Two auditors may be elected
for a moment, which nothing here can exclude; they do the same work twice.

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

FULL_CHECK_REQUESTED = 0
"""As the time of the last full check: an auditor of bkbox begins one at once, whatever its interval."""


class Lock(NamedTuple):
    """The acquired lock of a ledger; ``owner`` distinguishes it from a later lock of another holder."""

    ledger: LedgerId
    owner: object


class Mark(NamedTuple):
    """A mark as it was read; ``version`` distinguishes it from later states."""

    missing: UnderreplicatedLedger
    version: object


class Task(NamedTuple):
    """An acquired ledger: its mark, up to the version that will be finished, and the lock."""

    ledger: LedgerId
    mark: Mark
    lock: Lock


class RecoveryDelay(NamedTuple):
    """The auditor's delay before it repairs a lost bookie. ``version`` changes with every write, even of the same
    value: that tells the auditor to begin at once.
    """

    seconds: int
    version: int


class Candidacy(ABC):
    """A vote in an election, of the auditor or of a log's writer; cast again when it was lost."""

    @abstractmethod
    async def is_elected(self) -> bool:
        """True if this candidate is elected now. Raises MetadataError."""

    @abstractmethod
    async def changed(self, wait_s: float) -> None:
        """Wait until the result may have changed, ``wait_s`` at most."""

    @abstractmethod
    async def close(self) -> None:
        """Withdraw the vote."""


class UnderReplication(ABC):
    """Marks, locks, election and switches of one cluster. Every method raises MetadataError."""

    # ---- marks ------------------------------------------------------------------------------

    @abstractmethod
    async def mark(self, ledger: LedgerId, replicas: Collection[str], now_ms: int) -> None:
        """Add these bookies to the ledger's mark: their copies are missing."""

    @abstractmethod
    def ledgers(self) -> AsyncIterator[LedgerId]:
        """All marked ledgers, ascending; the marks themselves are not read."""

    @abstractmethod
    async def read_mark(self, ledger: LedgerId) -> Mark | None:
        """The mark of a ledger and its version, or None."""

    async def find(self, ledger: LedgerId) -> UnderreplicatedLedger | None:
        """The mark of a ledger, or None."""
        found = await self.read_mark(ledger)
        return None if found is None else found.missing

    async def count(self) -> int:
        """The number of marked ledgers."""
        return sum([1 async for _ in self.ledgers()])

    # ---- work -------------------------------------------------------------------------------

    async def lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        """Acquire the lock of a ledger, marked or not; None if it is held. ``holder``: host name of this process."""
        acquiring = asyncio.ensure_future(self._acquire_lock(ledger, holder))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            # The lock may be ours by now, and would never be released.
            with suppress(MetadataError):
                lock = await acquiring
                if lock is not None:
                    await self.unlock(lock)
            raise

    @abstractmethod
    async def _acquire_lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        """As ``lock``; not cancelled."""

    async def unlock(self, lock: Lock) -> None:
        """Release a lock, also if the caller is cancelled; a lock that was lost meanwhile is left alone."""
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
        """The host name that the holder of a ledger's lock gave, empty if none; None if the lock is free."""

    async def acquire(self, ledger: LedgerId, holder: str | None) -> Task | None:
        """Acquire a ledger; None if it is not marked or another worker holds it."""
        # The version has to be older than everything that the worker reads: its repair does not cover later marks.
        mark = await self.read_mark(ledger)
        if mark is None:
            return None
        lock = await self.lock(ledger, holder)
        return None if lock is None else Task(ledger, mark, lock)

    async def claim(
        self, ledger: LedgerId, replicas: Collection[str], now_ms: int, holder: str | None
    ) -> Task | None:
        """Mark a ledger and acquire it, so that no other worker is first; None if another worker holds it."""
        lock = await self.lock(ledger, holder)
        if lock is None:
            return None
        try:
            await self.mark(ledger, replicas, now_ms)
            mark = await self.read_mark(ledger)
        except BaseException:
            await self.unlock(lock)
            raise
        if mark is None:  # deleted by hand
            await self.unlock(lock)
            return None
        return Task(ledger, mark, lock)

    @abstractmethod
    async def finish(self, task: Task) -> bool:
        """The ledger has all its replicas again, as far as it was marked when it was acquired. False if the mark
        stays: it was marked again, or the lock was lost.
        """

    async def release(self, task: Task) -> None:
        """Release a ledger."""
        await self.unlock(task.lock)

    # ---- the auditor ------------------------------------------------------------------------

    @abstractmethod
    def candidacy(self, name: str) -> Candidacy:
        """Stand for auditor, under this bookie id, from the first ``is_elected`` on."""

    @abstractmethod
    async def auditor(self) -> str | None:
        """The bookie id in the present auditor's vote; None without an auditor."""

    @abstractmethod
    async def last_full_check_ms(self) -> int | None:
        """Time of the last complete check of all ledgers, entry by entry; None if never."""

    @abstractmethod
    async def set_last_full_check_ms(self, time_ms: int) -> None:
        """Record a complete check; FULL_CHECK_REQUESTED asks for one."""

    # ---- switches ---------------------------------------------------------------------------

    @abstractmethod
    async def enabled(self) -> bool:
        """True if auditor and workers may work."""

    @abstractmethod
    async def set_enabled(self, enabled: bool) -> None:
        """Let auditor and workers work, or pause them."""

    @abstractmethod
    async def recovery_delay(self) -> RecoveryDelay | None:
        """The auditor's delay before it repairs a lost bookie; None if not set."""

    @abstractmethod
    async def set_recovery_delay_s(self, seconds: int) -> None:
        """Set the delay. Writing the same value again tells the auditor to start at once."""
