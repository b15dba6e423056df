"""The front-end process of a simulated bookie: real ledger directory and request router, messages instead of sockets
and slots.

A request goes to the worker of its ledger's disk with the number of its message in place of a connection's, by which
the response goes back. Requests that a worker leaves without a response get one as the real front-end
does. Every response that leaves is shown to the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, cast

from bkbox.frontend.disk_link import DiskLink
from bkbox.frontend.inflight_requests import refusals
from bkbox.frontend.ledger_directory import LedgerDirectory, Purpose
from bkbox.frontend.loop.routing import Routes
from bkbox.frontend.request_router import RequestRouter
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.frontend import DiskUnavailable, NewLedgers
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import Stop, Stopped
from bkbox.storage.files import Space
from bkbox.wire.codes import Code
from proof.checks.observer import Observer
from proof.sim.world.connection import Connection
from proof.sim.world.frames import ADD, FORCE, OTHER, READ, FrameRequest, code_of, garbled
from proof.sim.world.loop import Process
from proof.sim.world.network import Network

_NUMBERS = 1 << 32

ADDED, ADDED_BY_RECOVERY, FENCED, READ_BY_RECOVERY, DENIED = (
    "an add",
    "an add of a recovery",
    "a fence",
    "a read of a recovery",
    "a denial",
)
"""The kinds of responses with which faults may come."""


class RequestQueue(Protocol):
    """A disk's worker, as front-ends know it."""

    def enqueue(self, number: int, frame: bytes) -> None:
        """A request; ``wake`` follows."""

    def wake(self) -> None:
        """Requests are there."""


class SimLane:
    """The link to one disk's worker, replacing DiskLink."""

    def __init__(self, worker: RequestQueue) -> None:
        self.worker = worker
        self.in_service = False
        self.writable = True
        self.waiting: dict[int, FrameRequest] = {}


class Frontend:
    """One front-end process."""

    def __init__(
        self,
        process: Process,
        bookie: str,
        disks: list[str],
        network: Network,
        observer: Observer,
        on_step: Callable[[str, int], None],
    ) -> None:
        self.process = process
        self.bookie = bookie
        self._on_step = on_step
        self.connections: list[Connection] = []
        self._network = network
        self._observer = observer
        self._places = LedgerDirectory(disks, Routes())
        self._lanes: dict[int, SimLane] = {}
        self._new_ledgers = True
        self._number = 0
        self._flushing = False
        self._to_flush: dict[Connection, None] = {}
        self.listens = False
        process.on_death.append(self._broken)
        self._handlers = Handlers()
        self._handlers.on(DiskUnavailable, self._on_disk_unavailable)
        self._handlers.on(NewLedgers, self._set_new_ledgers)
        self._handlers.on(Stop, self._stop)

    def intake(self) -> RequestRouter:
        return RequestRouter(self)

    def _broken(self) -> None:
        """Its connections break, and clients notice unless they are cut off."""
        for connection in self.connections:
            link = connection.link
            if not connection.broken:
                self._network.send(connection.back, link.process, link.broken, connection)
        self.connections = []

    # ---- the supervisor -------------------------------------------------------------------------

    def receive(self, message: Message) -> Message | None:
        return self._handlers.handle(message)

    def _on_disk_unavailable(self, call: DiskUnavailable) -> None:
        self._places.on_list_lost(self._places.disks.index(call.disk))

    def _set_new_ledgers(self, order: NewLedgers) -> None:
        self._new_ledgers = order.allowed

    def _stop(self, _order: Stop) -> Message:
        self.process.after(0.0, self.process.die, "it was told to stop")
        return Stopped(clean=True)

    def attach(self, disk: str, worker: RequestQueue) -> SimLane:
        place = self._places.disks.index(disk)
        before = self._lanes.get(place)
        if before is not None:
            self.lost(before)
        lane = self._lanes[place] = SimLane(worker)
        return lane

    def listed(self, lane: SimLane, ledgers: Iterable[int]) -> None:
        """Takes the worker's list: its disk is in service."""
        for place, known in self._lanes.items():
            if known is lane:
                self._places.record(place, ledgers)
                self._places.listed(place)
                lane.in_service = True
                self.listens = True

    def lost(self, lane: SimLane) -> None:
        """The worker is gone: EIO for all requests in flight to it."""
        lane.in_service = False
        waiting, lane.waiting = lane.waiting, {}
        requests = [
            (number, 1, memoryview(len(request.body).to_bytes(4, "big") + bytes(request.body)))
            for number, request in waiting.items()
        ]
        for number, _count, frames in refusals(requests, ()):
            self._respond(waiting[number], frames)

    # ---- clients --------------------------------------------------------------------------------

    def take(self, connection: Connection, frames: list[tuple[int, bytes]]) -> None:
        """Processes requests that have arrived."""
        if connection.frontend is not self or connection.broken:
            return
        workers: dict[RequestQueue, None] = {}
        for number, frame in frames:
            body = memoryview(frame)[4:]
            request = FrameRequest(connection, number, body)
            if request.kind == FORCE:
                request.forced = tuple(connection.deferred.get(request.ledger, ()))
            known = self._lane_of(request.ledger) if request.is_fast_path else None
            if known is not None:
                lane = known
            else:
                target = connection.intake.dispatch(body)
                assert target is not None, "no ledger moves here"
                if isinstance(target, bytes):
                    if target:
                        self._respond(request, target)
                    continue
                lane = cast(SimLane, target.link)
            self._number = (self._number + 1) % _NUMBERS
            lane.waiting[self._number] = request
            lane.worker.enqueue(self._number, frame)
            workers[lane.worker] = None
        for worker in workers:
            worker.wake()

    def _lane_of(self, ledger: int) -> SimLane | None:
        """The disk of a known ledger, for the fast path of ordinary requests (frontend/loop/connection.py)."""
        place = self._places.find(ledger)
        lane = None if place is None else self._lanes.get(place)
        return lane if lane is not None and lane.in_service else None

    def route(self, ledger: int, purpose: Purpose, _connection: int) -> DiskLink | Code:
        place = self._places.route(ledger, purpose, self._lanes, new_ledgers=self._new_ledgers)
        if isinstance(place, Code):
            return place
        lane = self._lanes.get(place)
        return cast(DiskLink, lane) if lane is not None and lane.in_service else Code.EIO

    def space(self) -> Space:
        return Space(1 << 39, 1 << 40)

    # ---- responses --------------------------------------------------------------------------------

    def on_response(self, lane: SimLane, number: int, frames: bytes) -> None:
        """Takes a worker's response to a request."""
        request = lane.waiting.pop(number, None)
        if request is not None:
            self._respond(request, frames)

    def _respond(self, request: FrameRequest, frame: bytes) -> None:
        self._show(request, frame)
        if request.kind == READ and self._network.garbles(self.bookie):
            frame = garbled(frame)
        request.connection.outbox.append((request.number, frame))
        self._to_flush[request.connection] = None
        if not self._flushing:
            self._flushing = True
            self.process.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        connections, self._to_flush = self._to_flush, {}
        for connection in connections:
            responses, connection.outbox = connection.outbox, []
            link = connection.link
            self._network.send(
                connection.back, link.process, link.on_responses, connection, responses
            )

    def _show(self, request: FrameRequest, frame: bytes) -> None:
        """Passes the response to the checks."""
        if request.kind == OTHER:
            return
        code = code_of(memoryview(frame)[4:])
        is_ok, denies = code is Code.EOK, code in (Code.ENOENTRY, Code.ENOLEDGER)
        observer, bookie, ledger = self._observer, self.bookie, request.ledger
        if request.kind == ADD:
            if is_ok:
                observer.stored(
                    bookie, ledger, request.entry, not request.recovery, request.deferred
                )
                self._on_step(ADDED_BY_RECOVERY if request.recovery else ADDED, ledger)
                if request.deferred:
                    request.connection.deferred.setdefault(ledger, set()).add(request.entry)
        elif request.kind == FORCE:
            for entry in request.forced if is_ok else ():
                observer.forced(bookie, ledger, entry)
        else:
            if request.fences and (is_ok or denies):
                observer.fenced(bookie, ledger)
                self._on_step(FENCED if request.entry < 0 or denies else READ_BY_RECOVERY, ledger)
            if denies:
                observer.denied(bookie, ledger, request.entry)
                self._on_step(DENIED, ledger)
