"""The front-end processes of a bookie: their start, their links to the workers, and what all of them are told.

All of them accept connections from one listening socket, which the supervisor has bound. One that dies takes its own
connections only: the others accept those that come meanwhile, and it is restarted alone. It starts while no ledger
migrates, and is told everything that the others were told before it opens the port.

A worker is given its end of a link once the front-end has sent its hello over the other end, so it never waits for a
front-end that is still starting, or stuck.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from bkbox.base.limits import RESPONSE_SLOT_WAIT_S
from bkbox.base.logs.rate_limited import RateLimited
from bkbox.errors import BootError, ConnectionLostError
from bkbox.ipc import link
from bkbox.ipc.messages.disk import AttachFrontend, SetReadOnlyReasons
from bkbox.ipc.messages.frontend import (
    AttachDisk,
    CheckLedger,
    DiskJoins,
    DiskLeaves,
    DiskServed,
    DiskUnavailable,
    JoinFrontends,
    LedgersResolved,
    Listening,
    NewLedgers,
    OpenFrontend,
    ResolveLedgers,
)
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import Stop
from bkbox.storage.files import Files
from bkbox.supervisor.boot.startup_resources import StartupResources
from bkbox.supervisor.children.child_group import ChildGroup, frontend_title
from bkbox.supervisor.children.child_pool import frontend_name
from bkbox.supervisor.children.process import Child, Exit
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.ledger_checks import LedgerChecks
from bkbox.supervisor.disks.placement_updates import free_space_message

if TYPE_CHECKING:
    from bkbox.config.schema import Config
    from bkbox.frontend.shared_counts import SharedMemory
    from bkbox.supervisor.access_policy import Credentials
    from bkbox.supervisor.children.child_pool import ChildPool
    from bkbox.supervisor.children.restart_policy import ChildSupervisor
    from bkbox.supervisor.disks.ledger_assignment import LedgerAssignments
    from bkbox.supervisor.disks.ledger_migration import LedgerMigrator
    from bkbox.supervisor.disks.readonly_requests import ReadOnlyRequests
    from bkbox.supervisor.quotas import QuotaState

    class ServedBookie(Protocol):
        """The part of the supervisor that its front-ends use."""

        config: Config
        disks: list[Disk]
        listen: str
        child_pool: ChildPool
        child_supervisor: ChildSupervisor
        credentials: Credentials
        migrator: LedgerMigrator
        quotas: QuotaState
        readonly_requests: ReadOnlyRequests

        @property
        def accepts_new_ledgers(self) -> bool: ...
        def check_copies(self) -> None: ...


log = logging.getLogger(__name__)

_RESPONSE_TIMEOUT_S = 30.0
"""Time-out for a call to a front-end, which then counts as gone."""


class Frontends(ChildGroup):
    """The front-ends of one bookie. ``restarts``: of each, by number."""

    def __init__(self, bookie: ServedBookie, files: Files) -> None:
        super().__init__()
        self._bookie = bookie
        self._files = files
        self.count = bookie.config.frontend_count
        self.restarts = [0] * self.count
        self._linked: dict[int, set[str]] = {}
        """By front-end, the disks whose ledgers it knows, or is about to be told."""
        self._awaited: dict[int, set[str]] = {}
        """By front-end, the disks whose ledgers it is about to be told, and which it does not serve yet."""
        self._attaching: set[asyncio.Task[None]] = set()
        self._shared: SharedMemory | None = None
        self.assignments: LedgerAssignments | None = None
        """None with one front-end, which assigns new ledgers to disks itself."""

    # ---- start --------------------------------------------------------------------------------------

    async def start(self, base: StartupResources) -> None:
        """Start all of them; each serves once it has the lists of all usable disks. Raises BootError."""
        if self.count > 1:
            from bkbox.frontend.shared_counts import SharedMemory  # the only one needs neither
            from bkbox.supervisor.disks.ledger_assignment import LedgerAssignments

            self.assignments = LedgerAssignments(self._bookie.disks)
            self._bookie.migrator.assignments = self.assignments
            self._shared = SharedMemory(self.count)
        await asyncio.gather(*(self._start(base, number) for number in range(self.count)))

    async def _start(self, base: StartupResources, number: int) -> None:
        bookie, listening = self._bookie, asyncio.Event()

        def on_message(message: Message, _fds: list[int]) -> None:
            if isinstance(message, Listening):
                listening.set()
            elif isinstance(message, DiskServed):
                self._awaited[number].discard(message.disk)
            elif isinstance(message, CheckLedger):
                checks.start(message)
            elif isinstance(message, ResolveLedgers):
                self._resolve(child, message)

        usable = [disk for disk in bookie.disks if disk.usable and not disk.placement_unknown]
        handle = bookie.child_pool.acquire(
            "frontend", frontend_name(bookie.config.bookie_id, self.count, number)
        )
        name = bookie.listen if self.count == 1 else frontend_title(self.count, number)
        child = self.by_number[number] = Child(handle, name, on_message)
        checks = LedgerChecks(base.store, child.control.send, RateLimited(log, time.monotonic))
        self._linked[number], self._awaited[number] = set(), set()
        child.control.send(bookie.credentials.order)
        if self._shared is not None:
            join = JoinFrontends(number=number, count=self.count)
            child.control.send(join, [self._shared.fd])
        child.control.send(self._order(usable), [base.port.fileno()])
        for page in bookie.quotas.pages():
            child.control.send(page)
        child.control.send(self._new_ledgers())
        for disk in usable:
            self._link(number, child, disk)
        self._note_listed()
        opened = asyncio.ensure_future(listening.wait())
        ended = asyncio.ensure_future(child.wait())
        await asyncio.wait((opened, ended), return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if not listening.is_set():
            raise BootError(
                f"{frontend_title(self.count, number)} ended before it listened on {bookie.listen}: {ended.result()}"
            )
        ended.cancel()

    def _order(self, attached: list[Disk]) -> OpenFrontend:
        config, disks = self._bookie.config, self._bookie.disks
        return OpenFrontend(
            frame_bytes_max=config.frame_bytes_max,
            connection_inflight_bytes_max=config.connection_inflight_bytes_max,
            disks=[disk.uuid for disk in disks],
            disk_paths=[str(disk.path) for disk in disks],
            attached=[disk.uuid for disk in attached],
            connections_max=config.connections_max,
            connections_per_peer_max=config.connections_per_peer_max,
            handshake_timeout_s=config.handshake_timeout_s,
            frame_timeout_s=config.frame_timeout_s,
            answers_timeout_s=config.answers_timeout_s,
            idle_timeout_s=config.idle_timeout_s,
        )

    def keep(self, base: StartupResources) -> None:
        """Restart each whenever it ends."""
        for number in range(self.count):
            self._keep(base, number)

    def _keep(self, base: StartupResources, number: int) -> None:
        bookie = self._bookie

        async def restart() -> None:
            self.restarts[number] += 1
            async with bookie.migrator.lock:
                await bookie.migrator.resolve(bookie.disks)
                await self._start(base, number)
            bookie.check_copies()

        def ended(_exit: Exit) -> None:
            if self._shared is not None:
                self._shared.on_ended(number)

        what = frontend_title(self.count, number)
        bookie.child_supervisor.keep(what, lambda: self.by_number[number], ended, restart)

    # ---- links --------------------------------------------------------------------------------------

    def link(self, disk: Disk) -> None:
        """Connect a disk's worker with each front-end, which puts the disk into service."""
        if disk.child is None or disk.placement_unknown:
            return  # one whose placement is unknown is linked once it is known
        if not self.running:
            return  # the next front-ends get the links of all disks
        for number, child in self.running.items():
            self._link(number, child, disk)
        self._note_listed()

    def relink(self, number: int, disk: Disk) -> None:
        """Connect a disk's worker with one front-end again, whose link it has closed."""
        child = self.running.get(number)
        if child is not None and disk.in_service and not disk.placement_unknown:
            self._link(number, child, disk)

    def _link(self, number: int, child: Child, disk: Disk) -> None:
        assert disk.child is not None
        reasons = self._bookie.readonly_requests.of(disk)
        disk.child.control.send(SetReadOnlyReasons(reasons=reasons))
        task = self._bookie.child_supervisor.run(self._attach(number, child, disk, disk.child))
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)
        self._linked[number].add(disk.uuid)
        self._awaited[number].add(disk.uuid)
        if self.assignments is not None:
            self.assignments.release(disk)
        disk.in_service = True

    def know_ledgers_of(self, disk: Disk) -> bool:
        """True if every front-end that runs has the ledgers of this disk, whose worker it is linked with."""
        return not any(disk.uuid in self._awaited.get(number, ()) for number in self.running)

    async def _attach(self, number: int, child: Child, disk: Disk, worker: Child) -> None:
        front, back = link.pair()
        with front, back:
            try:
                order = AttachDisk(disk=disk.uuid)
                await child.control.call(order, [front.fileno()])
            except ConnectionLostError:
                return  # the next process of this front-end gets a link of its own
            slot_wait_s = RESPONSE_SLOT_WAIT_S if self.count > 1 else 0.0
            attach = AttachFrontend(frontend=number, slot_wait_s=slot_wait_s)
            worker.control.send(attach, [back.fileno()])

    def _note_listed(self) -> None:
        for disk in self._bookie.disks:
            linked = (self._linked[number] for number in self.running)
            disk.listed = all(disk.uuid in disks for disks in linked)

    # ---- new ledgers --------------------------------------------------------------------------------

    def _resolve(self, asker: Child, query: ResolveLedgers) -> None:
        """Answer where ledgers are; assign those that are nowhere and are to be created, and tell every front-end."""
        assignments = self.assignments
        assert assignments is not None
        answers, assigned = assignments.resolve(query.payload)
        disks = assignments.uuids
        if answers:
            reply = LedgersResolved(batch=query.batch, disks=disks, payload=answers)
            asker.control.send(reply)
        if assigned:
            news = LedgersResolved(batch=0, disks=disks, payload=assigned)
            for child in self.running.values():
                if child is not asker:
                    child.control.send(news)

    def assigned_disk(self, ledger: int) -> Disk | None:
        """The disk of a ledger that was assigned in this run and may not be listed on it yet."""
        return None if self.assignments is None else self.assignments.disk_of(ledger)

    # ---- what all of them are told --------------------------------------------------------------------

    async def hold(self, disk: Disk) -> None:
        """Have no ledger created until the disk has listed its ledgers again: phase one must not put a ledger into
        limbo there that a front-end creates elsewhere meanwhile. Every reply is waited for, as a query of before must
        not come in after that."""
        for disks in self._linked.values():
            disks.discard(disk.uuid)
        disk.listed = False
        if self.assignments is not None:
            self.assignments.hold(disk)
        await self.call(DiskUnavailable(disk=disk.uuid))

    async def join(self, disk: Disk, *, replaces: str = "") -> None:
        """Tell them of a new disk, which has no ledgers, or takes over those of a failed one once it has listed its
        own."""
        for disks in self._linked.values():
            if not replaces:
                disks.add(disk.uuid)
        disk.listed = not replaces
        if self.assignments is not None:
            self.assignments.join(disk, replaces=replaces)
        order = DiskJoins(disk=disk.uuid, path=str(disk.path), replaces=replaces)
        if replaces and self.assignments is not None:
            await self.call(order)  # as for ``hold``; one that is stuck is killed
        else:
            await self._tell(order)

    async def leave(self, disk: Disk) -> None:
        """Tell them that this disk, which has no ledgers, is removed."""
        if self.assignments is not None:
            self.assignments.leave(disk)
        await self._tell(DiskLeaves(disk=disk.uuid))

    async def _tell(self, order: Message) -> None:
        """Tell them what new ledgers depend on: the only one has acted on it when this returns. Of several none decides
        about new ledgers, so one that is stuck need not be waited for."""
        if self.assignments is None:
            await self.call(order, timeout_s=_RESPONSE_TIMEOUT_S)
        else:
            self.send(order)

    def _new_ledgers(self) -> NewLedgers:
        bookie = self._bookie
        found = free_space_message(bookie.disks, self._files, allowed=bookie.accepts_new_ledgers)
        if self.assignments is not None:
            self.assignments.set_free_space(found)
        return found

    def allow_new_ledgers(self) -> None:
        """Send the permission to create ledgers, and the free space of the disks."""
        self.send(self._new_ledgers())

    async def publish_free_space(self) -> None:
        """As ``allow_new_ledgers``. When this returns, new ledgers go to the intended disks, a new one included."""
        await self._tell(self._new_ledgers())

    async def stop(self, timeout_s: float) -> None:
        """Stop all of them in order; after the time-out they are killed."""
        self.send(Stop())
        children = self.by_number.values()
        await asyncio.gather(*(child.end(timeout_s) for child in children))
        if self._shared is not None:
            self._shared.close()
            self._shared = None
