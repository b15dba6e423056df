"""The addresses of a bookie: the payload of its registration.

An empty payload is the old form, one ``bookie-rpc`` endpoint that is split from the bookie id. Source:
DataFormats.proto (BookieServiceInfoFormat), BookieServiceInfoUtils.java, BookieSocketAddress.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from bkbox.base.ids import BookieId
from bkbox.errors import EncodingError
from bkbox.wire import protobuf
from bkbox.wire.protobuf import Field, Kind, Label, Message

RPC_PROTOCOL = "bookie-rpc"
RPC_ENDPOINT_ID = "bookie"
ADMIN_ENDPOINT_ID = "httpserver"
"""Id of the HTTP server's endpoint, as Java's bookie names it (HttpService.java)."""
VERSION_PROPERTY = "version"
ADMIN_SOCKET_PROPERTY = "adminSocket"
"""Properties of bkbox's bookies, Java's have none: its version, the path of its admin API's socket on its own host."""

_ENDPOINT = Message(
    "BookieServiceInfoFormat.Endpoint",
    Field(1, "id", Kind.STRING, Label.REQUIRED),
    Field(2, "port", Kind.INT32, Label.REQUIRED),
    Field(3, "host", Kind.STRING, Label.REQUIRED),
    Field(4, "protocol", Kind.STRING, Label.REQUIRED),
    Field(5, "auth", Kind.STRING, Label.REPEATED),
    Field(6, "extensions", Kind.STRING, Label.REPEATED),
)
_PROPERTY = Message(
    "BookieServiceInfoFormat.PropertiesEntry",
    Field(1, "key", Kind.STRING),
    Field(2, "value", Kind.STRING),
)
_FORMAT = Message(
    "BookieServiceInfoFormat",
    Field(6, "endpoints", Kind.MESSAGE, Label.REPEATED, message=_ENDPOINT),
    Field(7, "properties", Kind.MESSAGE, Label.REPEATED, message=_PROPERTY),
)


class HostPort(NamedTuple):
    """A TCP address."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a bookie and its protocol."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """All addresses of a bookie, and properties of its own choice."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def rpc(self) -> HostPort | None:
        """The address for clients; None if the bookie cannot be reached."""
        for endpoint in self.endpoints:
            if endpoint.protocol == RPC_PROTOCOL:
                return HostPort(endpoint.host, endpoint.port)
        return None


def rpc_service_info(host: str, port: int) -> ServiceInfo:
    """The registration of a bookie with nothing but its wire protocol."""
    return ServiceInfo((Endpoint(RPC_ENDPOINT_ID, port, host, RPC_PROTOCOL),))


def split_bookie_id(bookie: str) -> HostPort | None:
    """Host and port of a bookie id of the old form; None for ids that are mere names."""
    parts = bookie.split(":")
    if len(parts) < 2 or not re.fullmatch("[0-9]{1,5}", parts[1]) or int(parts[1]) > 65535:
        return None
    return HostPort(parts[0], int(parts[1]))


def encode(info: ServiceInfo) -> bytes:
    """The bytes; empty for an empty info."""
    return protobuf.encode(
        _FORMAT,
        {
            "endpoints": [
                {
                    "id": endpoint.id,
                    "port": endpoint.port,
                    "host": endpoint.host,
                    "protocol": endpoint.protocol,
                    "auth": endpoint.auth,
                    "extensions": endpoint.extensions,
                }
                for endpoint in info.endpoints
            ],
            "properties": [{"key": key, "value": value} for key, value in info.properties],
        },
    )


def decode(bookie: BookieId, data: bytes) -> ServiceInfo:
    """The info that this bookie registered.

    Raises EncodingError, also for an empty payload of a bookie whose id is not host:port.
    """
    if not data:
        address = split_bookie_id(bookie)
        if address is None:
            raise EncodingError(f"bookie {bookie} registered no address")
        return ServiceInfo((Endpoint(bookie, address.port, address.host, RPC_PROTOCOL),))
    values = protobuf.decode(_FORMAT, data)
    endpoints = tuple(
        Endpoint(
            endpoint["id"],
            endpoint["port"],
            endpoint["host"],
            endpoint["protocol"],
            tuple(endpoint["auth"]),
            tuple(endpoint["extensions"]),
        )
        for endpoint in values["endpoints"]
    )
    properties = {entry.get("key", ""): entry.get("value", "") for entry in values["properties"]}
    return ServiceInfo(endpoints, tuple(properties.items()))
