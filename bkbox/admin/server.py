"""The admin server: a unix socket, and the application (application.py) behind it.

Rules:
- The socket has mode 0600 before it listens: who may open it is who may administer the bookie.
- A socket file that nobody listens on was left by a killed process and is replaced; one that
  answers means that another bookie runs here, which is refused.
- The application is loaded when the first client connects: aiohttp takes longer to import than a
  bookie to start, and as much memory as the supervisor.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from bkbox.admin.paths import short_address
from bkbox.errors import BookieRunningError, BootError

if TYPE_CHECKING:
    from aiohttp import web

    from bkbox.admin.application import StatusSource
    from bkbox.admin.routes import Routes

_BACKLOG = 100


class AdminServer:
    """A server that listens; ``close`` ends it and takes its socket file away."""

    def __init__(
        self, path: Path, listener: socket.socket, status: StatusSource, routes: Routes
    ) -> None:
        self._path = path
        self._inode = path.stat().st_ino
        self._listener = listener
        self._status = status
        self._routes = routes
        self._runner: web.AppRunner | None = None
        self._serving: asyncio.Task[asyncio.Server] | None = None
        listener.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(listener, self._first_client)

    def _first_client(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._serving = asyncio.ensure_future(self._serve())

    async def _serve(self) -> asyncio.Server:
        from bkbox.admin.application import runner_of

        self._runner = runner_of(self._status, self._routes())
        await self._runner.setup()
        assert self._runner.server is not None
        return await asyncio.get_running_loop().create_unix_server(
            self._runner.server, sock=self._listener
        )

    async def close(self) -> None:
        """Stop listening, end open connections, remove the socket file if it is still this
        server's.
        """
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._serving is not None:
            (await self._serving).close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._listener.close()
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass


async def start(path: Path, status: StatusSource, routes: Routes | None = None) -> AdminServer:
    """Listen on ``path``; each request asks ``status`` anew. ``routes``: what else it answers.

    Raises BookieRunningError if another process answers there, BootError if the socket cannot be
    made.
    """
    return AdminServer(path, _bind(path), status, routes or tuple)


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
