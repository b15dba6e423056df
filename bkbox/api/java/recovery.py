"""The HTTP paths of Apache's bookie about autorecovery (see bookie.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bkbox.api.admin.routes import Query, Request, Route, TextResponse
from bkbox.base.ids import bookie_id
from bkbox.errors import BadRequestError, JobRefusedError
from bkbox.jobs.job import JobKind

if TYPE_CHECKING:
    from bkbox.api.shared import Api
    from bkbox.metadata.base import MetadataStore
    from bkbox.supervisor.supervisor import Supervisor

RECOVERY = "/api/v1/autorecovery"
_TEXT = "text/plain"


@dataclass(frozen=True, slots=True)
class Delay:
    """``lost_bookie_recovery_delay``: seconds."""

    delay_seconds: int


@dataclass(frozen=True, slots=True)
class Decommission:
    """The bookie to be emptied; ``delete_cookie``: "true" or "false"."""

    bookie_src: str
    delete_cookie: str = "false"


def routes(api: Api, bookie: Supervisor) -> tuple[Route, ...]:
    async def state(_request: Request) -> object:
        return {"enabled": await api.store.under_replication.enabled()}

    async def switch(request: Request) -> object:
        switch_on: bool = request.query["enabled"]
        await api.store.under_replication.set_enabled(switch_on)
        return {"enabled": switch_on}

    async def marked(request: Request) -> object:
        found = await _marked(api.store, request)
        if not found:
            return TextResponse("No under replicated ledgers found", status=404)
        return found if request.query.get("printmissingreplica") else list(map(int, found))

    async def auditor(_request: Request) -> object:
        found = await api.store.under_replication.auditor()
        if found is None:
            return TextResponse("No auditor found", status=404)
        return TextResponse(f"Auditor: {found}")

    async def delay(_request: Request) -> object:
        found = await api.store.under_replication.recovery_delay()
        if found is None:
            return TextResponse("Exception when get lostBookieRecoveryDelay.", status=404)
        return TextResponse(f"lostBookieRecoveryDelay value: {found.seconds}")

    async def set_delay(request: Request) -> object:
        seconds = request.body_as(Delay).delay_seconds
        if not 0 <= seconds < 2**31:
            raise BadRequestError(f"body.delay_seconds is {seconds}; it has to be 0 or more")
        await api.store.under_replication.set_recovery_delay_s(seconds)
        return TextResponse(f"Success set lostBookieRecoveryDelay to {seconds}")

    async def decommission(request: Request) -> object:
        body_as = request.body_as(Decommission)
        if bookie.jobs is None:
            raise JobRefusedError("the bookie is still starting: try again when it is up")
        name = bookie_id(body_as.bookie_src)
        arguments = {"bookie": str(name)}
        if body_as.delete_cookie.lower() == "true":
            arguments["delete_cookie"] = "true"
        await bookie.jobs.start(JobKind.DECOMMISSION, arguments)
        return TextResponse(f"Success send decommission Bookie command {name}")

    enabled = dict[str, bool]
    return (
        Route(
            "GET",
            f"{RECOVERY}/status",
            state,
            "True if autorecovery is on in the cluster.",
            returns=enabled,
            java=True,
        ),
        Route(
            "PUT",
            f"{RECOVERY}/status",
            switch,
            "Turn autorecovery on or off in the cluster.",
            returns=enabled,
            query=(Query("enabled", "boolean", "True to switch it on.", required=True),),
            java=True,
        ),
        Route(
            "GET",
            f"{RECOVERY}/list_under_replicated_ledger",
            marked,
            "Ledgers that lack replicas; 404 where there are none.",
            query=(
                Query("missingreplica", "string", "Only those that lack the one of this bookie."),
                Query("excludingmissingreplica", "string", "Only those that do not."),
                Query("printmissingreplica", "boolean", "With the bookies whose replicas lack."),
            ),
            statuses=(404,),
            java=True,
        ),
        Route(
            "GET",
            f"{RECOVERY}/who_is_auditor",
            auditor,
            "The auditor of the cluster.",
            media=_TEXT,
            statuses=(404,),
            java=True,
        ),
        Route(
            "GET",
            f"{RECOVERY}/lost_bookie_recovery_delay",
            delay,
            "Delay, in seconds, before the ledgers of a lost bookie are copied.",
            media=_TEXT,
            statuses=(404,),
            java=True,
        ),
        Route(
            "PUT",
            f"{RECOVERY}/lost_bookie_recovery_delay",
            set_delay,
            "Set that.",
            Delay,
            media=_TEXT,
            java=True,
        ),
        Route(
            "PUT",
            f"{RECOVERY}/decommission",
            decommission,
            "Start to take a bookie out of the cluster.",
            Decommission,
            media=_TEXT,
            java=True,
        ),
    )


async def _marked(store: MetadataStore, request: Request) -> dict[str, list[str]]:
    """Ledgers marked as under-replicated, and the bookies whose replicas they lack."""
    tree = store.under_replication
    with_it, without = (
        request.query.get("missingreplica"),
        request.query.get("excludingmissingreplica"),
    )
    found = {}
    async for ledger in tree.ledgers():
        mark = await tree.find(ledger)
        if mark is None:
            continue  # done meanwhile
        replicas = list(mark.replicas)
        if (with_it and with_it not in replicas) or (without and without in replicas):
            continue
        found[str(ledger)] = replicas
    return found
