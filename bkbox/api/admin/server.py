"""The listeners of the admin API: a unix socket, a TCP port if configured, and the application (application.py) behind
them.

Rules:
- The socket has mode 0600 before it listens: permission to open it is permission to administer the bookie.
- A socket file on which no process listens was left by a killed process and is replaced. One that
  answers means that another bookie runs here, which is refused.
- The application is loaded when the first client connects: a bookie without a client of the API needs none of it.
- TCP connections are accepted at a bounded rate, so that clients that open many take little of the supervisor's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkbox.api.admin.socket_path import short_address
from bkbox.base import background
from bkbox.base.text import error_text, reason_of
from bkbox.errors import BookieRunningError, BootError
from bkbox.security.connection_limits import peer_of

if TYPE_CHECKING:
    import ssl

    from bkbox.api.admin.access import Access
    from bkbox.api.admin.application import Application, StatusSource
    from bkbox.api.admin.routes import Route, Routes
    from bkbox.api.admin.tcp_access import TcpAccess

log = logging.getLogger(__name__)

_BACKLOG = 100
_CONNECTIONS_MAX = 1024
"""Maximum number of connections, TLS handshakes included; the application refuses requests long before
(application.py)."""
_PER_ADDRESS_MAX = 128
"""Maximum number of unauthenticated TCP connections from one address, so that unfinished requests from it lock out no
caller at another address."""
_HANDSHAKE_S = 10.0
_GOODBYE_S = 1.0
"""Time-out, in seconds, for the end of a TLS session."""
_PAUSE_S = 0.005
"""Pause, in seconds, between two accepted TCP connections: a TLS handshake takes about a tenth of it, so the bookie
keeps the rest."""
_AGAIN_S = 1.0


class AdminServer:
    """A listening server; ``close`` ends it, and then calls ``on_close``.

    ``access`` is called for each request; ``context`` gives the TLS context of each connection, or None.
    """

    def __init__(
        self,
        listener: socket.socket,
        routes: Routes,
        access: Callable[[], Access],
        context: Callable[[], ssl.SSLContext | None],
        on_close: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._routes = routes
        self._access = access
        self._context = context
        self._on_close = on_close
        self._application: Application | None = None
        self._serving: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._callers = _Callers()
        listener.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(listener, self._first_client)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a server that listens on TCP."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def _first_client(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._serving = background.start(self._serve(), "the admin API")

    async def _serve(self) -> None:
        from bkbox.api.admin.application import Application

        application = Application(self._routes(), self._access, self._callers.let_in)
        self._application = application
        loop = asyncio.get_running_loop()
        over_tcp = self._listener.family != socket.AF_UNIX
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener)
            except OSError as error:  # no descriptor is left, or the client has disconnected
                log.warning("a connection to the admin API failed: %s", error_text(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            too_many = len(self._connections) >= _CONNECTIONS_MAX
            if too_many or (over_tcp and not self._callers.admit(address[0], sock)):
                sock.close()
                continue
            task = asyncio.ensure_future(_serve_one(application, sock, self._context()))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            if over_tcp:
                await asyncio.sleep(_PAUSE_S)

    async def close(self) -> None:
        """Stops listening and closes open connections."""
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._application is not None:
            await self._application.close()
        left = [*self._connections]  # in their TLS handshake
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._listener.close()
        self._on_close()


class _Callers:
    """Counts unauthenticated connections by address; IPv6 addresses count by their network of 64 bits."""

    def __init__(self) -> None:
        self._by_peer: dict[str, list[socket.socket]] = {}
        self._peers: dict[int, str] = {}
        """Address by descriptor; the descriptor may belong to another connection by now."""

    def admit(self, host: str, sock: socket.socket) -> bool:
        """Counts one more connection; returns False if its address has too many."""
        if len(self._by_peer) >= _CONNECTIONS_MAX:
            self._by_peer = {peer: left for peer in self._by_peer if (left := self._open(peer))}
        peer = peer_of(host)
        of_peer = self._by_peer[peer] = self._open(peer)
        if len(of_peer) >= _PER_ADDRESS_MAX:
            return False
        of_peer.append(sock)
        self._peers[sock.fileno()] = peer
        return True

    def let_in(self, descriptor: int) -> None:
        """Removes the connection with this descriptor from the count: it has shown a token."""
        peer = self._peers.pop(descriptor, None)
        if peer is not None:
            left = [sock for sock in self._open(peer) if sock.fileno() != descriptor]
            self._by_peer[peer] = left

    def _open(self, peer: str) -> list[socket.socket]:
        return [sock for sock in self._by_peer.get(peer, ()) if sock.fileno() >= 0]


async def _serve_one(
    application: Application, sock: socket.socket, context: ssl.SSLContext | None
) -> None:
    """Serves a connection after its TLS handshake."""
    from bkbox.api.admin.http_connection import HttpConnection

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    limits: dict[str, Any] = {}
    if context is not None:
        limits = {"ssl_handshake_timeout": _HANDSHAKE_S, "ssl_shutdown_timeout": _GOODBYE_S}
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, sock, ssl=context, **limits
        )
    except OSError as error:  # covers ssl.SSLError and TimeoutError
        log.debug("no connection to the admin API: %s", error_text(error))
        return
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    await application.serve(HttpConnection(reader, writer))


async def start(
    path: Path, status: StatusSource | None = None, routes: Routes | None = None
) -> AdminServer:
    """Listens on the unix socket ``path``. ``routes``: the table that it serves; ``status``: called for each request
    for the status, if the routes do not provide it.

    Raises BookieRunningError if another process answers there, BootError if the socket cannot be
    made.
    """
    listener = _bind(path)
    inode = path.stat().st_ino

    def owner_only() -> Access:
        from bkbox.api.admin.access import OwnerOnly

        return OwnerOnly()

    def all_routes() -> tuple[Route, ...]:
        from bkbox.api.admin.application import status_route

        own = () if status is None else (status_route(status),)
        return (*own, *(() if routes is None else routes()))

    def remove() -> None:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == inode:
                path.unlink()

    return AdminServer(listener, all_routes, owner_only, lambda: None, remove)


async def start_tcp(
    host: str, port: int, routes: Routes, access: Callable[[], TcpAccess]
) -> AdminServer:
    """Listens on a TCP port; 0 takes a free one. ``access`` returns the access that is in force now. Raises
    BootError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        return AdminServer(listener, routes, access, lambda: access().context, lambda: None)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        listener.close()
        raise BootError(
            f"cannot listen on {host}:{port} for the admin API: {reason_of(error)}. Is another process using the port? "
            "Change `http_listen` in the configuration or stop it"
        ) from error


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with short_address(path) as address:
            _remove_stale(path, address)
            listener.bind(address)
            os.chmod(address, 0o600)
    except OSError as error:
        listener.close()
        raise BootError(f"cannot make the admin socket {path}: {error.strerror}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path, address: str) -> None:
    try:
        mode = os.lstat(address).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise BootError(f"{path} is in the way of the admin socket and is not a socket: move it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(address)
            return
    raise BookieRunningError(f"a bookie is running already: it answers on {path}")
