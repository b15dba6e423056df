"""The service info in a bookie's registration: its endpoint for clients, its endpoint for operators, and its kind."""

from __future__ import annotations

from dataclasses import replace

import bkbox
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.config.schema import Config
from bkbox.config.values import is_loopback, split_address
from bkbox.wire.metadata.service_info import (
    ADMIN_ENDPOINT_ID,
    ADMIN_SOCKET_PROPERTY,
    VERSION_PROPERTY,
    Endpoint,
    ServiceInfo,
    rpc_service_info,
)

_ANY = ("0.0.0.0", "::")  # noqa: S104 - looked for, not listened on


def service_info_of(config: Config, listen: str, http_listen: str) -> ServiceInfo:
    """The service info to register. ``listen`` and ``http_listen`` are the listening addresses, HOST:PORT; the latter
    is empty without an admin API over TCP. Of an admin API that only this host reaches, the endpoint is published if
    clients have to be on this host, too."""
    host, _, port = listen.rpartition(":")
    host = config.advertised_host or host
    info = rpc_service_info(host, int(port))
    admin = admin_endpoint(config, http_listen, host)
    endpoints = info.endpoints if admin is None else (*info.endpoints, admin)
    version = (VERSION_PROPERTY, f"bkbox {bkbox.__version__}")
    socket = (ADMIN_SOCKET_PROPERTY, str(admin_socket_path(config)))
    return replace(info, endpoints=endpoints, properties=(version, socket))


def admin_endpoint(config: Config, http_listen: str, host: str) -> Endpoint | None:
    """The admin API's endpoint for clients that reach the bookie at ``host``; None if they cannot reach it."""
    admin = split_address(http_listen)
    if admin is None or (is_loopback(admin[0]) and not is_loopback(host)):
        return None
    scheme = "https" if config.http_tls == "required" else "http"
    return Endpoint(ADMIN_ENDPOINT_ID, admin[1], host if admin[0] in _ANY else admin[0], scheme)
