"""The front-end process: one listening socket, its sessions, and a link to each disk worker.

It holds no state that outlives it but the table of places, which it asks the workers for. A request for a disk that
is out of service is answered with EIO: 'unknown', never 'no such entry'.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket

from bkbox.frontend.disklink import DiskLink
from bkbox.frontend.diskspace import space_of
from bkbox.frontend.routing import ABSENT, Places, Purpose, Unroutable
from bkbox.frontend.session import Session
from bkbox.ipc import messages
from bkbox.ipc.channel import AsyncChannel
from bkbox.storage.files import Space
from bkbox.wire.codes import Code

log = logging.getLogger(__name__)


class Frontend:
    """Routes between sessions and disks; lives as long as its control channel."""

    def __init__(self) -> None:
        self._links: dict[int, DiskLink] = {}
        self._sessions: dict[int, Session] = {}
        self._numbers = itertools.count(1)
        self._open: messages.OpenFrontend | None = None
        self._places = Places(())
        self._awaited: set[int] = set()
        self._new_ledgers = True
        self._listener: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._control: AsyncChannel | None = None
        self._finished = asyncio.Event()

    async def run(self, control: socket.socket) -> None:
        """Serve until the supervisor says stop or is gone."""
        self._control = AsyncChannel(control, on_message=self._command, on_close=self._finished.set)
        await self._finished.wait()
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions.values()):
            session.abort()

    # ---- the supervisor's commands ------------------------------------------------------------------

    def _command(self, message: messages.Message, fds: list[int]) -> None:
        control = self._control
        assert control is not None
        if isinstance(message, messages.OpenFrontend):
            self._open = message
            self._places = Places(message.disks)
            self._awaited = {self._places.disks.index(disk) for disk in message.attached}
            self._listener = socket.socket(fileno=fds[0])
        elif isinstance(message, messages.AttachDisk):
            disk = self._places.disks.index(message.disk)
            before = self._links.pop(disk, None)
            if before is not None:
                before.close()
            self._links[disk] = DiskLink(disk, socket.socket(fileno=fds[0]), self)
        elif isinstance(message, messages.DiskAway):
            self._places.unlisted(self._places.disks.index(message.disk))
            control.send(messages.Done(call=message.call))
        elif isinstance(message, messages.NewLedgers):
            self._new_ledgers = message.allowed
        elif isinstance(message, messages.GetStats):
            control.send(
                messages.Stats(call=message.call, values={"connections": len(self._sessions)})
            )
        elif isinstance(message, messages.Stop):
            control.send(messages.Stopped(call=message.call, clean=True))
            asyncio.get_running_loop().call_soon(self._finished.set)

    async def _listen(self) -> None:
        assert self._listener is not None
        assert self._control is not None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=self._listener, backlog=1024)
        self._control.send(messages.Listening())

    def _accept(self) -> Session:
        assert self._open is not None
        number = next(self._numbers) & 0xFFFFFFFF
        session = Session(
            number,
            self,
            self._open.frame_bytes_max,
            self._open.connection_inflight_bytes_max,
            self._forget,
        )
        self._sessions[number] = session
        return session

    def _forget(self, number: int) -> None:
        self._sessions.pop(number, None)
        for link in self._links.values():
            link.forget(number)

    # ---- routing ------------------------------------------------------------------------------------

    def route(self, ledger: int, purpose: Purpose) -> DiskLink | Code:
        """The link to send a request to, or the code to answer it with."""
        if ledger < 0:
            return Code.EBADREQ
        place = self._places.find(ledger)
        if place is None:
            if not self._places.all_listed():
                return Code.EIO
            if purpose in ABSENT:
                return ABSENT[purpose]
            if purpose is Purpose.WRITE and not self._new_ledgers:
                return Code.EREADONLY
            chosen = self._places.choose(ledger, self._in_service(), self._writable())
            if isinstance(chosen, Unroutable):
                return Code.EIO
            place = chosen
        link = self._links.get(place)
        return link if link is not None and link.in_service else Code.EIO

    def space(self) -> Space:
        """Room on the bookie's disks, bytes. DiskError."""
        assert self._open is not None
        return space_of(self._open.disk_paths)

    def _in_service(self) -> list[bool]:
        links = (self._links.get(disk) for disk in range(len(self._places.disks)))
        return [link is not None and link.in_service for link in links]

    def _writable(self) -> list[bool]:
        links = (self._links.get(disk) for disk in range(len(self._places.disks)))
        return [link is not None and link.writable for link in links]

    # ---- what the links say -------------------------------------------------------------------------

    def deliver(self, connection: int, count: int, frames: bytes) -> None:
        session = self._sessions.get(connection)
        if session is not None:
            session.answer(frames, count)

    def parked(self, connection: int, count: int) -> None:
        session = self._sessions.get(connection)
        if session is not None:
            session.parked(count)

    def polled(self, connection: int, frames: bytes) -> None:
        session = self._sessions.get(connection)
        if session is not None:
            session.polled(frames)

    def ledgers(self, disk: int, ledgers: list[int]) -> None:
        self._places.record(disk, ledgers)

    def listed(self, disk: int) -> None:
        self._places.listed(disk)
        self._no_longer_awaited(disk)

    def lost(self, disk: int) -> None:
        log.warning("disk %s is out of service: its worker is gone", self._places.disks[disk])
        self._no_longer_awaited(disk)

    def _no_longer_awaited(self, disk: int) -> None:
        self._awaited.discard(disk)
        if not self._awaited and self._opening is None:
            self._opening = asyncio.ensure_future(self._listen())
            self._opening.add_done_callback(_report)


def _report(task: asyncio.Task[None]) -> None:
    """A listener that could not be opened ends the process; the supervisor sees that and says so."""
    error = task.exception()
    if error is not None:
        raise SystemExit(f"cannot listen: {error}")
