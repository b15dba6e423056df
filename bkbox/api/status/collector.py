"""Collects what a status document needs from workers and front-ends (builder.py), each with a short time-out.

Loaded with the first request for a status.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from bkbox.api.admin.status import (
    Autorecovery,
    Clients,
    Cookies,
    Device,
    Losses,
    Process,
    SpaceUsage,
)
from bkbox.api.status.cached_status import CachedStatus
from bkbox.api.status.config_file import ConfigFile
from bkbox.api.status.host_stats import HostFigures
from bkbox.errors import BkboxError
from bkbox.ipc.messages.process import GetStats, Stats
from bkbox.ipc.messages.space import GetSpace, Space
from bkbox.supervisor.service.replay_progress import Replays

if TYPE_CHECKING:
    from bkbox.metadata.base import MetadataStore
    from bkbox.storage.files import Files
    from bkbox.supervisor.children.process import Child
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor

T = TypeVar("T")

_TIMEOUT_S = 1.0
"""Time-out in seconds; a process that answers later is shown as it was before."""


class CollectedStatus:
    """The last answers of the processes. By uuid of the disk: ``space``, ``devices``."""

    def __init__(self, bookie: Supervisor, store: MetadataStore, files: Files) -> None:
        self._bookie = bookie
        file = ConfigFile(bookie.config.path, os.environ)
        self._cached = CachedStatus(lambda: bookie.config, file, store, files)
        self._figures = HostFigures()
        self._replays = Replays(files, time.monotonic)
        self.space: dict[str, SpaceUsage] = {}
        self.devices: dict[str, Device] = {}
        self.clients: Clients | None = None
        """Of all front-ends together."""
        self._counted: dict[Child, dict[str, int]] = {}
        self.eta_s: float | None = None

    @property
    def cookies(self) -> Cookies:
        return self._cached.cookies

    @property
    def config_problem(self) -> str:
        return self._cached.config_problem

    @property
    def autorecovery(self) -> Autorecovery:
        return self._cached.autorecovery

    @property
    def losses(self) -> Losses:
        return self._cached.losses

    def measured(self, process: Process) -> Process:
        return self._figures.measured(process)

    async def gather(self) -> None:
        """Requests everything once, for `_TIMEOUT_S` at most."""
        bookie = self._bookie
        await asyncio.gather(
            bookie.refresh(),
            self._ask_frontends(),
            self._cached.refresh(),
            *map(self._ask_for_space, bookie.disks),
        )
        self.devices = {
            disk.uuid: device
            for disk in bookie.disks
            if disk.usable and (device := self._figures.device(disk.path)) is not None
        }
        self.eta_s = self._time_left() if bookie.state == "starting" else None

    async def close(self) -> None:
        await self._cached.close()

    async def _ask_frontends(self) -> None:
        running = self._bookie.frontends.running
        self._counted = {
            child: counts for child, counts in self._counted.items() if child in running.values()
        }
        await asyncio.gather(*map(self._ask_frontend, running.values()))
        sums: Counter[str] = Counter()
        for counts in self._counted.values():
            sums.update(counts)
        self.clients = _known(Clients, sums) if self._counted else None

    async def _ask_frontend(self, frontend: Child) -> None:
        if self._bookie.progress.stall_of(frontend) is not None:
            return
        with contextlib.suppress(BkboxError, TimeoutError):
            found = await frontend.control.call(GetStats(), timeout_s=_TIMEOUT_S)
            assert isinstance(found, Stats)
            self._counted[frontend] = found.values

    async def _ask_for_space(self, disk: Disk) -> None:
        if not disk.usable or self._bookie.progress.stall_of(disk.child) is not None:
            return
        with contextlib.suppress(BkboxError, TimeoutError):
            found = await disk.call(GetSpace(), timeout_s=_TIMEOUT_S)
            assert isinstance(found, Space)
            values = found.values | {"quarantined": len(found.values["quarantined"])}
            self.space[disk.uuid] = _known(SpaceUsage, values)

    def _time_left(self) -> float | None:
        """Seconds left of a start that waits for replays; otherwise None."""
        return self._replays.eta_s(
            (disk.path, disk.child.pid)
            for disk in self._bookie.disks
            if disk.child is not None and disk.opened is None
        )


def _known(cls: type[T], values: dict[str, Any]) -> T:
    """An instance of the document from those of these values that it has fields for."""
    names: set[str] = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in values.items() if name in names})
