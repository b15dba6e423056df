"""One data disk as the supervisor sees it: the findings of the start, its worker, and its present state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkbox.errors import BkboxError, ConnectionLostError
from bkbox.ipc.messages.disk import DiskOpened
from bkbox.ipc.messages.message import Message
from bkbox.protocol.boot import DiskClass
from bkbox.storage.disk.dirty_marker import Incarnation, Marker
from bkbox.storage.disk.lock import DiskLock
from bkbox.supervisor.children.process import Child
from bkbox.supervisor.disks.rate_meter import Meter

DRAINING = "draining"
"""The reason why a draining disk takes no new ledgers. The ledgers that it still has are written as before."""


@dataclass(slots=True)
class Disk:
    """A data disk. ``number`` is its position in the configuration; ``uuid`` identifies it everywhere else."""

    number: int
    path: Path
    uuid: str
    lock: DiskLock
    before: Marker | None = None
    """The dirty marker as this start found it; None: clean."""
    run: Incarnation | None = None
    """The present run, as it was written into the dirty marker."""
    host_crash: bool = False
    needs_stamp: bool = False
    """It replaces a lost disk and gets its VERSION after phase one."""
    crash_class: DiskClass = DiskClass.CLEAN
    reason: str = ""
    may_have_lost: bool = False
    only_active: bool = False
    """Only ledgers that are marked active may have lost something."""
    opened: DiskOpened | None = None
    child: Child | None = None
    restarts: int = 0
    recovered: bool = False
    """Its present worker replayed the log, and every possible loss is accounted for."""
    in_service: bool = False
    marked_dirty: bool = False
    """Its dirty marker names the present run."""
    waits: bool = False
    """It is open, and serves once the other disks are there (sidelined.py)."""
    listed: bool = False
    """The front-end knows all its ledgers, whether it is in service or not."""
    trouble: str = ""
    error: BkboxError | OSError | None = None
    """The error that kept it from being opened."""
    placement_unknown: str = ""
    """Why the disk assignment of some ledger on it is unresolved; empty otherwise (ledger_migration.py)."""
    draining: bool = False
    """It is draining: its ledgers are migrated away, and it takes no new ones (drain.py)."""
    readonly_requests: frozenset[str] = frozenset()
    """Read-only requests for this disk, apart from those for the whole bookie (readonly_requests.py)."""
    keeping: asyncio.Task[None] | None = None
    """The task that restarts its worker."""
    stats: dict[str, Any] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    """Rates of its worker's counters, per second."""

    @property
    def usable(self) -> bool:
        """Its worker may serve."""
        return self.recovered and self.child is not None and self.child.running

    @property
    def is_waiting(self) -> bool:
        """True if it is open but not accounted for, because other disks are away."""
        return self.waits and not self.recovered and self.child is not None and self.child.running

    @property
    def read_only(self) -> list[str]:
        reasons = [str(reason) for reason in self.stats.get("read_only", [])]
        return [*reasons, DRAINING] if self.draining else reasons

    async def call(
        self,
        message: Message,
        timeout_s: float | None = None,
        fds: Sequence[int] = (),
    ) -> Message:
        """Call the disk's worker. Raises the worker's error, or ConnectionLostError without a worker."""
        if self.child is None:
            raise ConnectionLostError(f"the worker of disk {self.path} has not been started")
        return await self.child.control.call(message, fds, timeout_s)
