"""One data disk as the supervisor sees it: what the start found, its worker, and how it stands now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkbox.errors import BkboxError, ConnectionLostError
from bkbox.ipc import messages
from bkbox.protocol.boot import DiskClass
from bkbox.storage.lock import DiskLock
from bkbox.storage.marker import Marker, Run
from bkbox.supervisor.meter import Meter
from bkbox.supervisor.process import Child

DRAINING = "draining"
"""The reason for which a disk takes no new ledgers while it gives away those that it has, which are still written."""


@dataclass(slots=True)
class Disk:
    """A data disk. ``number`` is its place in the configuration, ``uuid`` its name everywhere else."""

    number: int
    path: Path
    uuid: str
    lock: DiskLock
    before: Marker | None = None
    """The dirty marker as this start found it; None: clean."""
    run: Run | None = None
    """What this run of the bookie wrote into the marker."""
    host_crash: bool = False
    needs_stamp: bool = False
    """It stands in for a lost disk and gets its VERSION after phase one."""
    crash_class: DiskClass = DiskClass.CLEAN
    reason: str = ""
    may_have_lost: bool = False
    only_active: bool = False
    """What it may have lost is of ledgers that are marked active, and of no others."""
    opened: messages.DiskOpened | None = None
    child: Child | None = None
    restarts: int = 0
    settled: bool = False
    """Its present worker replayed the log, and what may have been lost is accounted for."""
    in_service: bool = False
    begun: bool = False
    """Its dirty marker names the present run."""
    waits: bool = False
    """It is open, and serves once the other disks are there (sidelined.py)."""
    listed: bool = False
    """The front-end knows all its ledgers, whether it is in service or not."""
    trouble: str = ""
    error: BkboxError | OSError | None = None
    """What kept it from being opened."""
    in_doubt: str = ""
    """Why it is not known of some ledger whether its home is still here; empty otherwise (moving.py)."""
    draining: bool = False
    """It gives away its ledgers and takes no new ones (draining.py)."""
    intents: frozenset[str] = frozenset()
    """Why it is wanted to take no entries, beside what holds for the whole bookie (intents.py)."""
    keeping: asyncio.Task[None] | None = None
    """Brings its worker back."""
    stats: dict[str, Any] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    """What its worker does per second."""

    @property
    def usable(self) -> bool:
        """Its worker may serve."""
        return self.settled and self.child is not None and self.child.running

    @property
    def is_waiting(self) -> bool:
        """It is open, and was not accounted for, because other disks are away."""
        return self.waits and not self.settled and self.child is not None and self.child.running

    @property
    def read_only(self) -> list[str]:
        reasons = [str(reason) for reason in self.stats.get("read_only", [])]
        return [*reasons, DRAINING] if self.draining else reasons

    async def call(
        self,
        message: messages.Message,
        timeout_s: float | None = None,
        fds: Sequence[int] = (),
    ) -> messages.Message:
        """Call the disk's worker. Raises what it met, or ConnectionLostError where it is gone."""
        if self.child is None:
            raise ConnectionLostError(f"the worker of disk {self.path} has not been started")
        return await self.child.control.call(message, fds, timeout_s)
