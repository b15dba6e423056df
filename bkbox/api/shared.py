"""The context that the routes of a bookie's admin API share (table.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bkbox.api.admin.events import Events
from bkbox.api.admin.status import Status
from bkbox.api.status.builder import status_of
from bkbox.api.status.collector import CollectedStatus
from bkbox.api.status.disk_probes import Probes

if TYPE_CHECKING:
    from bkbox.client.placement.topology import Topology
    from bkbox.jobs.job import Job
    from bkbox.metadata.base import MetadataStore
    from bkbox.storage.files import Files
    from bkbox.supervisor.supervisor import Supervisor


class Api:
    """The routes' view of one bookie."""

    def __init__(self, bookie: Supervisor, store: MetadataStore, files: Files) -> None:
        self.bookie = bookie
        self.store = store
        self._gathered = CollectedStatus(bookie, store, files)
        self._topology: Topology | None = None
        self.probes = Probes(bookie)
        self.events = Events(self._status_and_jobs)

    async def status(self) -> Status:
        """The current status document."""
        await self._gathered.gather()
        return status_of(self.bookie, self._gathered)

    def topology(self) -> Topology:
        """The racks of the configuration. Raises ConfigError."""
        if self._topology is None:
            # Loaded here: only routes about other bookies need it.
            from bkbox.client.options import ClientOptions
            from bkbox.client.placement.topology import topology_of

            config = self.bookie.config
            script = None if config.topology_script is None else str(config.topology_script)
            options = ClientOptions(topology_script=script, rack_map=config.rack_map or None)
            self._topology = topology_of(options, self.store)
        return self._topology

    async def close(self) -> None:
        await self.events.close()
        await self._gathered.close()

    async def _status_and_jobs(self) -> tuple[Status, Sequence[Job]]:
        status = await self.status()
        return status, () if self.bookie.jobs is None else self.bookie.jobs.registry.all()
