"""The admin server: the status document over HTTP on a unix socket.

Rules:
- ``GET /api/v1/status`` answers the status document as JSON; there is nothing else yet.
- The socket has mode 0600 before it listens: who may open it is who may administer the bookie.
- A socket file that nobody listens on was left by a killed process and is replaced; one that
  answers means that another bookie runs here, which is refused.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from bkbox.admin.paths import STATUS_URL, short_address
from bkbox.admin.status import Status, to_json
from bkbox.errors import BookieRunningError, BootError

StatusSource = Callable[[], Awaitable[Status]] | Callable[[], Status]


class AdminServer:
    """A server that listens; ``close`` ends it and takes its socket file away."""

    def __init__(self, path: Path, runner: web.AppRunner, server: asyncio.AbstractServer) -> None:
        self._path = path
        self._inode = path.stat().st_ino
        self._runner = runner
        self._server = server

    async def close(self) -> None:
        """Stop listening, end open connections, remove the socket file if it is still this
        server's.
        """
        self._server.close()
        await self._runner.cleanup()
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass


async def start(path: Path, status: StatusSource) -> AdminServer:
    """Listen on ``path``; each request asks ``status`` anew.

    Raises BookieRunningError if another process answers there, BootError if the socket cannot be
    made.
    """

    async def answer_status(_request: web.Request) -> web.Response:
        result = status()
        document = await result if inspect.isawaitable(result) else result
        return web.json_response(to_json(document))

    listener = _bind(path)
    app = web.Application()
    app.router.add_get(STATUS_URL, answer_status)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_unix_server(runner.server, sock=listener)
    return AdminServer(path, runner, server)


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
