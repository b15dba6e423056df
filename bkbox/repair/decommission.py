"""Takes a bookie out of the cluster for good: once no ledger names it, its cookie may be deleted.

Before anything is changed every ledger that names the bookie is examined. The decommission is refused, with the
ledgers and the reasons, where the bookie is not there and has the last copy of a ledger, or where no other bookie
could take its place.

A writable bookie is made read-only first; otherwise new ledgers come as fast as the old ones go. Only the bookie that
this runs in can be made so (``retire``); another one is refused while it is writable. When cancelled, the bookie
accepts entries again.

Then each ledger is marked, locked, and re-replicated without the bookie (ledger_replicator.py), the riskiest first. The
bookie may be read from if it is there. It ends when a scan of the metadata of all ledgers finds the bookie in none.
The cookie is deleted only after that, and only if the bookie is not running: with its cookie deleted it could come
back as a new bookie that knows nothing of what it acknowledged.

Source: BookKeeperAdmin.java (decommissionBookie).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from bkbox.base.commandline import cluster_command, plain_command
from bkbox.base.ids import BookieId, LedgerId, bookie_id
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
    OperatorError,
)
from bkbox.ipc.messages.repair import Retiring
from bkbox.jobs.context import JobContext
from bkbox.metadata.base import MetadataStore
from bkbox.protocol.decommission_plan import DecommissionPlan, departure
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.repair.cancellable_wait import wait_cancellable
from bkbox.repair.context import Environment
from bkbox.repair.operator_hints import advice_for
from bkbox.repair.replication.ledger_replicator import LedgerReplicator
from bkbox.repair.replication.replication_worker import ReplicationSettings, settings_of
from bkbox.repair.replication.retry_schedule import RetrySchedule

log = logging.getLogger(__name__)

_METADATA_AT_ONCE = 32
_PAUSE_S = 1.0
_NAMED_MAX = 20
"""Upper bound on the ledgers that a refusal names."""


@dataclass(frozen=True, slots=True)
class DecommissionScan:
    """The work that a decommission has to do. ``mode``: 'writable', 'read-only', or 'down'."""

    bookie: BookieId
    mode: str
    has_cookie: bool
    ledgers: tuple[DecommissionPlan, ...]

    @property
    def problems(self) -> tuple[DecommissionPlan, ...]:
        return tuple(each for each in self.ledgers if each.problem)

    @property
    def refusal(self) -> str:
        """The reason for a refusal, with the ledgers; empty if there is none."""
        problems = self.problems
        if not problems:
            return ""
        lines = [
            f"bookie {self.bookie} cannot be decommissioned: {counted(len(problems), 'ledger')} cannot do without it"
        ]
        lines += [f"ledger {each.ledger}: {each.problem}" for each in problems[:_NAMED_MAX]]
        if len(problems) > _NAMED_MAX:
            lines.append(f"and {len(problems) - _NAMED_MAX} more")
        return "\n".join(lines)


class Decommission:
    """The decommission of one bookie, which may be gone already. ``me``: see Replicator; ``host``: the host name in
    its locks; ``retire``: makes the bookie stop accepting entries (True) or accept them again; None where that cannot
    be done from here.
    """

    def __init__(
        self,
        work: JobContext,
        store: MetadataStore,
        client: Client,
        bookie: BookieId,
        settings: ReplicationSettings,
        *,
        me: BookieId | None,
        host: str,
        rng: random.Random,
        wall_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        retire: Callable[[bool], Awaitable[object]] | None = None,
    ) -> None:
        self._work = work
        self._store = store
        self._tree = store.under_replication
        self._bookie = bookie
        self._settings = settings
        self._host = host
        self._retire = retire
        self._wall_ms = wall_ms
        self._now_s = monotonic_s
        self._replicator = LedgerReplicator(
            store, client, me, settings.grace_s, wall_ms, monotonic_s
        )
        self._waits = RetrySchedule(settings.retry_initial_s, settings.retry_max_s, rng)
        self._done = 0

    async def scan(self) -> DecommissionScan:
        """Examine the metadata of all ledgers; changes nothing. Raises OperatorError for a bookie that the cluster
        does not know.
        """
        self._work.set_step("looking through the metadata of all ledgers")
        found: list[DecommissionPlan] = []
        registered = await self._store.bookies()
        writable = [name for name, each in registered.items() if not each.read_only]

        async def one(ledger: LedgerId) -> DecommissionPlan | None:
            await self._work.checkpoint(metadata_calls=1)
            try:
                metadata = (await self._store.read_ledger(ledger, linearizable=True)).value
            except NoSuchLedgerError:
                return None
            return departure(metadata, self._bookie, registered.keys(), writable)

        async for page in self._store.ledger_ranges():
            candidates = await bounded_gather(page, one, _METADATA_AT_ONCE)
            found += [each for each in candidates if each is not None]
        there = registered.get(self._bookie)
        mode = "down" if there is None else "read-only" if there.read_only else "writable"
        has_cookie = await self._store.read_cookie(self._bookie) is not None
        if not found and there is None and not has_cookie:
            raise OperatorError(
                f"no ledger names bookie {self._bookie}, it is not registered and has no cookie: there is nothing to "
                f"decommission; `{cluster_command('cluster', 'list', '--all')}` shows the bookies that are known"
            )
        return DecommissionScan(self._bookie, mode, has_cookie, tuple(found))

    async def run(self, *, delete_cookie: bool) -> None:
        """Returns when no ledger names the bookie, and its cookie is deleted where that was asked for.

        Raises OperatorError: refused, or the rest cannot be done; MetadataError, JobCancelledError.
        """
        scan = await self.scan()
        if scan.refusal:
            raise OperatorError(scan.refusal)
        if not await self._tree.enabled():
            raise OperatorError(
                "re-replication is disabled in this cluster: "
                f"`{cluster_command('autorecovery', 'enable')}` comes first"
            )
        if self._retire is not None:
            await self._retire(True)
        elif scan.mode == "writable":
            raise OperatorError(still_writable(self._bookie))
        try:
            await self._migrate(scan)
        except JobCancelledError:
            if self._retire is not None:
                await self._retire(False)
            raise
        if delete_cookie:
            await self._delete_cookie()
        self._work.set_step(f"no ledger names bookie {self._bookie}")

    async def _migrate(self, scan: DecommissionScan) -> None:
        """Re-replicate ledgers until a scan of all ledgers finds the bookie in none."""
        if self._retire is not None:
            scan = await self.scan()  # writers went on until the bookie was read-only
        while scan.ledgers:
            self._work.expect(
                ledgers=self._done + len(scan.ledgers),
                entries=None if self._done else sum(each.entries for each in scan.ledgers),
            )
            await self._replicate_all(scan)
            scan = await self.scan()
            self._refuse_if_stuck(scan)
            if scan.ledgers:
                await wait_cancellable(self._work, asyncio.sleep(_PAUSE_S))
        await bounded_gather(await self._left_marked(), self._one, self._settings.ledgers_at_once)

    async def _left_marked(self) -> list[LedgerId]:
        """Ledgers that are marked for this bookie alone, but do not name it any more: an earlier run was interrupted
        between the metadata update and the removal of the mark.
        """
        found: list[LedgerId] = []
        async for ledger in self._tree.ledgers():
            await self._work.checkpoint(metadata_calls=1)
            mark = await self._tree.read_mark(ledger)
            if mark is not None and set(mark.missing.replicas) == {self._bookie}:
                found.append(ledger)
        return found

    # ---- ledgers ----------------------------------------------------------------------------

    async def _replicate_all(self, scan: DecommissionScan) -> None:
        now_s = self._now_s()
        due = [
            each.ledger
            for each in sorted(scan.ledgers, key=lambda each: (each.copies, each.ledger))
            if self._waits.is_due(each.ledger, now_s)
        ]
        await bounded_gather(due, self._one, self._settings.ledgers_at_once)

    async def _one(self, ledger: LedgerId) -> None:
        try:
            task = await self._tree.claim(ledger, [self._bookie], self._wall_ms(), self._host)
        except MetadataError as error:
            self._failed(ledger, error)
            return
        if task is None:
            self._waits.failed(ledger, self._now_s())  # another worker holds its lock
            return
        try:
            await self._replicator.make_whole(
                ledger, task.mark.missing.replicas, self._work, frozenset({self._bookie})
            )
            await self._tree.finish(task)
        except LeftToWriterError as error:
            self._waits.later(ledger, self._now_s() + error.wait_s)
        except JobCancelledError:
            raise
        except BkboxError as error:
            self._failed(ledger, error)
        else:
            self._done += 1
            self._work.add_progress(ledgers=1)
            self._work.unblock(ledger)
            self._waits.forget(ledger)
        finally:
            with suppress(MetadataError):  # the lock ends with the session then
                await self._tree.release(task)

    def _failed(self, ledger: LedgerId, error: BkboxError) -> None:
        log.warning("ledger %d still names bookie %s: %s", ledger, self._bookie, error)
        self._work.block(ledger, str(error), advice_for(error))
        if isinstance(error, (NoSuchEntryError, NotEnoughBookiesError)):
            self._waits.quarantine(ledger, str(error), self._now_s())
        else:
            self._waits.failed(ledger, self._now_s())

    def _refuse_if_stuck(self, scan: DecommissionScan) -> None:
        """Raise OperatorError where only failures are left that time does not repair."""
        left = [each.ledger for each in scan.ledgers]
        if left and all(self._waits.has_quarantined(ledger) for ledger in left):
            named = ", ".join(map(str, left[:_NAMED_MAX]))
            raise OperatorError(
                f"{counted(len(left), 'ledger')} cannot do without bookie {self._bookie}: {named}; why is said "
                f"with each of them among the blockers; all others are copied"
            )

    async def _delete_cookie(self) -> None:
        if self._bookie in await self._store.bookies():
            raise OperatorError(
                f"no ledger names bookie {self._bookie} any more, but it is running: stop it, then give the same "
                f"command again to delete its cookie"
            )
        await self._store.delete_cookie(self._bookie)
        log.info("the cookie of bookie %s is deleted", self._bookie)


def still_writable(bookie: BookieId) -> str:
    """Reason and advice for a refusal: the bookie still accepts entries."""
    return (
        f"bookie {bookie} is writable: new ledgers would come as fast as the old ones go. Make it read-only first, "
        f"with `{plain_command('bookie', 'read-only', 'on')}` on its host (one of Java's: PUT "
        f"/api/v1/bookie/state/readonly of its HTTP server), or stop it"
    )


async def decommission(
    work: JobContext, environment: Environment, arguments: dict[str, str]
) -> None:
    """The job. ``arguments``: ``bookie``, and ``delete_cookie`` where its cookie is to be deleted, too."""
    bookie, supervisor = bookie_id(arguments["bookie"]), environment.supervisor

    async def retire(wanted: bool) -> None:
        assert supervisor is not None
        await supervisor.call(Retiring(wanted=wanted))

    job = Decommission(
        work,
        environment.store,
        environment.client,
        bookie,
        settings_of(environment.order),
        me=environment.me,
        host=str(environment.me),
        rng=environment.rng,
        wall_ms=environment.wall_ms,
        monotonic_s=environment.monotonic_s,
        retire=retire if bookie == environment.me and supervisor is not None else None,
    )
    await job.run(delete_cookie="delete_cookie" in arguments)
