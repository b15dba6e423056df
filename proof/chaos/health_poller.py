"""Polls the bookies once a second: their status, and bookies that ended although no fault stopped them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bkbox.api.admin.status import Status
from proof.chaos.cluster import Bookie, Cluster
from proof.chaos.history import History

_EVERY_S = 1.0
_LOG_LINES = 12


class HealthPoller:
    """Polls the bookies (see the module). ``restart`` starts a bookie that ended."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._last: dict[str, tuple[object, ...]] = {}
        self._statuses: dict[str, Status] = {}
        self.limbo = 0
        """Ledgers in limbo, by the bookies' last status."""

    async def run(self, restart: Callable[[Bookie], Awaitable[None]]) -> None:
        """Polls until cancelled."""
        while True:
            await asyncio.gather(*(self._one(bookie, restart) for bookie in self._cluster.bookies))
            self.limbo = sum(status.limbo.ledgers for status in self._statuses.values())
            await asyncio.sleep(_EVERY_S)

    async def poll(self, bookie: Bookie) -> bool:
        """True if the bookie is up with all its disks and processes, and no ledger is in limbo."""
        status = await bookie.status()
        if status is None:
            return False
        self._note(bookie, status)
        return (
            status.state == "running"
            and status.limbo.ledgers == 0
            and all(disk.state == "in service" and disk.total_bytes > 0 for disk in status.disks)
            and all(process.running for process in status.processes)
        )

    def has_failed_disk(self, bookie: Bookie) -> bool:
        """True if a disk takes no more writes until the next start, by the last poll."""
        status = self._statuses.get(bookie.name)
        return (
            status is not None
            and status.processes[0].pid == bookie.pid
            and any(disk.state == "failed" for disk in status.disks)
        )

    async def _one(self, bookie: Bookie, restart: Callable[[Bookie], Awaitable[None]]) -> None:
        if bookie.should_run and bookie.exit_status is not None:
            text = f"the supervisor ended with {bookie.exit_status}"
            tail = bookie.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            self._history.note("ended", bookie=bookie.name, what="\n".join([text, *tail]))
            bookie.should_run = False
            await restart(bookie)
            return
        if bookie.should_run:
            await self.poll(bookie)

    def _note(self, bookie: Bookie, status: Status) -> None:
        self._statuses[bookie.name] = status
        pid = status.processes[0].pid
        restarts = sum(process.restarts for process in status.processes)
        state = (pid, restarts, status.limbo.ledgers, status.limbo.done)
        if self._last.get(bookie.name) != state:
            self._last[bookie.name] = state
            self._history.note(
                "look",
                bookie=bookie.name,
                pid=pid,
                restarts=restarts,
                limbo=status.limbo.ledgers,
                done=status.limbo.done,
            )
