"""The bookies of a cluster, from the metadata store and from what each bookie publishes about itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bkbox.api.admin.socket_path import SOCKET_NAME
from bkbox.config.values import join_address
from bkbox.errors import EncodingError
from bkbox.wire.metadata import cookie
from bkbox.wire.metadata.service_info import (
    ADMIN_ENDPOINT_ID,
    ADMIN_SOCKET_PROPERTY,
    VERSION_PROPERTY,
    Endpoint,
    ServiceInfo,
)

if TYPE_CHECKING:
    from bkbox.client.placement.topology import Topology
    from bkbox.metadata.base import MetadataStore

WRITABLE, READ_ONLY, DOWN = "writable", "read-only", "down"


@dataclass(frozen=True, slots=True)
class Member:
    """A bookie of the cluster. ``address`` is None if it is not registered or does not report one, ``rack`` if there is
    no rack map. The bookie itself reports ``version``, and ``admin`` and ``socket``, the addresses of its admin API for
    other hosts and on its own; Apache's bookies report no version and no socket. Of one that is not registered
    ``socket`` is where it has its own unless ``run_dir`` is set: it answers there while it starts.
    """

    id: str
    address: str | None
    mode: str
    rack: str | None = None
    version: str | None = None
    admin: str | None = None
    socket: str | None = None


async def members_of(store: MetadataStore, topology: Topology | None = None) -> list[Member]:
    """All bookies that the cluster knows, by id. "down": the metadata store has its cookie, and it is not registered.
    Raises MetadataError."""
    registered = await store.bookies()
    stored = await store.cookies()
    known = sorted({*registered, *stored})
    hosts = {
        bookie: rpc.host
        for bookie, there in registered.items()
        if (rpc := there.service_info.rpc) is not None
    }
    racks = {} if topology is None else await topology.racks(hosts)
    members = []
    for bookie in known:
        if bookie not in registered:
            members.append(Member(bookie, None, DOWN, socket=_socket_of(stored[bookie].value)))
            continue
        there = registered[bookie]
        info = there.service_info
        properties = dict(info.properties)
        members.append(
            Member(
                bookie,
                None if info.rpc is None else join_address(*info.rpc),
                READ_ONLY if there.read_only else WRITABLE,
                racks.get(bookie),
                properties.get(VERSION_PROPERTY),
                _admin_address(info),
                properties.get(ADMIN_SOCKET_PROPERTY),
            )
        )
    return members


def _socket_of(data: bytes) -> str | None:
    try:
        disks = cookie.directories(cookie.decode(data).ledger_dirs)
    except EncodingError:
        return None
    return str(Path(disks[0]) / SOCKET_NAME) if disks else None


def _admin_address(info: ServiceInfo) -> str | None:
    for endpoint in info.endpoints:
        if endpoint.id == ADMIN_ENDPOINT_ID and endpoint.protocol in ("http", "https"):
            return url_of(endpoint)
    return None


def url_of(endpoint: Endpoint) -> str:
    return f"{endpoint.protocol}://{join_address(endpoint.host, endpoint.port)}"
