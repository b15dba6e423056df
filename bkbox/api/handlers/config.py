"""Routes of the admin API about the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bkbox.api.admin.requests import Reload
from bkbox.api.admin.routes import Request, Route
from bkbox.api.admin.socket_path import CONFIG_URL
from bkbox.supervisor.config_reload import reload

if TYPE_CHECKING:
    from bkbox.supervisor.supervisor import Supervisor


def routes(bookie: Supervisor, environ: Mapping[str, str]) -> tuple[Route, ...]:
    """``GET`` the running configuration: value and source of each key; ``POST …/reload``: reload it, returns the
    changes."""

    async def running(_request: Request) -> object:
        sources = bookie.config.provenance
        return {
            key: {"value": value, "from": sources[key]}
            for key, value in bookie.config.values().items()
        }

    async def apply_file(request: Request) -> object:
        changes = reload(bookie, environ, dry_run=request.body_as(Reload).dry_run)
        return [
            {"key": each.key, "before": each.before, "after": each.after, "from": each.source}
            for each in changes
        ]

    return (
        Route(
            "GET",
            CONFIG_URL,
            running,
            "The running configuration: the value of each key, and its source.",
            returns=dict[str, dict[str, object]],
        ),
        Route(
            "POST",
            f"{CONFIG_URL}/reload",
            apply_file,
            "Read the configuration file anew; what changed.",
            Reload,
            returns=list[dict[str, object]],
        ),
    )
