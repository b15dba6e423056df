"""Background work of a ledger's writer: it retries failed bookies, and tells readers its LAC.

- While members of the ensemble are failed and were not replaced, each is retried after a pause, with the last add it
  was sent. Only if it accepts that add does the machine get an event. A bookie that lost its host fences its open
  ledgers when it starts, and must not end the writer by that. (A recovery by another client fences the other bookies
  too, and they will report it.)
- The explicit LAC is for readers of an idle writer: no later entry carries it to the bookies. It is sent at the
  interval that the options give, if it has changed, to the bookies of the entry that it names, and again until an ack
  quorum of them has it. A failure does no harm.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bkbox.base import background
from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.client.ledger.driver import Driver, LedgerAccess
from bkbox.client.options import new_backoff
from bkbox.errors import MetadataError
from bkbox.protocol import writer
from bkbox.protocol.events import BookieRecovered
from bkbox.wire.codes import Code
from bkbox.wire.write_set import write_set


class WriterBackground:
    """The background work of one writer, until ``stop``. ``explicit_lac_interval_s`` 0: the LAC is not sent."""

    def __init__(
        self,
        access: LedgerAccess,
        machine: writer.LedgerWriter,
        driver: Driver,
        explicit_lac_interval_s: float,
    ) -> None:
        self._access = access
        self._machine = machine
        self._driver = driver
        self._is_over = False
        self._retries: asyncio.Task[None] | None = None
        self._announcements: asyncio.Task[None] | None = None
        if explicit_lac_interval_s > 0:
            self._announcements = background.start(
                self._announce_lac(explicit_lac_interval_s), "announcing the explicit LAC"
            )

    def start_retries(self) -> None:
        """Start the retries; called when a bookie may have failed."""
        if self._retries is None and self._has_failed():
            self._retries = background.start(self._retry_failed(), "asking failed bookies again")

    def stop(self) -> None:
        self._is_over = True
        for task in (self._retries, self._announcements):
            if task is not None:
                task.cancel()

    # ---- bookies that failed and were not replaced ----------------------------------------------

    def _has_failed(self) -> bool:
        machine = self._machine
        return bool(machine.failed_bookies) and machine.failure is None and not self._is_over

    async def _retry_failed(self) -> None:
        backoff = new_backoff(self._access.options, self._access.rng)
        while self._has_failed():
            await asyncio.sleep(backoff.next_s())
            for bookie in sorted(self._machine.failed_bookies):
                if await self._accepts_add(BookieId(bookie)):
                    self._driver.post(BookieRecovered(BookieId(bookie)))
            ensemble = self._machine.metadata.last_fragment.ensemble
            failed = [bookie for bookie in ensemble if bookie in self._machine.failed_bookies]
            with suppress(MetadataError):
                for replacement in await self._access.placer.replacements(
                    failed[:1], ensemble, self._access.write_quorum
                ):
                    self._driver.post(BookieRecovered(replacement))
        self._retries = None

    async def _accepts_add(self, bookie: BookieId) -> bool:
        """Send the bookie its last add once more; True if it accepts it."""
        last = self._driver.last_add(bookie)
        if last is None:
            return False
        reply = await self._access.pool.add(bookie, last)
        return reply.status is Code.EOK

    # ---- the explicit LAC -----------------------------------------------------------------------

    async def _announce_lac(self, interval_s: float) -> None:
        announced = NO_ENTRY
        while True:
            await asyncio.sleep(interval_s)
            lac = self._machine.last_add_confirmed
            if lac > announced and await self._written(lac):
                announced = lac

    async def _written(self, lac: EntryId) -> bool:
        """True if an ack quorum of bookies accepted this as the explicit LAC."""
        access, metadata = self._access, self._machine.metadata
        ensemble = metadata.last_fragment.ensemble
        packet = access.digests.package_lac(lac)
        positions = write_set(lac, metadata.ensemble_size, metadata.write_quorum)
        replies = await asyncio.gather(
            *(
                access.pool.write_lac(
                    ensemble[position], access.ledger_id, lac, access.master_key, packet
                )
                for position in positions
            )
        )
        stored = sum(reply.status is Code.EOK for reply in replies)
        return stored >= metadata.ack_quorum
