"""The front-end process: one listening socket, its sessions, and a link to each disk worker.

One thread and one epoll loop. A turn of it takes what is there from clients and workers, and then sends what came of
it: one write for each connection that has answers, one message for each disk that has requests. So a turn costs the
same few system calls for one request as for thousands.

It holds no state that outlives it but the table of places, which it asks the workers for. A request for a disk that
is out of service is answered with EIO: 'unknown', never 'no such entry'. While more is held for clients than
FRONTEND_HELD_BYTES_MAX, requests are answered with ETOOMANYREQUESTS: nothing was done with them.
"""

from __future__ import annotations

import itertools
import logging
import select
import socket
import time

from bkbox.errors import FrameError
from bkbox.frontend.disklink import DiskLink
from bkbox.frontend.diskspace import space_of
from bkbox.frontend.holds import Holds
from bkbox.frontend.routing import HELD, Places, Purpose
from bkbox.frontend.session import Session
from bkbox.ipc import messages
from bkbox.ipc.channel import Channel
from bkbox.kernel.routes import Waiter
from bkbox.kernel.stream import Stream
from bkbox.kernel.turns import Turns
from bkbox.limits import FRONTEND_HELD_BYTES_MAX, HOLD_S
from bkbox.storage.files import Space
from bkbox.wire.codes import Code

log = logging.getLogger(__name__)

_BACKLOG = 1024
_ACCEPT_PAUSE_S = 1.0


class Frontend:
    """Routes between sessions and disks; lives as long as its control channel."""

    def __init__(self, control: socket.socket) -> None:
        self._control = Channel(control)
        self._turns = Turns(FRONTEND_HELD_BYTES_MAX, self._end)
        self._links: dict[int, DiskLink] = {}
        self._sessions: dict[int, Stream] = {}
        self._numbers = itertools.count(1)
        self._open: messages.OpenFrontend | None = None
        self._places = Places((), self._turns.common.routes)
        self._holds = Holds(time.monotonic, HOLD_S)
        self._paths: dict[str, str] = {}
        self._awaited: set[int] = set()
        self._new_ledgers = True
        self._refused = 0
        self._listener: socket.socket | None = None
        self._listens = False
        self._accept_paused = False
        self._running = True

    def run(self) -> None:
        """Serve until the supervisor says stop or is gone."""
        self._turns.watch(self._control, self._command)
        try:
            while self._running:
                woken = self._holds.tick()  # who is woken goes on at the end of the turn
                self._turns.turn(0 if woken else self._wait_s())
                if self._accept_paused:
                    self._accept()
        except EOFError:
            log.warning("the supervisor is gone")
        finally:
            self._close()

    def _wait_s(self) -> float | None:
        waits = (_ACCEPT_PAUSE_S if self._accept_paused else None, self._holds.wait_s())
        return min((wait for wait in waits if wait is not None), default=None)

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for session in self._sessions.values():
            session.close()
        for link in self._links.values():
            link.sock.close()
        self._control.close()
        self._turns.close()

    def _end(self, session: Stream, error: Exception) -> None:
        if isinstance(error, FrameError | ConnectionAbortedError):
            log.warning("connection %s: %s; closed", session.peer, error)
        del self._turns.streams[session.sock.fileno()]
        del self._sessions[session.number]
        session.close()
        for link in self._links.values():
            link.forget(session.number)

    # ---- the supervisor's commands ------------------------------------------------------------------

    def _command(self) -> None:
        message, fds = self._control.receive()
        if isinstance(message, messages.OpenFrontend):
            self._open = message
            self._paths = dict(zip(message.disks, message.disk_paths, strict=True))
            self._places = Places(message.disks, self._turns.common.routes)
            self._awaited = {self._places.disks.index(disk) for disk in message.attached}
            self._listener = socket.socket(fileno=fds[0])
            if (
                not self._awaited
            ):  # no disk is in service: the port is open all the same, and says so
                self._listen()
        elif isinstance(message, messages.AttachDisk):
            self._attach(self._places.disks.index(message.disk), socket.socket(fileno=fds[0]))
        elif isinstance(message, messages.DiskAway):
            self._places.unlisted(self._places.disks.index(message.disk))
            self._control.send(messages.Done(call=message.call))
        elif isinstance(message, messages.NewLedgers):
            self._new_ledgers = message.allowed
            self._places.weigh(message.free, message.closed)
            if message.call:
                self._control.send(messages.Done(call=message.call))
        elif isinstance(message, messages.MOVES_OF_LEDGERS):
            self._control.send(self._move(message))
        elif isinstance(message, messages.DISKS_CHANGE):
            self._control.send(self._change_disks(message))
        elif isinstance(message, messages.Settings):
            assert self._open is not None
            self._open.frame_bytes_max = message.values["frame_bytes_max"]
            inflight = message.values["connection_inflight_bytes_max"]
            self._open.connection_inflight_bytes_max = inflight
        elif isinstance(message, messages.GetStats):
            self._control.send(messages.Stats(call=message.call, values=self._stats()))
        elif isinstance(message, messages.Stop):
            self._control.send(messages.Stopped(call=message.call, clean=True))
            self._running = False

    def _move(self, message: messages.Message) -> messages.Message:
        """A ledger is held, or its place is told. What was taken for it before a hold is with its worker then."""
        if isinstance(message, messages.HoldLedger):
            before = self._places.hold(message.ledger)
            if before != HELD:
                self._holds.begin(message.ledger, before)
                link = self._links.get(before)
                if link is not None:
                    link.hand_over()
        elif isinstance(message, messages.PlaceLedger):
            number = self._places.disks.index(message.disk)
            self._places.record(number, (message.ledger,))
            left, link = self._holds.end(message.ledger), self._links.get(number)
            if left is not None and left != number and left in self._links and link is not None:
                for session in self._sessions.values():
                    assert isinstance(session, Session)
                    session.moved(message.ledger, self._links[left], link)
        return messages.Done(call=message.call)

    def _change_disks(self, message: messages.Message) -> messages.Message:
        if isinstance(message, messages.DiskLeaves):
            self._detach(self._places.disks.index(message.disk))
            self._places.leave(message.disk)
            del self._paths[message.disk]
        elif isinstance(message, messages.DiskJoins):
            if message.replaces:
                self._detach(self._places.disks.index(message.replaces))
                self._places.replace(message.replaces, message.disk)
                del self._paths[message.replaces]
            elif message.disk not in self._places.disks:
                self._places.join(message.disk)
            self._paths[message.disk] = message.path
        return messages.Done(call=message.call)

    def _detach(self, disk: int) -> None:
        link = self._links.get(disk)
        if link is not None:
            link.lose()
            self._turns.links.remove(link)
            del self._links[disk]

    def _attach(self, disk: int, sock: socket.socket) -> None:
        self._detach(disk)
        link = self._links[disk] = DiskLink(disk, sock, self, self._sessions)
        self._turns.links.append(link)
        self._turns.watch(sock, link.receive)

    def _stats(self) -> dict[str, int]:
        """``held_bytes``: what is held for clients; ``refused``: requests that found too much of it."""
        return {
            "connections": len(self._sessions),
            "held_bytes": self._turns.common.held,
            "refused": self._refused,
        }

    # ---- clients ------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """A listener that cannot be opened ends the process; the supervisor sees that and says so."""
        assert self._listener is not None
        self._listens = True
        try:
            self._listener.listen(_BACKLOG)
        except OSError as error:
            raise SystemExit(f"cannot listen: {error}") from error
        self._listener.setblocking(False)
        self._turns.watch(self._listener, self._accept)
        self._control.send(messages.Listening())

    def _accept(self) -> None:
        """One connection that waits. Without descriptors or memory for it, others are not looked at for a while."""
        assert self._listener is not None
        try:
            sock, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            self._pause_accept(paused=False)
            return
        except OSError as error:
            log.warning("a connection cannot be taken: %s", error)
            self._pause_accept(paused=True)
            return
        self._pause_accept(paused=False)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert self._open is not None
        session = Session(
            next(self._numbers) & 0xFFFFFFFF,
            sock,
            str(address),
            self._turns.poll,
            self._turns.common,
            self,
            self._open.frame_bytes_max,
            self._open.connection_inflight_bytes_max,
        )
        self._sessions[session.number] = session
        self._turns.streams[sock.fileno()] = session

    def _pause_accept(self, *, paused: bool) -> None:
        if paused != self._accept_paused:
            self._accept_paused = paused
            assert self._listener is not None
            self._turns.poll.modify(self._listener, 0 if paused else select.EPOLLIN)

    # ---- routing ------------------------------------------------------------------------------------

    def route(self, ledger: int, purpose: Purpose) -> DiskLink | Code | None:
        """The link to send a request to, or the code to answer it with; None: the ledger is between two disks."""
        if self._turns.common.is_full():
            self._refused += 1
            return Code.ETOOMANYREQUESTS
        place = self._places.route(ledger, purpose, self._links, new_ledgers=self._new_ledgers)
        if isinstance(place, Code):
            return place
        if place == HELD and self._holds.is_patient(ledger):
            return None
        link = self._links.get(place)
        return link if link is not None and link.in_service else Code.EIO

    def await_place(self, waiter: Waiter) -> None:
        """Call its ``has_slot`` when more is known of a ledger between two disks."""
        self._holds.wait(waiter)

    def space(self) -> Space:
        """Room on the bookie's disks, bytes. DiskError."""
        return space_of(self._paths.values())

    # ---- what the links say -------------------------------------------------------------------------

    def ledgers(self, disk: int, ledgers: list[int]) -> None:
        self._places.record(disk, ledgers)

    def listed(self, disk: int) -> None:
        self._places.listed(disk)
        self._places.routes.lanes[disk] = self._links[disk].lane
        self._no_longer_awaited(disk)

    def lost(self, disk: int) -> None:
        log.warning("disk %s is out of service: its worker is gone", self._places.disks[disk])
        self._places.routes.lanes[disk] = None
        self._turns.unwatch(self._links[disk].sock)
        self._no_longer_awaited(disk)

    def _no_longer_awaited(self, disk: int) -> None:
        self._awaited.discard(disk)
        if not self._awaited and not self._listens:
            self._listen()
