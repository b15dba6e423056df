"""kazoo, adapted to connection.py; no other module imports it.

Gaps in kazoo's public interface: it has no requests to remove watches (there is one here), and a client whose server
does not respond cannot be stopped in less than a session timeout (the handler here can cut its socket). Source:
KazooClient, ConnectionHandler; ZooKeeper's zookeeper.jute (RemoveWatchesRequest).
"""

from __future__ import annotations

import logging
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_RDWR, socket
from typing import Any, ClassVar

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from bkbox.config.metadata_uri import ZooKeeperAccess
from bkbox.errors import BootError, ConfigError, MetadataError
from bkbox.metadata.tree.nodes import (
    BadVersionError,
    LostReplyError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bkbox.security.secret_files import read_secret, read_word

__all__ = [
    "EventType",
    "KazooState",
    "KeeperState",
    "CuttableHandler",
    "RemoveDataWatches",
    "new_client",
    "translated",
    "first_failure",
]

CONNECT_TIMEOUT_S = 4.0
"""Time-out, in seconds, of one TCP connection; a slower server counts as unreachable."""

RECONNECT_PAUSE_MAX_S = 1.0

_kazoo_log = logging.getLogger("bkbox.kazoo")
_kazoo_log.setLevel(logging.CRITICAL + 1)  # it logs each request, with the passwords of ledgers

_ERRORS: dict[type[Exception], tuple[type[MetadataError], str]] = {
    kazoo.NoNodeError: (NoNodeError, "there is no znode {}"),
    kazoo.NodeExistsError: (NodeExistsError, "the znode {} exists already"),
    kazoo.BadVersionError: (BadVersionError, "the znode {} is at another version"),
    kazoo.NotEmptyError: (NotEmptyError, "the znode {} has children"),
}
_LOST = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
    kazoo.RequestTimeoutError,
)


def new_client(
    hosts: str, session_timeout_s: float, handler: CuttableHandler, access: ZooKeeperAccess
) -> Any:
    """A client that reconnects for ever, and logs nothing. Raises ConfigError."""
    return KazooClient(
        hosts,
        timeout=session_timeout_s,
        handler=handler,
        connection_retry=KazooRetry(max_tries=-1, max_delay=RECONNECT_PAUSE_MAX_S),
        logger=_kazoo_log,
        **shown(access),
    )


def shown(access: ZooKeeperAccess) -> dict[str, Any]:
    """KazooClient's arguments for authentication and TLS."""
    found: dict[str, Any] = {}
    try:
        if access.secret_file is not None:
            found["auth_data"] = [("digest", read_word(access.secret_file, "secret_file"))]
            found["default_acl"] = CREATOR_ALL_ACL
        if access.tls_key_file is not None:
            read_secret(access.tls_key_file, "tls_key_file")
    except BootError as error:
        raise ConfigError([str(error)]) from None
    if access.tls_ca_file is not None:
        if not os.access(access.tls_ca_file, os.R_OK):
            raise ConfigError([f"tls_ca_file {access.tls_ca_file} cannot be read"])
        found |= {"use_ssl": True, "ca": str(access.tls_ca_file), "check_hostname": True}
    if access.tls_key_file is not None:
        found["certfile"] = str(access.tls_certificate_file)
        found["keyfile"] = str(access.tls_key_file)
    return found


class CuttableHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads, with a socket that can be cut from outside."""

    def __init__(self) -> None:
        super().__init__()
        self._socket: socket | None = None
        self._is_cut = False

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> socket:
        if self._is_cut:
            raise ConnectionAbortedError("the connection is being closed")
        made: socket = super().create_connection(
            *args, timeout=min(timeout, CONNECT_TIMEOUT_S), **kwargs
        )
        self._socket = made
        if self._is_cut:
            self.cut()
        return made

    def cut(self) -> None:
        """End the connection and open no other."""
        self._is_cut = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(SHUT_RDWR)


_DATA = 2
"""The type of watches on data, in requests."""


@dataclass(frozen=True, slots=True)
class RemoveDataWatches:
    """RemoveWatchesRequest for the watches on the data of a znode."""

    type: ClassVar[int] = 18

    path: str

    def serialize(self) -> bytes:
        path = self.path.encode()
        return struct.pack(f">i{len(path)}si", len(path), path, _DATA)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        return True


_FELLOW_FAILURES = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
"""The error of the other requests of a transaction when one of them fails."""


def translated(path: str, error: Exception) -> MetadataError:
    """The MetadataError for a failed request; a response that kazoo could not decode counts as lost."""
    if isinstance(error, _LOST) or not isinstance(error, kazoo.KazooException):
        return LostReplyError(f"the connection to ZooKeeper broke during a request for {path}")
    kind, text = _ERRORS.get(type(error), (MetadataError, ""))
    return kind(text.format(path) or f"ZooKeeper refuses {path}: {type(error).__name__} {error}")


def first_failure(results: list[Any]) -> tuple[int, Exception] | None:
    """The index of the request of a transaction that failed, and its error; None if none did."""
    for place, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, _FELLOW_FAILURES):
            return place, result
    return None
