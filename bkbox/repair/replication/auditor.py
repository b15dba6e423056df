"""The auditor: one elected process of the cluster detects lost bookies and marks the ledgers that lost copies.

The election is in metadata/underreplication.py. While elected it does three things, all of which only mark:

- It watches the registrations. A bookie that the cluster knows and that is not registered is *lost*. A single lost
  bookie is given the recovery delay to come back. Where several are lost, or the delay is zero, all ledgers are
  scanned at once, and those that name a lost bookie are marked.
- At the beginning of its term, and every day, it scans all ledgers for bookies that are not registered, known or not:
  marks of a former auditor may have been lost with it.
- Once a week, and when it is asked to, it asks every bookie for its list of entries of every ledger, and marks where
  entries are missing. A bookie that does not respond lacks nothing.

Nothing is done while the switch is off, and nothing for bookies in a maintenance window (metadata/maintenance.py).
Writing the recovery delay again, unchanged or as zero, is the signal to scan the ledgers at once, whatever is
awaited. Any other delay applies to the bookies that are awaited, counted from the moment they were lost. Source:
Auditor.java, AuditorBookieCheckTask.java, AuditorCheckAllLedgersTask.java.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from bkbox.base.commandline import cluster_command
from bkbox.base.ids import BookieId, LedgerId
from bkbox.client.client import Client
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.jobs.context import JobContext
from bkbox.metadata.base import MetadataStore, RegisteredBookie
from bkbox.metadata.maintenance import end_expired, in_maintenance
from bkbox.metadata.underreplication import FULL_CHECK_REQUESTED, Candidacy, RecoveryDelay
from bkbox.protocol.audit import NoReport, audit
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.repair.cancellable_wait import wait_cancellable
from bkbox.repair.context import Environment
from bkbox.repair.replication.entry_inventory import EntryInventory
from bkbox.repair.replication.lost_bookie_tracker import LostBookies
from bkbox.wire.metadata.ledger import LedgerMetadata

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 2.0
_STAND_BY_S = 30.0
_METADATA_AT_ONCE = 32
_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class AuditorSettings:
    """Times in seconds. ``lost_bookie_delay_s`` is written to the store where it has none yet; ``full_check_s`` 0:
    never.
    """

    lost_bookie_delay_s: int = 60
    bookie_check_s: float = 86_400.0
    full_check_s: float = 604_800.0


class Auditor:
    """One process's candidacy and its work as auditor. ``name``: the bookie id under which it stands for election."""

    def __init__(
        self,
        work: JobContext,
        store: MetadataStore,
        client: Client,
        settings: AuditorSettings,
        *,
        name: str,
        rng: random.Random,
        wall_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._work = work
        self._store = store
        self._tree = store.under_replication
        self._settings = settings
        self._name = name
        self._rng = rng
        self._wall_ms = wall_ms
        self._now_s = monotonic_s
        self._holdings = EntryInventory(client.pool)

    async def run(self) -> None:
        """Stand for election, serve, and repeat, for ever. Raises JobCancelledError."""
        candidacy = self._tree.candidacy(self._name)
        try:
            while True:
                await self._work.checkpoint()
                try:
                    if await candidacy.is_elected():
                        log.info("%s is the auditor", self._name)
                        await self._term(candidacy)
                    else:
                        text = f"standing by: the auditor is {await self._tree.auditor()}"
                        self._work.set_step(text, standing_by=True)
                        await wait_cancellable(self._work, candidacy.changed(_STAND_BY_S))
                except MetadataError as error:
                    log.warning("the auditor waits for the metadata store: %s", error)
                    self._work.set_step(f"waiting for the metadata store: {error}")
                    pause_s = POLL_INTERVAL_S * self._rng.uniform(0.5, 1.0)
                    await wait_cancellable(self._work, asyncio.sleep(pause_s))
        finally:
            with suppress(MetadataError):  # the vote ends with the session then
                await candidacy.close()

    async def _term(self, candidacy: Candidacy) -> None:
        """Serve until another auditor is elected or this one loses its session. Raises MetadataError,
        JobCancelledError.
        """
        delay = await self._recovery_delay()
        lost = LostBookies()
        checked_s: float | None = None
        while await candidacy.is_elected():
            await self._work.checkpoint(metadata_calls=4)
            if not await self._tree.enabled():
                self._work.set_step(
                    f"paused: re-replication is disabled ({cluster_command('autorecovery', 'enable')})",
                    standing_by=True,
                )
                await wait_cancellable(self._work, candidacy.changed(POLL_INTERVAL_S))
                continue
            before, delay = delay, await self._recovery_delay()
            registered = await self._store.bookies()
            await end_expired(self._store.maintenance_windows, self._wall_ms())
            exempt = await in_maintenance(self._store.maintenance_windows, self._wall_ms())
            lost.see(await self._store.cookies(), registered, exempt, self._now_s())
            is_day_over = (
                checked_s is None or self._now_s() - checked_s >= self._settings.bookie_check_s
            )
            at_once = delay != before and delay.seconds in (before.seconds, 0)
            if at_once or is_day_over or lost.due(delay.seconds, self._now_s()):
                await self.check_bookies(lost, delay.seconds, at_once=at_once)
                checked_s = self._now_s()
            elif await self._is_full_check_due():
                await self.check_all_ledgers()
            absent = ", ".join(lost.absent())
            text = f"this is the auditor; bookies that are lost: {absent or 'none'}"
            self._work.set_step(text, standing_by=not absent)
            await wait_cancellable(self._work, candidacy.changed(POLL_INTERVAL_S))

    async def _recovery_delay(self) -> RecoveryDelay:
        """The delay that is in the store. Where there is none, ours is written there, for all auditors."""
        while (found := await self._tree.recovery_delay()) is None:
            await self._tree.set_recovery_delay_s(self._settings.lost_bookie_delay_s)
        return found

    # ---- which bookies are gone ---------------------------------------------------------------

    async def check_bookies(self, lost: LostBookies, delay_s: int, *, at_once: bool) -> int:
        """Scan the metadata of all ledgers for lost bookies; returns how many ledgers were marked.

        ``at_once``: do not wait for the recovery delay.
        """
        self._work.set_step("looking through all ledgers for bookies that are lost")
        if at_once:
            delay_s = 0
        now_s = self._now_s()
        awaited, spared = lost.awaited(delay_s, now_s), lost.spared(delay_s, now_s)

        async def mark(metadata: LedgerMetadata, registered: Mapping[BookieId, object]) -> bool:
            unregistered = metadata.bookies() - registered.keys() - spared
            if unregistered:
                await self._mark(metadata.ledger_id, unregistered)
            return bool(unregistered)

        marked = await self._for_all_ledgers(mark, _METADATA_AT_ONCE)
        lost.audited(awaited)
        if marked:
            log.warning("%d ledgers name bookies that are lost, and are marked", marked)
        return marked

    # ---- which entries are missing ------------------------------------------------------------

    async def _is_full_check_due(self) -> bool:
        last_ms = await self._tree.last_full_check_ms()
        if last_ms == FULL_CHECK_REQUESTED:
            return True
        if not self._settings.full_check_s:
            return False
        now_ms = self._wall_ms()
        if last_ms is None or last_ms > now_ms:
            return True
        return now_ms - last_ms >= self._settings.full_check_s * 1000

    async def check_all_ledgers(
        self,
        ledgers: Sequence[LedgerId] = (),
        only: BookieId | None = None,
        *,
        dry_run: bool = False,
    ) -> int:
        """Ask all bookies for their entries of every ledger; returns how many ledgers lack some and were marked, unless
        it is a ``dry_run``. ``ledgers``: those alone, where there are any; ``only``: this bookie alone.
        """
        self._work.set_step("asking bookies what they have of each ledger")

        async def mark(
            metadata: LedgerMetadata, registered: Mapping[BookieId, RegisteredBookie]
        ) -> bool:
            members = metadata.bookies() if only is None else metadata.bookies() & {only}
            reports = await self._holdings.ask(metadata, registered.keys() & members)
            lacking = audit(metadata, reports).lacking
            self._work.count("copies_short", sum(map(len, chain(*lacking.values()))))
            self._work.count(
                "lists_missing", sum(isinstance(reports[each], NoReport) for each in members)
            )
            # Bookies that are gone are left to the other check, which knows the delay.
            if lacking and not dry_run:
                await self._mark(metadata.ledger_id, lacking)
            return bool(lacking)

        marked = await self._for_all_ledgers(mark, _CONCURRENCY, ledgers)
        if ledgers or only is not None or dry_run:
            return marked
        await self._tree.set_last_full_check_ms(self._wall_ms())
        log.log(
            logging.WARNING if marked else logging.INFO,
            "all ledgers were checked: %d lack entries, and are marked",
            marked,
        )
        return marked

    # ---- both -----------------------------------------------------------------------------------

    async def _for_all_ledgers(
        self,
        do: Callable[[LedgerMetadata, Mapping[BookieId, RegisteredBookie]], Awaitable[bool]],
        at_once: int,
        ledgers: Sequence[LedgerId] = (),
    ) -> int:
        """Returns for how many ledgers ``do`` returned True; ``ledgers``: those alone, where there are any. A ledger
        that cannot be read does not stop the others.
        """
        count = 0
        async for page in _one_page(ledgers) if ledgers else self._store.ledger_ranges():
            registered = await self._store.bookies()

            async def one(
                ledger: LedgerId,
                registered: Mapping[BookieId, RegisteredBookie] = registered,
            ) -> bool:
                await self._work.checkpoint(metadata_calls=1)
                try:
                    metadata = (await self._store.read_ledger(ledger)).value
                    reports = await do(metadata, registered)
                except NoSuchLedgerError:
                    reports = False
                except MetadataError as error:
                    if error.may_have_taken_effect:
                        raise  # the store is unavailable: this is not about the ledger
                    log.error("ledger %d is not checked: %s", ledger, error)
                    self._work.block(ledger, str(error), "see what is stored for it")
                    return False
                self._work.unblock(ledger)
                self._work.add_progress(ledgers=1)
                return reports

            count += sum(await bounded_gather(page, one, at_once))
        return count

    async def _mark(self, ledger: LedgerId, bookies: Collection[BookieId]) -> None:
        await self._tree.mark(ledger, sorted(bookies), self._wall_ms())
        self._work.count("ledgers_marked")


async def _one_page(ledgers: Sequence[LedgerId]) -> AsyncIterator[Sequence[LedgerId]]:
    yield ledgers


async def run_audits(
    work: JobContext, environment: Environment, _arguments: dict[str, str]
) -> None:
    """The job: runs for as long as the bookie runs and takes part in autorecovery."""
    order = environment.order
    if not order.autorecovery:
        return
    auditor = Auditor(
        work,
        environment.store,
        environment.client,
        AuditorSettings(order.lost_bookie_delay_s, full_check_s=order.full_check_interval_s),
        name=str(environment.me),
        rng=environment.rng,
        wall_ms=environment.wall_ms,
        monotonic_s=environment.monotonic_s,
    )
    await auditor.run()
