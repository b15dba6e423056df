"""A run from its beginning to its end: a cluster, clients, faults; then all is healed and read.

The end, in this order: no more faults; every bookie comes up, and limbo gets empty, within a time-out; clients come to
their end; every ledger that was not deleted is closed and read from its first entry to its last; each bookie is asked
for its entries; the bookies stop in order. The checker (history_checker.py) judges the history afterwards.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from bkbox.base.values import frozen_struct
from bkbox.client import connect
from bkbox.errors import ChaosError
from proof.chaos.cluster import Bookie, Cluster
from proof.chaos.fault_budget import FaultBudget
from proof.chaos.faults import Faults
from proof.chaos.final_verification import read_all
from proof.chaos.health_poller import HealthPoller
from proof.chaos.history import History
from proof.chaos.load import Load
from proof.chaos.metadata import Changes
from proof.chaos.schedule import Fault, schedule

_HEAL_S = 600.0
_HEAL_UNDER_LOAD_S = 120.0
"""Seconds after which the clients stop: repair gives way to clients, and on a busy machine that may be all the time."""
_LAST_OPERATIONS_S = 60.0
_EVERY_S = 0.5
_TAKEN_AWAY = re.compile(r"this worker ends: (.+) is not the folder of the disk any more")
_DEATH = re.compile(r"ended: exit status|ended: killed by SIG(?!KILL)|cannot go on:|Traceback")


@frozen_struct
class Order:
    """Parameters of a run. ``every_s``: mean interval between two faults."""

    seed: int
    seconds: float
    every_s: float
    faults: tuple[Fault, ...]


@dataclass(slots=True)
class Progress:
    """Progress of a run, for output."""

    phase: str = "starting"
    seconds: float = 0.0
    last_fault: str = ""
    limbo: int = 0


Tell = Callable[[Progress, History], None]
"""Called twice a second."""


async def run(cluster: Cluster, order: Order, history: History, tell: Tell) -> None:
    """Executes the run. Raises ChaosError if it cannot be executed."""
    running = _Run(cluster, order, history, tell)
    helping = asyncio.ensure_future(running.help())
    playing = asyncio.ensure_future(running.play())
    try:
        await asyncio.wait((helping, playing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        helping.cancel()
        playing.cancel()
        results = await asyncio.gather(playing, helping, return_exceptions=True)
        await running.close()
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise _the_one(result)


class _Run:
    def __init__(self, cluster: Cluster, order: Order, history: History, tell: Tell) -> None:
        self._cluster = cluster
        self._order = order
        self._history = history
        self._tell = tell
        self._stop = asyncio.Event()
        self._budget = FaultBudget()
        self._poller = HealthPoller(cluster, history)
        self._faults = Faults(cluster, history, self._budget, self._poller, self._stop)
        self._changes: Changes | None = None
        self._progress = Progress()
        self._began = time.monotonic()

    async def help(self) -> None:
        """Runs in the background: reports progress, and collects changes in the metadata store."""
        while True:
            self._progress.seconds = time.monotonic() - self._began
            self._progress.last_fault = self._faults.last
            self._progress.limbo = self._poller.limbo
            self._tell(self._progress, self._history)
            if self._changes is not None:
                await self._changes.collect()
            self._history.flush()
            await asyncio.sleep(_EVERY_S)

    async def close(self) -> None:
        if self._changes is not None:
            self._changes.close()
        await self._cluster.close()

    async def play(self) -> None:
        """The run itself."""
        cluster, history = self._cluster, self._history
        await cluster.make()
        self._changes = Changes(cluster.metadata_file, history)
        up = await asyncio.gather(*map(self._faults.start_bookie, cluster.bookies))
        if not all(up):
            raise ChaosError(f"not all bookies start: see the logs in {cluster.root}")
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._poller.run(self._restart))
            is_well = await self._hurt(group)
            await self._read_all()
            down = [bookie.name for bookie in cluster.bookies if bookie.pid is None]
            watching.cancel()
        self._progress.phase = "stopping"
        await asyncio.gather(*(self._faults.stop_in_order(each) for each in cluster.bookies))
        await self._changes.collect()
        deaths = [[bookie.name, line] for bookie in cluster.bookies for line in _deaths(bookie)]
        limbo = 0 if is_well else self._poller.limbo
        history.note("finished", well=is_well, down=down, limbo=limbo, deaths=deaths)

    async def _hurt(self, group: asyncio.TaskGroup) -> bool:
        """Applies load and faults for the ordered time; then True if all bookies were whole again in time."""
        order, plan, history = self._order, self._cluster.plan, self._history
        planned = schedule(
            order.seed, order.seconds, order.every_s, plan.bookies, plan.disks, order.faults
        )
        load = Load(self._cluster.metadata, history, order.seed, plan.bookies)
        self._progress.phase, self._began = "load and faults", time.monotonic()
        loading = group.create_task(load.run())
        asyncio.get_running_loop().call_later(order.seconds, self._stop.set)
        await self._faults.follow(planned, history.now)
        await self._stop.wait()
        self._progress.phase = "healing"
        asyncio.get_running_loop().call_later(_HEAL_UNDER_LOAD_S, load.stop.set)
        is_well = all(await asyncio.gather(*map(self._heal, self._cluster.bookies)))
        load.stop.set()
        await asyncio.wait([loading], timeout=_LAST_OPERATIONS_S)
        loading.cancel()
        await asyncio.wait([loading])
        return is_well

    async def _heal(self, bookie: Bookie) -> bool:
        if bookie.pid is None:
            await self._restart(bookie)
        return await self._faults.becomes_whole(bookie, _HEAL_S)

    async def _restart(self, bookie: Bookie) -> None:
        if not self._budget.is_restarting(bookie.name):
            with self._budget.reserve(bookie.name, restarts=True):
                await self._faults.start_bookie(bookie)

    async def _read_all(self) -> None:
        rng = random.Random(self._order.seed)  # noqa: S311

        def on_progress(done: int, count: int) -> None:
            self._progress.phase = f"reading all: ledger {done:,} of {count:,}"

        async with connect(self._cluster.metadata, rng=rng, backoff_max_s=1.0) as client:
            await read_all(client, self._history, on_progress)


def _deaths(bookie: Bookie) -> list[str]:
    """Lines of its log about processes that ended by themselves, or about defects. A worker whose disk was taken away
    has to end, and says so."""
    with bookie.log.open(errors="replace") as log:
        lines = [line.strip() for line in log]
    taken = {found[1] for line in lines if (found := _TAKEN_AWAY.search(line))}
    expected = [f"the worker of disk {disk} ended: exit status 0 " for disk in taken]
    return [
        line for line in lines if _DEATH.search(line) and not any(one in line for one in expected)
    ]


def _the_one(error: BaseException) -> BaseException:
    """The cause among the errors of several tasks: one of ours, if there is one."""
    while isinstance(error, BaseExceptionGroup):
        ours = error.subgroup(ChaosError)
        error = (ours or error).exceptions[0]
    return error
