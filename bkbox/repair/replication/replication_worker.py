"""The replication worker: locks marked ledgers, the riskiest first, and restores their copies (ledger_replicator.py).

A round lists all marks, sorts the ledgers by the fewest copies that are alive, and works on a few at once, each under
its lock. A ledger that could not be restored is released and backs off (retry_schedule.py). One that needs more than
time is quarantined, with its reason, until something about it has changed, or for the longest wait. Marks are dropped
where the ledger turns out to be fully replicated, because a bookie is back or another worker was here, and where it was
deleted.

Source: ReplicationWorker.java.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass

from bkbox.base.backoff import backoff_s
from bkbox.base.commandline import cluster_command
from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import counted
from bkbox.client.client import Client
from bkbox.errors import (
    BkboxError,
    JobCancelledError,
    LeftToWriterError,
    MetadataError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from bkbox.ipc.messages.repair import OpenRepair
from bkbox.jobs.context import JobContext
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.underreplication import Task
from bkbox.protocol.audit import live_copies
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.repair.cancellable_wait import wait_cancellable
from bkbox.repair.context import Environment
from bkbox.repair.operator_hints import advice_for
from bkbox.repair.replication.ledger_replicator import LedgerReplicator
from bkbox.repair.replication.retry_schedule import RetrySchedule

log = logging.getLogger(__name__)

PAUSE_S = 2.0
LONGEST_PAUSE_S = 30.0
"""Seconds between two rounds: the first after a round with progress, up to the last after many without."""

_METADATA_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Times in seconds. ``grace_s``: Java's openLedgerRereplicationGracePeriod; ``retry_…``: back-off after failures
    that may pass by themselves.
    """

    ledgers_at_once: int = 4
    grace_s: float = 30.0
    retry_initial_s: float = 1.0
    retry_max_s: float = 300.0


class ReplicationWorker:
    """Runs rounds for one process. ``host``: the host name in its locks, for the operator; ``me``: see Replicator."""

    def __init__(
        self,
        work: JobContext,
        store: MetadataStore,
        client: Client,
        settings: ReplicationSettings,
        *,
        me: BookieId | None,
        host: str,
        rng: random.Random,
        wall_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._work = work
        self._store = store
        self._tree = store.under_replication
        self._settings = settings
        self._host = host
        self._rng = rng
        self._now_s = monotonic_s
        self._replicator = LedgerReplicator(
            store, client, me, settings.grace_s, wall_ms, monotonic_s
        )
        self._waits = RetrySchedule(settings.retry_initial_s, settings.retry_max_s, rng)
        self._done = 0

    async def run(self) -> None:
        """Run rounds for ever; raises JobCancelledError."""
        idle_rounds = 0
        while True:
            await self._work.checkpoint()
            try:
                idle_rounds = 0 if await self.round() else idle_rounds + 1
            except MetadataError as error:
                log.warning("re-replication waits for the metadata store: %s", error)
                self._work.set_step(f"waiting for the metadata store: {error}")
            pause_s = backoff_s(idle_rounds, PAUSE_S, LONGEST_PAUSE_S, self._rng)
            await wait_cancellable(self._work, asyncio.sleep(pause_s))

    async def round(self) -> bool:
        """Work on every ledger that is due; returns True if at least one became fully replicated. Raises
        MetadataError, JobCancelledError.
        """
        if not await self._tree.enabled():
            self._work.set_step(
                f"paused: re-replication is disabled ({cluster_command('autorecovery', 'enable')})",
                standing_by=True,
            )
            return False
        marked = [ledger async for ledger in self._tree.ledgers()]
        for ledger in self._waits.keep_only(frozenset(marked)):
            self._replicator.forget(ledger)
            self._work.unblock(ledger)
        self._work.expect(ledgers=self._done + len(marked))
        if marked:
            self._work.set_step(f"working on {counted(len(marked), 'ledger', 'that are')} marked")
        locked = await self._tree.locked() if marked else frozenset()
        now_s = self._now_s()
        due = [each for each in marked if each not in locked and self._waits.is_due(each, now_s)]
        whole = 0
        if due:
            registered = await self._store.bookies()
            situation = frozenset((name, each.read_only) for name, each in registered.items())
            order = await self._riskiest_first(due, registered.keys(), situation)
            results = await bounded_gather(
                order,
                lambda ledger: self._replicate(ledger, situation),
                self._settings.ledgers_at_once,
            )
            whole = sum(results)
        self._show_step(len(marked) - whole)
        return whole > 0

    def _show_step(self, left: int) -> None:
        waiting = f"{counted(left, 'ledger', 'are')} marked" if left else "nothing is marked"
        quarantined = self._waits.quarantined()
        if quarantined:
            waiting += f", {quarantined} of them quarantined"
        self._work.set_step(waiting, standing_by=not left)

    # ---- order ------------------------------------------------------------------------------

    async def _riskiest_first(
        self, ledgers: list[LedgerId], registered: Collection[BookieId], situation: Hashable
    ) -> list[LedgerId]:
        """The ledgers that are worth trying, by the fewest copies that are alive. Ties come in random order, so that
        workers do not collide.
        """

        async def risk(ledger: LedgerId) -> int | None:
            await self._work.checkpoint(metadata_calls=1)
            try:
                found = await self._store.read_ledger(ledger)
            except NoSuchLedgerError:
                return -1
            except MetadataError as error:
                self._failed(ledger, error)
                return None
            if self._waits.is_quarantined(ledger, (situation, found.version), self._now_s()):
                return None
            gone = found.value.bookies().difference(registered)
            return live_copies(found.value, gone)

        risks = await bounded_gather(ledgers, risk, _METADATA_AT_ONCE)
        pairs = [
            (value, self._rng.random(), ledger)
            for ledger, value in zip(ledgers, risks, strict=True)
            if value is not None
        ]
        return [ledger for _, _, ledger in sorted(pairs)]

    # ---- one ledger -------------------------------------------------------------------------

    async def _replicate(self, ledger: LedgerId, situation: Hashable) -> bool:
        """Try one ledger; returns True if it is fully replicated and its mark removed."""
        try:
            # Read again: the switch may have been thrown since the round began.
            if not await self._tree.enabled():
                return False
            task = await self._tree.acquire(ledger, self._host)
        except MetadataError as error:
            self._failed(ledger, error)
            return False
        if task is None:
            return False
        try:
            if not task.mark.missing.replicas:
                # Java's auditor marks ledgers that need another placement, which Java's workers do; no copies are
                # missing.
                await self._quarantine(ledger, situation)
                return False
            return await self._make_whole(task, situation)
        except MetadataError as error:
            self._failed(ledger, error)
            return False
        finally:
            with suppress(MetadataError):  # the lock ends with the session then
                await self._tree.release(task)

    async def _make_whole(self, task: Task, situation: Hashable) -> bool:
        ledger = task.ledger
        try:
            await self._replicator.make_whole(ledger, task.mark.missing.replicas, self._work)
        except LeftToWriterError as error:
            self._waits.later(ledger, self._now_s() + error.wait_s)
            return False
        except (NoSuchEntryError, NotEnoughBookiesError) as error:
            # The log has one line for each reason, the job what holds now.
            if await self._quarantine(ledger, situation, str(error)):
                log.error("ledger %d is quarantined: %s", ledger, error)
            self._work.block(ledger, str(error), advice_for(error))
            return False
        except JobCancelledError:
            raise
        except BkboxError as error:
            self._failed(ledger, error)
            return False
        gone = await self._tree.finish(task)
        self._waits.forget(ledger)
        self._work.unblock(ledger)
        if gone:
            self._done += 1
            self._work.add_progress(ledgers=1)
            log.info("ledger %d has all its copies", ledger)
        return gone

    async def _quarantine(self, ledger: LedgerId, situation: Hashable, reason: str = "") -> bool:
        """Returns True if the reason is new. Raises MetadataError. A ledger that was deleted meanwhile has nothing to
        wait for.
        """
        try:
            version = (await self._store.read_ledger(ledger)).version
        except NoSuchLedgerError:
            return False
        return self._waits.quarantine(ledger, (situation, version), self._now_s(), reason)

    def _failed(self, ledger: LedgerId, error: BkboxError) -> None:
        log.warning("ledger %d is not replicated: %s", ledger, error)
        self._waits.failed(ledger, self._now_s())
        self._work.block(ledger, str(error), advice_for(error))


def settings_of(order: OpenRepair) -> ReplicationSettings:
    """The settings from the bookie's configuration."""
    return ReplicationSettings(
        order.ledgers_at_once,
        order.open_ledger_grace_s,
        order.retry_initial_s,
        order.retry_max_s,
    )


async def replicate(work: JobContext, environment: Environment, _arguments: dict[str, str]) -> None:
    """The job: runs for as long as the bookie runs and takes part in autorecovery."""
    if not environment.order.autorecovery:
        return
    worker = ReplicationWorker(
        work,
        environment.store,
        environment.client,
        settings_of(environment.order),
        me=environment.me,
        host=str(environment.me),
        rng=environment.rng,
        wall_ms=environment.wall_ms,
        monotonic_s=environment.monotonic_s,
    )
    await worker.run()
