"""A front-end process: the listening socket, its sessions (sessions.py), and a link to each disk worker.

It has one thread and one epoll loop. An iteration handles what clients and workers have sent, and then sends what
resulted: one write per connection with responses, one message per disk with requests. So an iteration costs the same
few system calls for one request as for thousands.

Its only lasting state is the directory of ledgers, which it rebuilds from the workers. A request for a disk that is
out of service gets EIO: 'unknown', never 'no such entry'. While the bytes buffered for clients are close
to FRONTEND_BUFFERED_BYTES_MAX, reads get ETOOMANYREQUESTS: nothing was done with them.

A bookie may have several front-ends, which share the port. Each has connections and links of its own. The supervisor
assigns ledgers to disks for them (ledger_queries.py), and what bounds all of them is counted in shared memory
(shared_counts.py), or each gets its share: bytes buffered, and unauthenticated connections.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from bkbox.base import logs
from bkbox.base.limits import (
    FRONTEND_BUFFERED_BYTES_MAX,
    MIGRATION_PAUSE_MAX_S,
)
from bkbox.base.logs.rate_limited import RateLimited
from bkbox.errors import DiskError
from bkbox.frontend.acceptor import Acceptor
from bkbox.frontend.access.access_policy import AccessPolicy
from bkbox.frontend.access.ledger_verification import CHECK_TIMEOUT_S, Finding, LedgerVerification
from bkbox.frontend.client_session import ClientSession
from bkbox.frontend.disk_link import DiskLink
from bkbox.frontend.disk_space import space_of
from bkbox.frontend.ledger_directory import (
    ABSENT,
    MIGRATING,
    LedgerDirectory,
    Purpose,
    creates,
)
from bkbox.frontend.ledger_queries import Answer, LedgerQueries
from bkbox.frontend.loop.connection import Connection
from bkbox.frontend.loop.event_loop import EventLoop
from bkbox.frontend.loop.routing import SlotWaiter
from bkbox.frontend.overload.connection_cpu_budget import ConnectionCpuBudget
from bkbox.frontend.overload.connection_timeouts import (
    ConnectionTimeouts,
    TimeoutSettings,
)
from bkbox.frontend.overload.memory_pressure import MemoryPressure
from bkbox.frontend.paused_ledgers import PausedLedgers
from bkbox.frontend.sessions import Sessions
from bkbox.frontend.shared_counts import SharedCounts
from bkbox.ipc.channel import Channel
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.frontend import (
    AttachDisk,
    CheckLedger,
    DiskJoins,
    DiskLeaves,
    DiskServed,
    DiskUnavailable,
    JoinFrontends,
    LedgerChecked,
    LedgersResolved,
    Listening,
    NewLedgers,
    OpenFrontend,
    ResolveLedgers,
    SetAccessPolicy,
)
from bkbox.ipc.messages.items import LEDGER_ID_ITEM, LEDGER_ITEM, PAGE_ITEMS, PLACEMENT_ITEM
from bkbox.ipc.messages.migration import PauseLedger, PlaceLedger
from bkbox.ipc.messages.process import GetStats, Settings, Stats, Stop, Stopped
from bkbox.ipc.messages.repair import OverQuota
from bkbox.storage.files import Space
from bkbox.wire.codes import Code

log = logging.getLogger(__name__)

_FAR_S = 3600.0
_BOUNDS = (
    *("connections_max", "connections_per_peer_max", "handshake_timeout_s"),
    *("frame_timeout_s", "answers_timeout_s", "idle_timeout_s"),
)


class Frontend:
    """Routes between sessions and disks; lives as long as its control channel."""

    def __init__(self, control: socket.socket) -> None:
        self._control = Channel(control)
        self._handlers = Handlers()
        self._register(self._handlers)
        self._loop = EventLoop(FRONTEND_BUFFERED_BYTES_MAX, self._end)
        self._links: dict[int, DiskLink] = {}
        self._directory = LedgerDirectory((), self._loop.common.routes)
        self._paused = PausedLedgers(time.monotonic, MIGRATION_PAUSE_MAX_S)
        self._verification = LedgerVerification(self._decides, self._check, time.monotonic)
        self._queries: LedgerQueries | None = None
        """None for the only front-end, which assigns new ledgers to disks itself."""
        self._paths: dict[str, str] = {}
        self._awaited: set[int] = set()
        self._new_ledgers = True
        self._refused = 0
        self._limited_log = RateLimited(log, time.monotonic)
        self._cpu_budget = ConnectionCpuBudget(
            time.monotonic, time.thread_time, lambda: self._loop.recent_fast_turns > 0
        )
        self._sessions = Sessions(
            self._loop,
            self,
            self._verification,
            self._cpu_budget,
            self._limited_log,
            self._schedule_timers,
            self._end,
        )
        self._timeouts = ConnectionTimeouts(
            self._sessions.clients, self._close_timed_out, time.monotonic
        )
        allowed = self._loop.common
        self._memory_pressure = MemoryPressure(
            allowed, self._sessions.clients, self._close_timed_out, time.monotonic
        )
        self._housekeeping_s = self._next_timer_s = 0.0
        self._shared: SharedCounts | None = None
        """The counts of all front-ends; None for the only one."""
        self._acceptor: Acceptor | None = None
        self._running = True

    def run(self) -> None:
        """Serves until the supervisor sends Stop or its channel is closed."""
        self._loop.watch(self._control, self._command)
        try:
            while self._running:
                woken = self._paused.tick()  # woken waiters resume at the end of this iteration
                now_s = time.monotonic()
                if now_s >= self._next_timer_s:
                    self._run_timers(now_s)
                self._loop.turn(0 if woken else self._wait_s(now_s))
        except EOFError:
            log.warning("the supervisor is gone")
        finally:
            self._close()

    def _run_timers(self, now_s: float) -> None:
        """Runs the timers that need not run in every iteration, and computes when they are due again."""
        if now_s >= self._housekeeping_s:
            self._run_housekeeping(now_s)
        self._sessions.tick()
        self._verification.tick()
        if self._queries is not None:
            self._queries.tick()
        if self._acceptor is not None:
            self._acceptor.tick(now_s)
        waits = (
            self._housekeeping_s - now_s if self._sessions.by_number else None,
            self._sessions.wait_s(),
            self._verification.wait_s(),
            None if self._queries is None else self._queries.wait_s(),
            None if self._acceptor is None else self._acceptor.wait_s(now_s),
        )
        self._next_timer_s = now_s + min(
            (wait for wait in waits if wait is not None), default=_FAR_S
        )

    def _schedule_timers(self, by_s: float = 0.0) -> None:
        """Schedules the timers to run by then."""
        self._next_timer_s = min(self._next_timer_s, by_s)

    def _run_housekeeping(self, now_s: float) -> None:
        self._timeouts.tick()
        self._memory_pressure.tick()
        waits = self._timeouts.wait_s(), self._memory_pressure.wait_s()
        self._housekeeping_s = now_s + min(wait for wait in waits if wait is not None)

    def _wait_s(self, now_s: float) -> float:
        paused_s = self._paused.wait_s()
        timers_s = max(0.0, self._next_timer_s - now_s)
        return timers_s if paused_s is None else min(timers_s, paused_s)

    def _close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        self._sessions.close()
        for link in self._links.values():
            link.sock.close()
        self._control.close()
        self._loop.close()

    def _end(self, session: Connection, error: Exception) -> None:
        began_s = self._cpu_budget.cpu_s()
        self._sessions.remove(session, error)
        if self._queries is not None:
            self._queries.forget(session.number)
        for link in self._links.values():
            link.forget(session.number)
        self._cpu_budget.charge(began_s)

    def _close_timed_out(self, session: ClientSession, reason: str) -> None:
        if not session.closed:  # it may have been closed since it was selected
            self._end(session, TimeoutError(reason))

    # ---- the supervisor's commands ------------------------------------------------------------------

    def _register(self, handlers: Handlers) -> None:
        handlers.on_fd(JoinFrontends, self._join_frontends)
        handlers.on_fd(OpenFrontend, self._open_port)
        handlers.on(SetAccessPolicy, self._set_access_policy)
        handlers.on_fd(AttachDisk, self._attach_disk)
        handlers.on(DiskUnavailable, self._on_disk_unavailable)
        handlers.on(NewLedgers, self._set_new_ledgers)
        handlers.on(LedgerChecked, self._on_ledger_checked)
        handlers.on(OverQuota, self._mark_over_quota)
        handlers.on(PauseLedger, self._hold_ledger)
        handlers.on(PlaceLedger, self._place_ledger)
        handlers.on(LedgersResolved, self._on_ledgers_resolved)
        handlers.on(DiskJoins, self._on_disk_joins)
        handlers.on(DiskLeaves, self._on_disk_leaves)
        handlers.on(Settings, self._apply_settings)
        handlers.on(GetStats, lambda _call: Stats(values=self._stats()))
        handlers.on(Stop, self._stop)

    def _command(self) -> None:
        reply = self._handlers.handle(*self._control.receive())
        if reply is not None:
            self._control.send(reply)

    def _open_port(self, order: OpenFrontend, fd: int) -> None:
        self._sessions.frame_bytes_max = order.frame_bytes_max
        self._sessions.inflight_bytes_max = order.connection_inflight_bytes_max
        self._paths = dict(zip(order.disks, order.disk_paths, strict=True))
        self._directory = LedgerDirectory(order.disks, self._loop.common.routes)
        self._awaited = {self._directory.disks.index(disk) for disk in order.attached}
        acceptor = self._acceptor = Acceptor(
            socket.socket(fileno=os.dup(fd)),
            self._loop,
            self._cpu_budget,
            self._limited_log,
            self._schedule_timers,
            self._sessions.admit,
            None if self._shared is None else self._shared.has_surplus,
        )
        self._apply_limits({name: getattr(order, name) for name in _BOUNDS})
        if (
            not self._awaited
        ):  # no disk is in service: the port is open all the same, and responds with errors
            self._listen(acceptor)

    def _join_frontends(self, order: JoinFrontends, fd: int) -> None:
        """It is one of several: bounds hold over all of them, or are shared out."""
        self._queries = LedgerQueries(self._send_queries, time.monotonic)
        shared = self._shared = SharedCounts(fd, order.number, order.count)
        self._sessions.join(order.number, shared, order.count)
        self._loop.common.buffered_max = FRONTEND_BUFFERED_BYTES_MAX // order.count

    def _set_access_policy(self, order: SetAccessPolicy) -> None:
        self._sessions.apply_policy(AccessPolicy.from_order(order.payload))

    def _attach_disk(self, order: AttachDisk, fd: int) -> None:
        self._attach(self._directory.disks.index(order.disk), socket.socket(fileno=os.dup(fd)))

    def _on_disk_unavailable(self, call: DiskUnavailable) -> None:
        self._directory.on_list_lost(self._directory.disks.index(call.disk))

    def _set_new_ledgers(self, order: NewLedgers) -> None:
        self._new_ledgers = order.allowed
        self._directory.set_free_space(order.free, order.closed)

    def _on_ledger_checked(self, found: LedgerChecked) -> None:
        self._verification.found(found.ledger, Finding(found.finding), found.payload)

    def _mark_over_quota(self, order: OverQuota) -> None:
        ledgers = (each for (each,) in LEDGER_ID_ITEM.iter_unpack(order.payload))
        self._directory.mark_over_quota(ledgers, more=order.more)

    def _apply_settings(self, order: Settings) -> None:
        self._sessions.frame_bytes_max = order.values["frame_bytes_max"]
        self._sessions.inflight_bytes_max = order.values["connection_inflight_bytes_max"]
        self._apply_limits(order.values)
        logs.set_level(order.values["log_level"])

    def _stop(self, _order: Stop) -> Stopped:
        self._running = False
        return Stopped(clean=True)

    def _hold_ledger(self, call: PauseLedger) -> None:
        """Pauses a ledger for its migration. Requests accepted before are handed to its worker first."""
        before = self._directory.mark_migrating(call.ledger)
        if before != MIGRATING:
            self._paused.begin(call.ledger, before)
            link = self._links.get(before)
            if link is not None:
                link.hand_over()

    def _place_ledger(self, call: PlaceLedger) -> None:
        """Records the disk of a ledger, whose pause ends. A list that a worker has sent before counts before."""
        for each in list(self._links.values()):
            each.receive()
        number = self._directory.disks.index(call.disk)
        self._directory.record(number, (call.ledger,))
        if self._queries is not None:
            self._queries.placed(call.ledger)
        left, link = self._paused.end(call.ledger), self._links.get(number)
        if left is not None and left != number and left in self._links and link is not None:
            for session in self._sessions.clients():
                session.moved(call.ledger, self._links[left], link)

    def _on_disk_leaves(self, call: DiskLeaves) -> None:
        self._detach(self._directory.disks.index(call.disk))
        self._directory.leave(call.disk)
        del self._paths[call.disk]

    def _on_disk_joins(self, call: DiskJoins) -> None:
        if call.replaces:
            self._detach(self._directory.disks.index(call.replaces))
            self._directory.replace(call.replaces, call.disk)
            del self._paths[call.replaces]
        elif call.disk not in self._directory.disks:
            self._directory.join(call.disk)
        self._paths[call.disk] = call.path

    def _detach(self, disk: int) -> None:
        link = self._links.get(disk)
        if link is not None:
            link.lose()
            self._loop.links.remove(link)
            del self._links[disk]

    def _attach(self, disk: int, sock: socket.socket) -> None:
        self._detach(disk)
        link = self._links[disk] = DiskLink(disk, sock, self, self._sessions.by_number)
        self._loop.links.append(link)
        self._loop.watch(sock, link.receive)

    def _apply_limits(self, values: Mapping[str, Any]) -> None:
        """Applies the limits on connections, from the order or from the settings."""
        self._sessions.apply_limits(values)
        self._timeouts.timeouts = TimeoutSettings(
            values["frame_timeout_s"], values["answers_timeout_s"], values["idle_timeout_s"]
        )

    def _stats(self) -> dict[str, int]:
        """``buffered_bytes``: bytes buffered for clients. ``refused``: requests refused because too much was buffered.
        The others: see Sessions.
        """
        return {
            "buffered_bytes": self._loop.common.buffered,
            "refused": self._refused,
            **self._sessions.stats(),
        }

    def _listen(self, acceptor: Acceptor) -> None:
        acceptor.listen()
        self._control.send(Listening())

    # ---- routing ------------------------------------------------------------------------------------

    def route(self, ledger: int, purpose: Purpose, connection: int) -> DiskLink | Code | None:
        """The link to send a request to, or the code to refuse it with; None: the ledger is between two disks, or the
        supervisor is asked for its disk."""
        if purpose is Purpose.READ and self._loop.common.above_hard_limit():
            self._refused += 1
            return self._refusal(ledger, Code.ETOOMANYREQUESTS)
        if self._queries is not None and self._directory.is_unlisted(ledger):
            return self._query(self._queries, ledger, purpose, connection)
        place = self._directory.route(ledger, purpose, self._links, new_ledgers=self._new_ledgers)
        if isinstance(place, Code):
            return self._refusal(ledger, place)
        if place == MIGRATING and self._paused.within_timeout(ledger):
            return None
        link = self._links.get(place)
        if link is not None and link.in_service:
            return link
        return self._refusal(ledger, Code.EIO)

    def _query(
        self, queries: LedgerQueries, ledger: int, purpose: Purpose, connection: int
    ) -> Code | None:
        """The code to refuse a request for an unknown ledger with; None: not known yet."""
        if purpose is Purpose.WRITE and self._loop.common.routes.is_over(ledger):
            return self._refusal(ledger, Code.ETOOMANYREQUESTS)
        wanted = creates(purpose, new_ledgers=self._new_ledgers)
        answer = queries.answer(connection, ledger, creates=wanted)
        if answer is None:
            self._schedule_timers()
            return None
        if answer is Answer.UNKNOWN or wanted:
            return self._refusal(ledger, Code.EIO)
        return self._refusal(ledger, ABSENT.get(purpose, Code.EREADONLY))

    def _send_queries(self, batch: int, ledgers: list[tuple[int, bool]]) -> None:
        for start in range(0, len(ledgers), PAGE_ITEMS):
            page = ledgers[start : start + PAGE_ITEMS]
            payload = b"".join(LEDGER_ITEM.pack(*each) for each in page)
            self._control.send(ResolveLedgers(batch=batch, payload=payload))

    def _on_ledgers_resolved(self, order: LedgersResolved) -> None:
        assert self._queries is not None
        known = self._directory.disks
        numbers = [known.index(disk) if disk in known else None for disk in order.disks]
        for ledger, index in PLACEMENT_ITEM.iter_unpack(order.payload):
            number = numbers[index] if index >= 0 else None
            if number is None:
                answer = Answer(index) if index < 0 else Answer.UNKNOWN
                self._queries.denied(order.batch, ledger, answer)
            else:
                if self._directory.find(ledger) != MIGRATING:  # else PlaceLedger follows
                    self._directory.record(number, (ledger,))
                self._queries.placed(ledger)

    def _refusal(self, ledger: int, code: Code) -> Code:
        """Logs, rate limited, that a request is refused without a disk, and returns the code. A response for a ledger
        that does not exist is not logged: it is normal."""
        if code in ABSENT.values():
            return code
        text = "a request for ledger %d gets %s without a disk"
        self._limited_log.log(logging.INFO, code.name, text, ledger, code.name)
        return code

    def await_route(self, waiter: SlotWaiter) -> None:
        """Registers a waiter: its ``on_slot_free`` is called when more is known of a migrating ledger, of one to be
        created, or of an unknown one."""
        assert isinstance(waiter, ClientSession)
        if self._verification.wait(waiter.number, waiter):
            return
        if self._queries is None or not self._queries.wait(waiter.number, waiter):
            self._paused.wait(waiter)

    def _decides(self, ledger: int) -> bool:
        """True if ``route`` determines the result of requests for a ledger without creating it."""
        directory = self._directory
        return ledger < 0 or directory.find(ledger) is not None or not directory.all_listed()

    def _check(self, ledger: int) -> None:
        self._schedule_timers(time.monotonic() + CHECK_TIMEOUT_S)
        self._control.send(CheckLedger(ledger=ledger))

    def space(self) -> Space:
        """Space on the bookie's disks in service, in bytes. Raises DiskError if it is known of none."""
        links, disks = self._links, self._directory.disks
        serving = [disks[number] for number, link in links.items() if link.in_service]
        if not serving:
            raise DiskError("no disk is in service")
        return space_of(self._paths[disk] for disk in serving if disk is not None)

    # ---- callbacks of the links ---------------------------------------------------------------------

    def ledgers(self, disk: int, ledgers: list[int]) -> None:
        self._directory.record_list(disk, ledgers)

    def listed(self, disk: int) -> None:
        self._directory.listed(disk)
        self._directory.routes.lanes[disk] = self._links[disk].lane
        name = self._directory.disks[disk]
        if name is not None:
            self._control.send(DiskServed(disk=name))
        self._no_longer_awaited(disk)

    def lost(self, disk: int) -> None:
        log.warning("disk %s is out of service: its worker is gone", self._directory.disks[disk])
        self._directory.routes.lanes[disk] = None
        self._loop.unwatch(self._links[disk].sock)
        self._no_longer_awaited(disk)

    def _no_longer_awaited(self, disk: int) -> None:
        self._awaited.discard(disk)
        acceptor = self._acceptor
        if not self._awaited and acceptor is not None and not acceptor.listens:
            self._listen(acceptor)
