"""A front-end with real sockets and real bookies behind it, all on the event loop of one test.

The test is the supervisor. A disk's bookie is served as its worker process does, batch by batch; a disk that is held
takes nothing until it is told to. Answers have to fit into the slots of a link: who waits for a free one here waits for
itself.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from bkbox.bookie.bookie import Bookie
from bkbox.frontend.server import Frontend
from bkbox.ipc import channel, link
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.frontend import AttachDisk, Listening, OpenFrontend, SetAccessPolicy
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import GetStats, Stats, Stop
from bkbox.worker.frontend_link import FrontLink
from tests.bookie.bench import answer_group, bookie_of, new_disk, open_store
from tests.harness.raw3 import RawClient3

T = TypeVar("T")
FRAME_BYTES_MAX = 5_242_880
INFLIGHT_BYTES_MAX = FRAME_BYTES_MAX


class InProcessDisk:
    """One disk: its store, its bookie, and the worker's end of the link."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path = new_disk(folder)
        self.store = open_store(self.path)
        self.bookie: Bookie = bookie_of(self.store)
        self.link: FrontLink | None = None
        self._loop = asyncio.get_running_loop()

    async def attach(self, control: AsyncChannel, name: str, *, listed: bool = True) -> None:
        front, back = link.pair()
        with front:
            control.send(AttachDisk(disk=name), [front.fileno()])
        self.link = await asyncio.to_thread(FrontLink, back)
        if listed:
            self.announce()
        self.resume()

    def announce(self) -> None:
        assert self.link is not None
        self.link.announce([ledger for ledger, _ in self.store.ledgers()])

    def hold(self) -> None:
        """Take nothing more from the link for now."""
        assert self.link is not None
        self._loop.remove_reader(self.link)

    def resume(self) -> None:
        assert self.link is not None
        self._loop.add_reader(self.link, self._turn)

    def _turn(self) -> None:
        assert self.link is not None
        try:
            group = self.link.pop_group()
            if group is not None:
                answer_group(self.bookie, group.area, group.segments, self.link.responses(group))
                self.link.done(group, read_only=False)
            for connection, frames in self.bookie.pop_ready_polls():
                for frame in frames:
                    self.link.poll_responses().put(connection, frame, 1)
            self.link.flush()
        except EOFError:
            self.detach()

    def detach(self) -> None:
        """The worker is gone, as far as the front-end can see."""
        if self.link is not None:
            self._loop.remove_reader(self.link)
            self.link.close()
            self.link = None
            self.bookie.forget_connections(link.connections_of(0))


class InProcessBookie:
    """The front-end, seen by its supervisor and by clients."""

    def __init__(self, control: AsyncChannel, port: int, disks: list[InProcessDisk]) -> None:
        self.control = control
        self.port = port
        self.disks = disks
        self._clients: list[RawClient3] = []

    async def client(self) -> RawClient3:
        made = await asyncio.to_thread(RawClient3, self.port)
        self._clients.append(made)
        return made

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()

    async def stats(self) -> dict[str, object]:
        found = await self.control.call(GetStats())
        assert isinstance(found, Stats)
        return found.values


@asynccontextmanager
async def serving(
    folder: Path, disks: int = 1, admit: SetAccessPolicy | None = None, **bounds: Any
) -> AsyncIterator[InProcessBookie]:
    """A bookie that listens, with all its disks attached and listed. ``bounds``: of OpenFrontend."""
    ours, theirs = channel.pair()
    listening = asyncio.Event()

    def says(message: Message, _fds: list[int]) -> None:
        if isinstance(message, Listening):
            listening.set()

    frontend = threading.Thread(target=Frontend(theirs).run, name="frontend")
    frontend.start()
    control = AsyncChannel(ours, on_message=says)
    made = [InProcessDisk(folder / str(number)) for number in range(disks)]
    names = [f"disk {number}" for number in range(disks)]
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        number = int(port.getsockname()[1])
        order = OpenFrontend(
            frame_bytes_max=FRAME_BYTES_MAX,
            connection_inflight_bytes_max=INFLIGHT_BYTES_MAX,
            disks=names,
            disk_paths=[str(disk.path) for disk in made],
            attached=names,
            **bounds,
        )
        if admit is not None:
            control.send(admit)
        control.send(order, [port.fileno()])
    for disk, name in zip(made, names, strict=True):
        await disk.attach(control, name)
    await listening.wait()
    bookie = InProcessBookie(control, number, made)
    try:
        yield bookie
    finally:
        bookie.close_clients()
        await control.call(Stop())
        await asyncio.to_thread(frontend.join)
        control.close()
        for disk in made:
            disk.detach()
            disk.store.abandon()
