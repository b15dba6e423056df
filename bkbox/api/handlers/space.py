"""Routes of the admin API about disk space.

``GET``  space                     of each disk in service
``GET``  space/segments/{id}       the report of each disk about its segment with that id
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bkbox.api.admin.routes import Request, Route
from bkbox.api.admin.socket_path import SPACE_URL
from bkbox.api.admin.space import DiskSpace
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.space import ExplainSegment, GetSpace, Space

if TYPE_CHECKING:
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor

_TIMEOUT_S = 5.0


def routes(bookie: Supervisor) -> tuple[Route, ...]:
    async def space(_request: Request) -> object:
        known = {field.name for field in fields(DiskSpace)}
        found = await _each(bookie, GetSpace())
        return [{name: item[name] for name in item if name in known} for item in found]

    async def explain(request: Request) -> object:
        return await _each(bookie, ExplainSegment(segment=request.number("id")))

    return (
        Route(
            "GET",
            SPACE_URL,
            space,
            "Use of the space of each disk in service.",
            returns=list[DiskSpace],
        ),
        Route(
            "GET",
            f"{SPACE_URL}/segments/{{id}}",
            explain,
            "The segment of that id on each disk, and why it is kept.",
            returns=list[dict[str, object]],
        ),
    )


async def _each(bookie: Supervisor, call: Message) -> list[dict[str, Any]]:
    return [await _of(disk, call) for disk in bookie.disks if disk.usable]


async def _of(disk: Disk, call: Message) -> dict[str, Any]:
    reply = await disk.call(call, timeout_s=_TIMEOUT_S)
    assert isinstance(reply, Space)
    return {"path": str(disk.path), "disk": disk.uuid, **reply.values}
