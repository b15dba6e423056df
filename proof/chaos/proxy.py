"""The network in front of one bookie: a TCP proxy that can cut connections, or hold bytes back.

A bookie listens on one address of the host and advertises another one with the same port, where its proxy listens: so
clients and other bookies alike reach the bookie through the proxy, without privileges.

========  ==========================================================================================
state     what happens
========  ==========================================================================================
open      bytes are passed on
cut       connections are reset, new ones too
silent    nothing is passed on, either way; bytes held back follow when the network is open again
one-way   the same, but requests are passed on: the bookie executes them, and its responses are held back
========  ==========================================================================================
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Literal

from bkbox.errors import ChaosError

State = Literal["open", "cut", "silent", "one-way"]

_CHUNK_BYTES = 1 << 16
_NO_LINGER = struct.pack("ii", 1, 0)


class Proxy:
    """Passes ``address`` on to ``target``, both (host, port)."""

    def __init__(self, address: tuple[str, int], target: tuple[str, int]) -> None:
        self.state: State = "open"
        self._address = address
        self._target = target
        self._requests = asyncio.Event()
        self._responses = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.turn("open")

    async def start(self) -> None:
        """Raises ChaosError if the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, *self._address)
        except OSError as error:
            host, port = self._address
            raise ChaosError(f"cannot listen on {host}:{port}: {error.strerror}") from error

    def turn(self, state: State) -> None:
        """Changes the state, for existing and future connections."""
        self.state = state
        if state in ("open", "one-way"):
            self._requests.set()
        else:
            self._requests.clear()
        if state == "open":
            self._responses.set()
        else:
            self._responses.clear()
        if state == "cut":
            self._reset()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # lets aborted sockets be closed

    def _reset(self) -> None:
        for writer in self._writers:
            _reset(writer)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._pass(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        mine = {writer}
        self._writers.add(writer)
        try:
            if self.state == "cut":
                return
            await self._requests.wait()
            with suppress(OSError):
                there, back = await asyncio.open_connection(*self._target)
                mine.add(back)
                self._writers.add(back)
                pumps = (
                    asyncio.ensure_future(_pump(reader, back, self._requests)),
                    asyncio.ensure_future(_pump(there, writer, self._responses)),
                )
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._writers -= mine
            for each in mine:
                _reset(each)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes without an orderly end, as a host that went away does: the peer gets ECONNRESET."""
    if not writer.is_closing():
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: asyncio.Event
) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            await allowed.wait()
            writer.write(data)
            await writer.drain()
