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
_PLAIN = "text/plain"


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
    async def state(_asked: Request) -> object:
        return {"enabled": await api.store.under_replication.enabled()}

    async def switch(asked: Request) -> object:
        wanted: bool = asked.query["enabled"]
        await api.store.under_replication.set_enabled(wanted)
        return {"enabled": wanted}

    async def marked(asked: Request) -> object:
        found = await _marked(api.store, asked)
        if not found:
            return TextResponse("No under replicated ledgers found", status=404)
        return found if asked.query.get("printmissingreplica") else list(map(int, found))

    async def auditor(_asked: Request) -> object:
        found = await api.store.under_replication.auditor()
        if found is None:
            return TextResponse("No auditor found", status=404)
        return TextResponse(f"Auditor: {found}")

    async def delay(_asked: Request) -> object:
        found = await api.store.under_replication.recovery_delay()
        if found is None:
            return TextResponse("Exception when get lostBookieRecoveryDelay.", status=404)
        return TextResponse(f"lostBookieRecoveryDelay value: {found.seconds}")

    async def set_delay(asked: Request) -> object:
        seconds = asked.told(Delay).delay_seconds
        if not 0 <= seconds < 2**31:
            raise BadRequestError(f"body.delay_seconds is {seconds}; it has to be 0 or more")
        await api.store.under_replication.set_recovery_delay_s(seconds)
        return TextResponse(f"Success set lostBookieRecoveryDelay to {seconds}")

    async def decommission(asked: Request) -> object:
        told = asked.told(Decommission)
        if bookie.jobs is None:
            raise JobRefusedError("the bookie is still starting: try again when it is up")
        name = bookie_id(told.bookie_src)
        arguments = {"bookie": str(name)}
        if told.delete_cookie.lower() == "true":
            arguments["delete_cookie"] = "true"
        await bookie.jobs.start(JobKind.DECOMMISSION, arguments)
        return TextResponse(f"Success send decommission Bookie command {name}")

    enabled = dict[str, bool]
    return (
        Route(
            "GET",
            f"{RECOVERY}/status",
            state,
            "Whether autorecovery is on in the cluster.",
            returns=enabled,
            java=True,
        ),
        Route(
            "PUT",
            f"{RECOVERY}/status",
            switch,
            "Turn autorecovery on or off in the cluster.",
            returns=enabled,
            query=(Query("enabled", "boolean", "Whether it is to be on.", required=True),),
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
            media=_PLAIN,
            statuses=(404,),
            java=True,
        ),
        Route(
            "GET",
            f"{RECOVERY}/lost_bookie_recovery_delay",
            delay,
            "How long a lost bookie is waited for, in seconds.",
            media=_PLAIN,
            statuses=(404,),
            java=True,
        ),
        Route(
            "PUT",
            f"{RECOVERY}/lost_bookie_recovery_delay",
            set_delay,
            "Set that.",
            Delay,
            media=_PLAIN,
            java=True,
        ),
        Route(
            "PUT",
            f"{RECOVERY}/decommission",
            decommission,
            "Start to take a bookie out of the cluster.",
            Decommission,
            media=_PLAIN,
            java=True,
        ),
    )


async def _marked(store: MetadataStore, asked: Request) -> dict[str, list[str]]:
    """Ledgers marked as under-replicated, and the bookies whose replicas they lack."""
    tree = store.under_replication
    with_it, without = asked.query.get("missingreplica"), asked.query.get("excludingmissingreplica")
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
