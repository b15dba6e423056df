"""The admin API of a bookie: its routes, and what they share. Loaded with the first client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bkbox.admin.events import Events
from bkbox.admin.routes import Route
from bkbox.admin.status import Status
from bkbox.supervisor import (
    bookieroutes,
    diskroutes,
    javaroutes,
    jobroutes,
    limboroutes,
    reloading,
    spaceroutes,
)
from bkbox.supervisor.probing import Probes
from bkbox.supervisor.reporting import Gathered

if TYPE_CHECKING:
    from bkbox.client.topology import Topology
    from bkbox.jobs.job import Job
    from bkbox.metadata.base import MetadataStore
    from bkbox.storage.files import Files
    from bkbox.supervisor.supervisor import Supervisor


class Api:
    """Of one bookie."""

    def __init__(self, bookie: Supervisor, store: MetadataStore, files: Files) -> None:
        self.bookie = bookie
        self.store = store
        self._gathered = Gathered(bookie, store, files)
        self._topology: Topology | None = None
        self.probes = Probes(bookie)
        self.events = Events(self._look)

    def routes(self) -> tuple[Route, ...]:
        return routes(self, self.bookie)

    async def status(self) -> Status:
        """The status document as it is now."""
        return await self._gathered.status()

    def topology(self) -> Topology:
        """What the configuration says of racks. Raises ConfigError."""
        if self._topology is None:
            # Only who asks for the others needs them.
            from bkbox.client.options import ClientOptions
            from bkbox.client.topology import topology_of

            config = self.bookie.config
            script = None if config.topology_script is None else str(config.topology_script)
            options = ClientOptions(topology_script=script, rack_map=config.rack_map or None)
            self._topology = topology_of(options, self.store)
        return self._topology

    async def close(self) -> None:
        await self.events.close()
        await self._gathered.close()

    async def _look(self) -> tuple[Status, Sequence[Job]]:
        status = await self.status()
        return status, () if self.bookie.jobs is None else self.bookie.jobs.registry.all()


def routes(api: Api, bookie: Supervisor) -> tuple[Route, ...]:
    """The table; nothing is asked of ``api`` or ``bookie`` before a request comes."""
    return (
        *bookieroutes.routes(api, lambda: routes(api, bookie)),
        *jobroutes.routes(lambda: bookie.jobs),
        *diskroutes.routes(bookie),
        *diskroutes.read_only_routes(bookie),
        *limboroutes.routes(bookie),
        *spaceroutes.routes(bookie),
        *reloading.routes(bookie, os.environ),
        *javaroutes.routes(api, bookie),
    )
