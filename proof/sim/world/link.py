"""The client's connections to bookies over the simulated network, replacing those over sockets.

The real pool makes the requests and the real decoders read the responses (bkbox/client). Here every request has a
number, by which its response is matched, whatever the order in which they come. A connection belongs to one front-end
process: it breaks with it, which the client notices unless it is cut off; messages that a broken connection still
carries are dropped at both ends. A message that the network loses is never sent again: its request times out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

from bkbox.base.ids import BookieId
from bkbox.client.connection.add_responses import OutstandingAdds
from bkbox.client.connection.adds import AddSend
from bkbox.client.connection.bookie_connection import _DECODE, BookieLink, RequestPriority, Resolve
from bkbox.client.connection.pool import BookiePool
from bkbox.client.connection.response_matcher import Key, Reply, Request
from bkbox.client.options import ClientOptions, new_backoff
from bkbox.protocol.events import NoResponse
from proof.sim.world.connection import Connection, Listener
from proof.sim.world.frames import code_of
from proof.sim.world.loop import Call, Process
from proof.sim.world.network import Network

Find = Callable[[BookieId], Listener | None]
"""The front-end of a bookie, if one listens."""


class Reachability:
    """The means by which a process reaches bookies; ``host``: where it runs."""

    def __init__(self, host: str, network: Network, find: Find) -> None:
        self.host = host
        self.network = network
        self.find = find


class _SlotSet:
    """The frames of a sending without a response; replaces what the kernel keeps."""

    def __init__(self) -> None:
        self.completed: set[int] = set()

    def is_open(self, slot: int) -> bool:
        return slot not in self.completed


class SimPool(BookiePool):
    """The real pool, with links over the simulated network. Made by a process that has a ``reach``."""

    def __init__(self, resolve: Resolve, options: ClientOptions, rng: random.Random) -> None:
        super().__init__(resolve, options, rng)
        self._process = cast(Process, asyncio.get_running_loop())
        self._reach: Reachability = self._process.reach  # type: ignore[attr-defined]
        self._sim_links: dict[tuple[BookieId, RequestPriority], SimLink] = {}

    def suspects(self) -> frozenset[BookieId]:
        return frozenset(bookie for (bookie, _), link in self._sim_links.items() if link.suspect)

    def _link(self, bookie: BookieId, lane: RequestPriority) -> BookieLink:
        link = self._sim_links.get((bookie, lane))
        if link is None:
            link = SimLink(bookie, lane, self._process, self._reach, self._options, self._rng)
            self._sim_links[bookie, lane] = link
        return cast(BookieLink, link)

    async def close(self) -> None:
        for link in self._sim_links.values():
            link.lose(None)


class SimLink:
    """One lane to one bookie."""

    def __init__(
        self,
        bookie: BookieId,
        lane: RequestPriority,
        process: Process,
        reach: Reachability,
        options: ClientOptions,
        rng: random.Random,
    ) -> None:
        self._bookie = bookie
        self._process = process
        self._reach = reach
        self._options = options
        self._decode = _DECODE[lane]
        self._backoff = new_backoff(options, rng)
        self._not_before = 0.0
        self._connections = 0
        self._connection: Connection | None = None
        self._connecting = False
        self._backlog: list[Request | AddSend] = []
        self._next = 0
        self._waiting: dict[int, tuple[Request | AddSend, int]] = {}
        self._timers: dict[Request | AddSend, Call] = {}

    @property
    def host(self) -> str:
        return self._reach.host

    @property
    def process(self) -> Process:
        return self._process

    @property
    def suspect(self) -> bool:
        return self._process.scheduler.now < self._not_before

    def request(self, key: Key, frame: bytes, timeout_s: float) -> asyncio.Future[Reply]:
        request = Request(key, frame, self._process.create_future())
        self.send(request, timeout_s)
        return request.reply

    def send(self, item: Request | AddSend, timeout_s: float) -> None:
        if self._connection is None and not self._connecting and self.suspect:
            self._process.call_soon(item.fail, NoResponse.NOT_REACHED)
            return
        if isinstance(item, AddSend):
            item.outstanding = cast(OutstandingAdds, _SlotSet())
        self._timers[item] = self._process.after(timeout_s, self._time_is_up, item)
        if self._connection is not None:
            self._post(self._connection, item)
            return
        self._backlog.append(item)
        if not self._connecting:
            self._connecting = True
            self._connect()

    # ---- connecting -----------------------------------------------------------------------------

    def _connect(self) -> None:
        frontend = self._reach.find(self._bookie)
        reach = self._reach
        if reach.network.is_cut(reach.host, self._bookie):
            self._process.after(self._options.connect_timeout_s, self._not_connected)
        elif frontend is None:
            self._process.after(0.0005, self._not_connected)
        else:
            self._process.after(0.0005, self._connected, frontend)

    def _not_connected(self) -> None:
        self._connecting = False
        self._not_before = self._process.scheduler.now + self._backoff.next_s()
        backlog, self._backlog = self._backlog, []
        for item in backlog:
            self._end(item, NoResponse.NOT_REACHED)

    def _connected(self, frontend: Listener) -> None:
        if frontend.process.dead:
            self._not_connected()
            return
        self._connecting = False
        self._backoff.reset()
        self._connections += 1
        self._connection = Connection(self, frontend, self._connections)
        frontend.connections.append(self._connection)
        backlog, self._backlog = self._backlog, []
        for item in backlog:
            self._post(self._connection, item)

    def broken(self, connection: Connection) -> None:
        """The other end has broken the connection."""
        if connection is self._connection:
            self.lose(connection)

    def lose(self, connection: Connection | None) -> None:
        """Fails all requests in flight on the connection, and drops it."""
        connection = connection or self._connection
        if connection is None:
            return
        connection.broken = True
        self._connection = None
        waiting, self._waiting = self._waiting, {}
        for item in dict.fromkeys(item for item, _ in waiting.values()):
            self._end(item, NoResponse.CONNECTION_LOST)

    # ---- requests and responses -------------------------------------------------------------------

    def _post(self, connection: Connection, item: Request | AddSend) -> None:
        if item.is_over:
            return
        frames: list[tuple[int, bytes]] = []
        if isinstance(item, AddSend):
            data, offsets = memoryview(item.frames.data), item.frames.offsets
            base = offsets[0] if len(offsets) else 0
            for index in range(len(item.frames.entries)):
                self._next += 1
                self._waiting[self._next] = item, index
                start, end = offsets[index] - base, offsets[index + 1] - base
                frames.append((self._next, bytes(data[start:end])))
        else:
            self._next += 1
            self._waiting[self._next] = item, 0
            frames.append((self._next, bytes(item.frame)))
        reach, frontend = self._reach, connection.frontend
        if frontend.process.dead:
            # It died and the client has not noticed: the host's kernel resets the connection now.
            reach.network.send(connection.back, self._process, self.broken, connection)
            return
        reach.network.send(connection.there, frontend.process, frontend.take, connection, frames)

    def on_responses(self, connection: Connection, responses: list[tuple[int, bytes]]) -> None:
        """Takes responses from a connection."""
        if connection is not self._connection:
            return
        for number, frame in responses:
            found = self._waiting.pop(number, None)
            if found is None:
                continue  # answered before, or timed out
            item, index = found
            if isinstance(item, AddSend):
                cast(_SlotSet, item.outstanding).completed.add(index)
                item.complete(index, index, code_of(memoryview(frame)[4:]), connection.number)
            else:
                item.end(self._decode(frame[4:], connection.number).reply)
            if item.is_over:
                self._forget(item)

    def _time_is_up(self, item: Request | AddSend) -> None:
        self._end(item, NoResponse.TIMEOUT)

    def _end(self, item: Request | AddSend, status: NoResponse) -> None:
        self._forget(item)
        item.fail(status)

    def _forget(self, item: Request | AddSend) -> None:
        timer = self._timers.pop(item, None)
        if timer is not None:
            timer.cancel()
