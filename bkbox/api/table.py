"""The table of routes of a bookie's admin API. Loaded with the first client."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from bkbox.api.admin.routes import Route
from bkbox.api.handlers import bookie as bookie_routes
from bkbox.api.handlers import config, disks, jobs, limbo, space
from bkbox.api.java import bookie as java_routes
from bkbox.api.shared import Api

if TYPE_CHECKING:
    from bkbox.metadata.base import MetadataStore
    from bkbox.storage.files import Files
    from bkbox.supervisor.supervisor import Supervisor


def routes_of(
    bookie: Supervisor, store: MetadataStore, files: Files, stack: AsyncExitStack
) -> tuple[Route, ...]:
    """The table of this bookie; the resources that it opens are closed with ``stack``."""
    api = Api(bookie, store, files)
    stack.push_async_callback(api.close)
    return routes(api, bookie)


def routes(api: Api, bookie: Supervisor) -> tuple[Route, ...]:
    """The table; ``api`` and ``bookie`` are not used before a request comes."""
    return (
        *bookie_routes.routes(api, lambda: routes(api, bookie)),
        *jobs.routes(lambda: bookie.jobs),
        *disks.routes(bookie),
        *disks.read_only_routes(bookie),
        *limbo.routes(bookie),
        *space.routes(bookie),
        *config.routes(bookie, os.environ),
        *java_routes.routes(api, bookie),
    )
