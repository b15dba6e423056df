"""The supervisor: the six steps of a start, the supervision of the children, the ordered stop.

Start, in this order, and each step complete before the next:

1. acquire the locks, compare the cookies, bind the port, write the dirty markers;
2. start the workers, let them replay their logs, classify each disk;
3. phase one, if a disk may have lost something; clear the markers; stamp the cookies that were held back;
4. start the front-end, open the port, register;
5. start the repair worker: phase two;
6. on SIGTERM or SIGINT: deregister, stop accepting requests, flush and sync every disk, and last of all clear the
   dirty markers.

A child that dies is restarted with back-off. A worker's disk is out of service meanwhile, and goes through steps
2 and 3 before it serves again. The supervisor never touches entry data.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bkbox.api.admin import server as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.commandline import set_origin
from bkbox.base.host.files import HostFiles
from bkbox.base.host.mounts import mount_identity
from bkbox.base.ids import BookieId
from bkbox.base.values import replaced
from bkbox.config.schema import Config, address_of
from bkbox.config.values import join_address
from bkbox.errors import (
    BkboxError,
    BootError,
    DiskError,
    DiskFailedError,
    MetadataError,
    MetadataUnavailableError,
)
from bkbox.ipc import channel
from bkbox.ipc.messages.disk import AttachRepair, DiskFailed, FrontendDetached, IndexProgress
from bkbox.ipc.messages.frontend import AttachDisk
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import GetStats, Stats, Stop, Stopped
from bkbox.ipc.messages.repair import JobReport, OverQuota, QuotaUse
from bkbox.metadata.base import Registration
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.dirty_marker import Incarnation
from bkbox.storage.disk.folder import GuardedFiles
from bkbox.storage.disk.reserve import free_reserve_if_full
from bkbox.storage.files import Files
from bkbox.storage.log.records import AckAfter
from bkbox.supervisor import repair_config
from bkbox.supervisor.access_policy import Credentials
from bkbox.supervisor.boot import cookies, open_disk, startup_resources
from bkbox.supervisor.boot.phase_one import PhaseOne
from bkbox.supervisor.boot.startup_resources import StartupResources
from bkbox.supervisor.boot.witnessing import DiskWitnesses
from bkbox.supervisor.children.child_pool import ChildPool
from bkbox.supervisor.children.process import Child, Exit
from bkbox.supervisor.children.restart_policy import ChildSupervisor
from bkbox.supervisor.disk_changes import DiskChanges
from bkbox.supervisor.disks import sidelined
from bkbox.supervisor.disks.disk_inspection import stamp
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.drain_marker import is_draining
from bkbox.supervisor.disks.duplicate_placement import resolve_duplicate_ledgers
from bkbox.supervisor.disks.ledger_migration import LedgerMigrator
from bkbox.supervisor.disks.readonly_requests import ReadOnlyRequests
from bkbox.supervisor.frontends import Frontends
from bkbox.supervisor.quotas import QuotaState
from bkbox.supervisor.service.child_progress import Progress
from bkbox.supervisor.service.mdns import announced
from bkbox.supervisor.service.sd_notify import ServiceManager
from bkbox.supervisor.service.service_info import service_info_of
from bkbox.supervisor.service.systemd_watchdog import WatchdogNotifier, poll_every_s

if TYPE_CHECKING:
    from bkbox.api.admin.routes import Route
    from bkbox.api.admin.status import BookieState
    from bkbox.api.admin.tcp_access import TcpAccess
    from bkbox.metadata.base import MetadataStore
    from bkbox.supervisor.jobs import Jobs

    RoutesOf = Callable[
        ["Supervisor", MetadataStore, Files, contextlib.AsyncExitStack], tuple[Route, ...]
    ]
    """Makes the table of routes of the admin API, when its first client connects (bkbox/api/table.py)."""


log = logging.getLogger(__name__)

_T = TypeVar("_T")

_STATS_EVERY_S = 1.0
_STATS_TIMEOUT_S = 1.0
"""Time-out for a worker's statistics; a worker that syncs a large batch answers later, and its last ones are shown."""
_CHILD_END_S = 5.0
_METADATA_AGAIN_S = 1.0
_NOTE_STOP_S = 5.0


def kernel_boot_id() -> str:
    """The kernel's boot id."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Supervisor:
    """One bookie."""

    def __init__(
        self,
        config: Config,
        files: Files,
        child_pool: ChildPool,
        on_ready: Callable[[str], None],
        manager: ServiceManager | None = None,
        guard: GuardedFiles | None = None,
        routes_of: RoutesOf | None = None,
    ) -> None:
        """``guard``: keeps ``files`` from folders that are not what they were. ``routes_of``: None if no client can
        connect, as in a simulated bookie."""
        self.config = config
        self.phase = "locks and cookies"
        self.state: BookieState = "starting"
        self.disks: list[Disk] = []
        self.repair: Child | None = None
        self.repair_restarts = 0
        self.jobs: Jobs | None = None
        self.phase_one = PhaseOne()
        self.instance_id = ""
        self.listen = ""
        self.http_listen = ""
        self._files = files
        self._guard = guard
        self.child_pool = child_pool
        self._bookie = BookieId(config.bookie_id)
        self._on_ready = on_ready
        manager = manager or ServiceManager()
        self.progress = Progress(self, poll_every_s(manager))
        self._notifier = WatchdogNotifier(self, manager, files, self.progress)
        self._run = Incarnation(
            kernel_boot_id(), AckAfter(config.ack_after), str(uuid.uuid4()), marks_active=True
        )
        self.witnessing = DiskWitnesses(files, self._bookie, config.run_dir)
        self.child_supervisor = ChildSupervisor(
            config.restart_backoff_initial_s,
            config.restart_backoff_max_s,
            random.Random(),  # noqa: S311 jitter only
            self._fail,
        )
        self.frontends = Frontends(self, files)
        self.migrator = LedgerMigrator(self.frontends)
        self.changes: DiskChanges | None = None
        self.readonly_requests = ReadOnlyRequests(self, files)
        self.quotas = QuotaState(self)
        self._stack = contextlib.AsyncExitStack()
        self._base: StartupResources | None = None
        self._routes_of = routes_of
        self._table: tuple[Route, ...] | None = None
        self.credentials = Credentials()
        self._stopping = asyncio.Event()
        self._failure: BkboxError | None = None
        self._registration: Registration | None = None

    # ---- lifecycle ------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Starts, serves until told to stop, stops. Raises BkboxError if the bookie cannot start or go on."""
        self.credentials.load(self.config)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        clean = False
        async with contextlib.AsyncExitStack() as stack:
            watching = self.child_supervisor.run(self.progress.run())
            stack.callback(watching.cancel)
            await stack.enter_async_context(self._notifier)
            base = await self._run_or_stop(
                startup_resources.acquire(self.config, self._files, stack)
            )
            if base is None:
                return 0
            self.instance_id, self.disks, self.listen = base.instance_id, base.disks, base.listen
            self._stack, self._base = stack, base
            await self.serve_on(admin_socket_path(self.config))
            await self._serve_on_tcp()
            try:
                await self._run_or_stop(self._start(base))
                async with announced(self):
                    await self._stopping.wait()
            finally:
                clean = await self._stop()
        if self._failure is not None:
            raise self._failure
        return 0 if clean else 1

    async def serve_on(self, path: Path) -> None:
        """Serves the admin API on this socket, too, until the bookie stops. Raises BootError."""
        handle = await admin.start(path, None, self._routes)
        self._stack.push_async_callback(handle.close)

    async def _serve_on_tcp(self) -> None:
        """Serves the admin API over TCP if configured. Raises BootError."""
        if not self.config.http_listen:
            return
        host, port = address_of(self.config.http_listen)
        handle = await admin.start_tcp(host, port, self._routes, self._admin_tcp_access)
        self._stack.push_async_callback(handle.close)
        self.http_listen = join_address(*handle.address)

    def _reload(self) -> None:
        from bkbox.supervisor import config_reload  # a start need not wait for it

        config_reload.on_hangup(self, os.environ)

    def _admin_tcp_access(self) -> TcpAccess:
        assert self.credentials.tcp_access is not None
        return self.credentials.tcp_access

    async def _run_or_stop(self, start: Coroutine[object, object, _T]) -> _T | None:
        """Runs a start, which may take long (a replay, an unavailable metadata store). Returns None if the bookie has
        to stop before; the start is then cancelled."""
        starting = asyncio.ensure_future(start)
        stopped = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return None
        return starting.result()

    def _fail(self, error: BaseException) -> None:
        """A required background task has ended: the bookie cannot go on."""
        log.error("the bookie cannot go on: %s", error)
        self._failure = (
            error
            if isinstance(error, BkboxError)
            else BootError(f"{type(error).__name__}: {error}")
        )
        self._stopping.set()

    # ---- start --------------------------------------------------------------------------------------

    async def _start(self, base: StartupResources) -> None:
        await self._when_available(
            "generation", lambda: self.witnessing.begin(base.store, self.disks)
        )
        self.phase = "dirty markers"
        self.readonly_requests.load()
        for disk in self.disks:
            with sidelined.guarded(disk):
                self.begin_run(disk)
            disk.draining = is_draining(self._files, disk.path)
        self.phase = "replay"
        await asyncio.gather(
            *(self._open_at_boot(disk) for disk in self.disks if disk.marked_dirty)
        )
        opened = [disk for disk in self.disks if not disk.trouble]
        sidelined.require_one(self.disks, opened)
        await self._account_for_losses(base, opened)
        sidelined.require_one(self.disks, [disk for disk in self.disks if disk.usable])
        await self._stamp_replaced(base)
        await self._when_available(
            "noting the disks", lambda: self.witnessing.commit(base.store, self.disks)
        )
        self.phase = "opening the port"
        await self.frontends.start(base)
        await self._when_available("registering", lambda: self._register(base))
        self._start_repair()
        self._keep_children(base)
        self.phase, self.state = "up", "running"
        await self.refresh()
        self._notifier.poll()
        self._on_ready(self.listen)
        self.child_supervisor.run(self._run_jobs(base))
        self.child_supervisor.run(self.witnessing.keep(base.store, self.disks))

    async def _open(self, disk: Disk) -> None:
        try:
            await open_disk.open_disk(
                disk,
                self.config,
                self.witnessing,
                self.child_pool,
                lambda message, _fds: self._on_disk_message(disk, message),
            )
        except DiskFailedError as error:
            self.witnessing.fail(disk, self.disks, str(error))
            raise

    async def _open_at_boot(self, disk: Disk) -> None:
        with sidelined.guarded(disk):
            await self._open(disk)

    async def _account_for_losses(self, base: StartupResources, opened: list[Disk]) -> None:
        """Runs phase one if one of the disks just opened may have lost something. Then they may serve, and so may the
        disks that waited for them."""
        async with self.migrator.lock:
            await self.migrator.resolve(self.disks)
            opened = [disk for disk in self.disks if disk in opened or disk.is_waiting]
            absent = [disk for disk in self.disks if not disk.usable and disk not in opened]
            waiting = sidelined.waiting(opened, absent)
            others = [disk for disk in self.disks if disk not in waiting]
            present = [disk for disk in others if disk not in absent]
            unresolved = self.migrator.unresolved | await resolve_duplicate_ledgers(
                others, self.migrator.place
            )
            if any(disk.may_have_lost for disk in present) or unresolved:
                self.phase_one = await self._when_available(
                    "phase one",
                    lambda: open_disk.mark_losses(
                        base.store, self._bookie, present, unresolved, self.frontends.assigned_disk
                    ),
                )
            await self.migrator.clear_unresolved(present)
            for disk in opened:
                if disk in waiting:
                    disk.waits = True
                else:
                    await open_disk.finish_recovery(disk, self._files)
                    self.witnessing.clear_failure(disk, self.disks)

    async def _stamp_replaced(self, base: StartupResources) -> None:
        """Stamps the cookies once all disks that replace a lost one are accounted for."""
        stamped = [disk for disk in self.disks if disk.needs_stamp]
        if stamped and all(disk.recovered for disk in stamped):
            await self._when_available("stamping cookies", lambda: self._stamp(base))

    async def _when_available(self, phase: str, step: Callable[[], Awaitable[_T]]) -> _T:
        """Repeats a step of the start, which must be repeatable, until the metadata store is available for it."""
        while True:
            self.phase = phase
            try:
                return await step()
            except MetadataUnavailableError as error:
                self.phase = f"{phase}: waiting for the metadata store"
                log.error("%s begins again: %s", phase, error)
                await asyncio.sleep(_METADATA_AGAIN_S)

    async def _stamp(self, base: StartupResources) -> None:
        """Stamps the cookies of replaced disks, held back until phase one was durable."""
        from bkbox.supervisor.boot.cookie_repair import write_to_metadata  # it can format disks

        evidence = await cookies.gather(self.config, base.store, self._files)
        for disk in self.disks:
            if disk.needs_stamp:
                stamp(self._files, disk.path, evidence.expected)
                disk.needs_stamp = False
        await write_to_metadata(base.store, evidence)

    async def _register(self, base: StartupResources) -> None:
        info = service_info_of(self.config, self.listen, self.http_listen)
        read_only = await self._read_only()
        self._registration = await base.store.register(self._bookie, info, read_only=read_only)

    def _start_repair(self) -> None:
        config = self.config

        def on_message(message: Message, _fds: list[int]) -> None:
            if isinstance(message, JobReport) and self.jobs is not None:
                self.jobs.report(message)
            elif isinstance(message, OverQuota | QuotaUse):
                self.quotas.receive(message)
            elif message.call and self.changes is not None:
                self.child_supervisor.run(self.changes.drains.respond(repair, message))

        self.quotas.begin()
        handle = self.child_pool.acquire("repair", config.bookie_id)
        self.repair = repair = Child(handle, config.bookie_id, on_message)
        self.repair.control.send(repair_config.order_of(config))
        for disk in self.disks:
            self._link_repair(disk)
        if self.jobs is not None:
            self.jobs.hand_over()

    def _link_repair(self, disk: Disk) -> None:
        if self.repair is None or not self.repair.running or disk.child is None or not disk.usable:
            return
        ours, theirs = channel.pair()
        with ours, theirs:
            disk.child.control.send(AttachRepair(), [theirs.fileno()])
            self.repair.control.send(AttachDisk(disk=disk.uuid), [ours.fileno()])

    # ---- while it runs ------------------------------------------------------------------------------

    def _keep_children(self, base: StartupResources) -> None:
        self.changes = DiskChanges(self, base, self._files)
        for disk in self.disks:
            self.keep_disk(base, disk)

        self.frontends.keep(base)

        def repair() -> Child:
            assert self.repair is not None
            return self.repair

        async def revive_repair() -> None:
            self.repair_restarts += 1
            self._start_repair()

        def lost_repair(_exit: Exit) -> None:
            if self.jobs is not None:
                self.jobs.lost()

        self.child_supervisor.keep("the repair worker", repair, lost_repair, revive_repair)
        self.child_supervisor.run(self._watch())

    async def start_disk(self, base: StartupResources, disk: Disk) -> None:
        """Starts the worker of a disk that is in use already, and puts it into service. Raises the error that it met,
        with the worker ended."""
        try:
            if not disk.marked_dirty:
                self.begin_run(disk)
            await self._open(disk)
            if disk.may_have_lost:
                await self.frontends.hold(disk)
            await self._account_for_losses(base, [disk])
            await self._stamp_replaced(base)
        except (BkboxError, OSError) as error:
            sidelined.fail(disk, error)
            raise
        finally:
            self.phase = "up"
        for each in self.disks:
            if each.usable and not each.in_service and (each is disk or each.waits):
                self._put_into_service(each)

    def _put_into_service(self, disk: Disk) -> None:
        disk.trouble, disk.error, disk.waits = "", None, False
        if self.jobs is not None:
            self.jobs.note_rebuild(disk)
        self.check_copies()
        self.frontends.link(disk)
        self._link_repair(disk)

    def check_copies(self) -> None:
        """Have the check job look again for copies that are missing."""
        if self.jobs is not None:
            self.jobs.must_check = True

    def begin_run(self, disk: Disk) -> None:
        """Writes the dirty marker before anything else is done to a disk; then updates the other witnesses."""
        for folder in self._folders_of(disk):
            self.use_folder(folder)
        free_reserve_if_full(self._files, disk.path)
        run = self._run_on(disk)
        disk.before = markers.begin_run(self._files, disk.path, run)
        disk.run = run
        failed = self.witnessing.failure_of(disk)
        if failed:  # its own marker may lack the failure
            disk.before = markers.carry_failure(self._files, disk.path, disk.before, failed)
        self.witnessing.join(disk)
        self.readonly_requests.carry_over(disk)
        disk.marked_dirty = True

    def _run_on(self, disk: Disk) -> Incarnation:
        """This run as the disk's marker describes it now. An unknown mount equals no other."""
        mount = self.mount_identity(disk.path) or f"not known {uuid.uuid4()}"
        return replaced(self._run, mount=mount)

    def mount_identity(self, folder: Path) -> str:
        return mount_identity(HostFiles(), folder)

    def _begin_again(self, disk: Disk) -> None:
        """Before a restart of the disk's worker: reads what the marker says of earlier runs, this one included."""
        now = self._run_on(disk)
        if now != disk.run:  # it was mounted again meanwhile
            disk.run = now
            disk.before = markers.begin_run(self._files, disk.path, now)
        else:
            disk.before = markers.read_marker(self._files, disk.path)
        failed = self.witnessing.failure_of(disk)
        if failed:
            disk.before = markers.carry_failure(self._files, disk.path, disk.before, failed)

    def use_folder(self, path: Path) -> None:
        """Accepts the folder that is there now as the right one. Raises DiskError."""
        if self._guard is not None:
            self._guard.guard(path)

    def _require_folders(self, disk: Disk) -> None:
        """Raises DiskError if a folder of the disk is not what it was: its worker is not started."""
        try:
            for folder in self._folders_of(disk):
                if self._guard is not None:
                    self._guard.require(folder)
        except DiskError as error:
            disk.trouble = str(error)
            raise

    def _folders_of(self, disk: Disk) -> list[Path]:
        journal = self.config.journal
        return [disk.path] if journal is None else [disk.path, journal]

    def keep_disk(self, base: StartupResources, disk: Disk) -> None:
        """Restarts the worker whenever it ends, until ``disk.keeping`` is cancelled."""

        def ended(_exit: Exit) -> None:
            disk.in_service = disk.recovered = disk.waits = False

        async def restart() -> None:
            self._require_folders(disk)
            disk.restarts += 1
            if disk.marked_dirty:
                self._begin_again(disk)
            await self.start_disk(base, disk)

        what = f"the worker of disk {disk.path}"
        disk.keeping = self.child_supervisor.keep(what, lambda: disk.child, ended, restart)

    def _on_disk_message(self, disk: Disk, message: Message) -> None:
        if isinstance(message, DiskFailed):
            disk.trouble = message.reason
            self.witnessing.fail(disk, self.disks, message.reason)
            log.error("disk %s failed and takes no more writes: %s", disk.path, message.reason)
        elif isinstance(message, FrontendDetached):
            self.frontends.relink(message.frontend, disk)
        elif isinstance(message, IndexProgress):
            self.phase = open_disk.replay_phase(disk, message)

    async def _watch(self) -> None:
        """Keep the registration's mode up to date."""
        while True:
            await asyncio.sleep(_STATS_EVERY_S)
            await self.publish_mode()
            self.frontends.allow_new_ledgers()
            if self.credentials.reload_if_changed(self.config, time.monotonic()):
                self.frontends.send(self.credentials.order)
            if (
                any(disk.placement_unknown for disk in self.disks)
                and not self.migrator.lock.locked()
            ):
                await self._resolve_unknown_placements()

    async def publish_mode(self) -> None:
        """Publishes in the metadata store if the bookie accepts entries."""
        read_only = await self._read_only()
        if self._registration is not None:
            await self._registration.set_read_only(read_only)

    async def _resolve_unknown_placements(self) -> None:
        async with self.migrator.lock:
            await self.migrator.resolve(self.disks)
        for disk in self.disks:
            if disk.usable and not disk.in_service:
                self.frontends.link(disk)

    @property
    def unregistered_s(self) -> float:
        """Seconds since the bookie, which still serves, lost its registration in the metadata store."""
        return self._registration.unregistered_s() if self._registration is not None else 0.0

    @property
    def accepts_new_ledgers(self) -> bool:
        """False after a long time without registration: the cluster may give the bookie up and copy its ledgers
        elsewhere."""
        return self.unregistered_s < self.config.metadata_lost_s

    @property
    def writable(self) -> bool:
        """True if some disk accepts new entries, and no read-only request holds for the bookie."""
        waits = self.config.readonly_while_in_limbo
        if waits and any(disk.stats.get("limbo_ledgers") for disk in self.disks):
            return False
        if not all(disk.listed for disk in self.disks):
            return False  # the ledger may be on an absent disk
        stalls = self.progress.lasts
        return any(not stalls(child) for child in self.frontends.by_number.values()) and any(
            disk.in_service and not disk.read_only and not stalls(disk.child) for disk in self.disks
        )

    def refusal_reason(self, disk: Disk) -> str:
        """The reason that requests for this disk are refused for now; empty if they go to its worker, over every
        front-end that runs.
        """
        if not disk.in_service:
            return "its worker is being started"
        if not self.frontends.know_ledgers_of(disk):
            return "its ledgers are being listed"
        return ""

    async def _read_only(self) -> bool:
        await self.refresh()
        return not self.writable

    @property
    def is_registered(self) -> bool:
        """True if the bookie is registered in the metadata store."""
        return self._registration is not None and not self.unregistered_s

    def _routes(self) -> tuple[Route, ...]:
        if self._table is None:
            assert self._base is not None
            assert self._routes_of is not None
            self._table = self._routes_of(self, self._base.store, self._files, self._stack)
        return self._table

    async def _run_jobs(self, base: StartupResources) -> None:
        from bkbox.supervisor.job_file import JobFile  # once the bookie is up
        from bkbox.supervisor.jobs import Jobs
        from bkbox.supervisor.service.expired_maintenance import close_expired_windows

        was_down = self.witnessing.generation > 1
        self.jobs = Jobs(self, JobFile(self._files), was_down=was_down)
        self.child_supervisor.run(close_expired_windows(base.store))
        await self.jobs.run()

    async def refresh(self) -> None:
        """Refreshes the statistics of the workers that make progress."""

        async def one(disk: Disk) -> None:
            if not disk.usable or self.progress.stall_of(disk.child) is not None:
                return
            with contextlib.suppress(BkboxError, TimeoutError):
                found = await disk.call(GetStats(), timeout_s=_STATS_TIMEOUT_S)
                assert isinstance(found, Stats)
                disk.stats = found.values
                disk.meter.see(time.monotonic(), found.values.get("counts", {}))

        await asyncio.gather(*map(one, self.disks))

    # ---- stop ---------------------------------------------------------------------------------------

    async def _stop(self) -> bool:
        """Stops everything that was started, in order; True if every disk was left clean."""
        self.phase, self.state = "stopping", "stopping"
        self._notifier.poll()
        self.child_supervisor.stop()
        if self._registration is not None:
            with contextlib.suppress(MetadataError):
                await self._registration.close()
        if self.repair is not None:
            self.repair.control.send(Stop())
            await self.repair.end(_CHILD_END_S)
        await self.frontends.stop(_CHILD_END_S)
        if self.jobs is not None:
            await self.jobs.save()
        clean = all(await asyncio.gather(*map(self._stop_disk, self.disks)))
        await self._note_stop()
        if clean:
            for disk in self.disks:
                assert disk.run is not None
                clean = markers.clear(self._files, disk.path, disk.run) and clean
        return clean

    async def _note_stop(self) -> None:
        """Records the final state of the disks; a disk that is reverted to an older copy while the bookie is down is
        detected at the next start."""
        if self._base is not None and self.witnessing.generation:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NOTE_STOP_S):
                    await self.witnessing.note(self._base.store, self.disks)

    async def _stop_disk(self, disk: Disk) -> bool:
        """True if everything on the disk is durable and accounted for."""
        if disk.child is None:
            return False
        stopped = False
        with contextlib.suppress(BkboxError, TimeoutError):
            response = await disk.call(Stop(), timeout_s=self.config.stop_timeout_s)
            assert isinstance(response, Stopped)
            stopped = response.clean and disk.recovered
            if response.durable is not None:
                disk.stats = {**disk.stats, "durable": response.durable}
            if not response.clean:
                log.error("disk %s was not left clean: %s", disk.path, response.reason)
        await disk.child.end(_CHILD_END_S)
        return stopped


async def run(
    config: Config,
    child_pool: ChildPool,
    on_ready: Callable[[str], None],
    manager: ServiceManager,
    routes_of: RoutesOf,
) -> int:
    """Runs a bookie until SIGTERM or SIGINT. ``on_ready`` gets HOST:PORT once it answers requests.

    ``child_pool``: the pool of its children, started before or not. ``manager``: the service manager to notify.
    ``routes_of``: makes the routes of its admin API.

    Returns 0 after a clean stop, 1 if a disk could not be left clean. Raises CookieMismatchError,
    BookieRunningError, BootError and other errors that keep a bookie from starting.
    """
    set_origin(config=os.path.abspath(config.path))
    files = GuardedFiles()
    return await Supervisor(config, files, child_pool, on_ready, manager, files, routes_of).run()
