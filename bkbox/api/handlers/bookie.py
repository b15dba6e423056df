"""Routes of the admin API about the bookie as a whole.

``GET``  /api/v1/status                       the status document
``GET``  /api/v1/status/schema                its JSON Schema
``GET``  /api/v1/bookies                      the bookies of the cluster
``GET``  /api/v1/events                       changes, as server-sent events
``GET``  /livez, /readyz, /healthz            for supervisors and load balancers; ``?verbose``: check by check
``GET``  /metrics                             for Prometheus
``GET``  /openapi.json                        this API
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from bkbox.api.admin.application import status_route
from bkbox.api.admin.cluster_members import Member, members_of
from bkbox.api.admin.routes import EventStream, JsonResponse, Query, Request, Route, TextResponse
from bkbox.api.admin.schema import schema_of
from bkbox.api.admin.socket_path import BOOKIES_URL, EVENTS_URL, STATUS_URL
from bkbox.api.admin.status import Status
from bkbox.checks.health import Health, health_of, not_ready

if TYPE_CHECKING:
    from bkbox.api.shared import Api

_UNAVAILABLE = 503
_CLUSTER_S = 10.0


def routes(api: Api, table: Callable[[], tuple[Route, ...]]) -> tuple[Route, ...]:
    """``table``: all routes of the API."""

    async def schema(_request: Request) -> object:
        return schema_of(Status, "Status of a bookie of bkbox")

    async def bookies(_request: Request) -> object:
        async with asyncio.timeout(_CLUSTER_S):
            return [asdict(each) for each in await members_of(api.store, api.topology())]

    async def events(request: Request) -> object:
        return EventStream(api.events.listen(request.query.get("after")))

    async def alive(_request: Request) -> object:
        return TextResponse("ok\n")  # the response itself is the proof of life

    async def ready(_request: Request) -> object:
        why = not_ready(await api.status())
        return TextResponse(f"{why}\n", status=_UNAVAILABLE) if why else TextResponse("ok\n")

    async def health(request: Request) -> object:
        found = health_of(await api.status(), await api.probes.recent())
        value: object = asdict(found) if request.query.get("verbose") else {"state": found.state}
        return JsonResponse(value, _UNAVAILABLE if found.state == "fail" else 200)

    async def metrics(_request: Request) -> object:
        from bkbox.metrics.exposition import CONTENT_TYPE, exposition

        java_names = api.bookie.config.metrics_java_names
        return TextResponse(exposition(await api.status(), java_names=java_names), CONTENT_TYPE)

    async def openapi(_request: Request) -> object:
        from bkbox.api.admin.openapi import document_of

        return document_of(table())

    text_media = "text/plain"
    return (
        status_route(lambda: api.status()),
        Route(
            "GET",
            f"{STATUS_URL}/schema",
            schema,
            "JSON Schema of the status document.",
            returns=dict[str, object],
        ),
        Route(
            "GET",
            EVENTS_URL,
            events,
            "Changes, as server-sent events: each has a number, a severity, a subject and a text.",
            query=(Query("after", "integer", "Number of the last event that was seen."),),
            media="text/event-stream",
        ),
        Route(
            "GET",
            BOOKIES_URL,
            bookies,
            "The bookies of the cluster, with mode, rack and version.",
            returns=list[Member],
        ),
        Route("GET", "/livez", alive, "Responds while the supervisor runs.", media=text_media),
        Route(
            "GET",
            "/readyz",
            ready,
            "200 if clients should be sent here, else 503 and the reason.",
            media=text_media,
            statuses=(_UNAVAILABLE,),
        ),
        Route(
            "GET",
            "/healthz",
            health,
            "Problems, if any: 503 where a check fails. Each disk is written to and read from, every 30 s at "
            "most.",
            returns=Health,
            query=(Query("verbose", "boolean", "Show every check."),),
            statuses=(_UNAVAILABLE,),
        ),
        Route("GET", "/metrics", metrics, "Metrics for Prometheus.", media=text_media),
        Route(
            "GET",
            "/openapi.json",
            openapi,
            "This API as an OpenAPI document.",
            returns=dict[str, object],
        ),
    )
