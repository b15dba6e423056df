"""The supervisor: the six steps of a start, the life of the children, the ordered stop.

Start, in this order, and each step complete before the next:

1. take the locks, compare the cookies, bind the port, write the dirty markers;
2. start the workers, let them replay their logs, classify each disk;
3. phase one, where a disk may have lost something; settle the markers; stamp the cookies that were held back;
4. start the front-end, open the port, register;
5. start the repair worker: phase two;
6. on SIGTERM or SIGINT: deregister, stop taking requests, flush and sync every disk, and last of all clear the
   dirty markers.

A child that dies is started again with back-off. A worker's disk is out of service meanwhile, and goes through steps
2 and 3 before it serves again. The supervisor never touches entry data.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path

from bkbox.admin import server as admin
from bkbox.admin import status
from bkbox.admin.paths import admin_socket_path
from bkbox.config import Config
from bkbox.errors import (
    BkboxError,
    BootError,
    ConnectionLostError,
    CookieMismatchError,
    MetadataError,
)
from bkbox.ids import BookieId
from bkbox.ipc import channel, messages
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore, Registration
from bkbox.protocol import boot
from bkbox.storage import marker as markers
from bkbox.storage.files import Files, RealFiles
from bkbox.storage.lock import DiskLock
from bkbox.storage.marker import Run
from bkbox.storage.records import AckAfter
from bkbox.supervisor import cookies, phase_one, report
from bkbox.supervisor.disks import Disk
from bkbox.supervisor.process import Child
from bkbox.wire.service_info import rpc_service_info

log = logging.getLogger(__name__)

_STATS_EVERY_S = 1.0
_STATS_TIMEOUT_S = 1.0
"""A worker that syncs a large batch answers later; the figures of before are shown meanwhile."""
_HEALTHY_AFTER_S = 10.0
"""A child that lived this long starts its next back-off from the beginning."""


def kernel_boot_id() -> str:
    """The id that the kernel drew at its start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Supervisor:
    """One bookie."""

    def __init__(self, config: Config, files: Files, on_ready: Callable[[str], None]) -> None:
        self.config = config
        self.files = files
        self.bookie = BookieId(config.bookie_id)
        self.phase = "locks and cookies"
        self.state: report.State = "starting"
        self.disks: list[Disk] = []
        self.frontend: Child | None = None
        self.frontend_restarts = 0
        self.repair: Child | None = None
        self.repair_restarts = 0
        self.repair_progress: dict[str, object] = {}
        self.phase_one = phase_one.PhaseOne()
        self.instance_id = ""
        self.listen = ""
        self.writable = False
        self._on_ready = on_ready
        self._run = Run(kernel_boot_id(), AckAfter(config.ack_after), str(uuid.uuid4()))
        self._rng = random.Random()  # noqa: S311 jitter only
        self._stopping = asyncio.Event()
        self._locks: dict[Path, DiskLock] = {}
        self._store: MetadataStore | None = None
        self._registration: Registration | None = None
        self._port: socket.socket | None = None
        self._keepers: set[asyncio.Task[None]] = set()
        self._failure: BkboxError | None = None

    # ---- the whole life -----------------------------------------------------------------------------

    async def run(self) -> int:
        """Start, serve until told to stop, stop. Raises BkboxError where the bookie cannot start or go on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            clean = False
            async with contextlib.AsyncExitStack() as stack:
                await self._step_one(stack)
                try:
                    await self._start()
                    await self._serve()
                finally:
                    clean = await self._stop()
            if self._failure is not None:
                raise self._failure
            return 0 if clean else 1
        finally:
            if self._port is not None:
                self._port.close()
            for lock in self._locks.values():
                lock.release()

    # ---- step 1 -------------------------------------------------------------------------------------

    async def _step_one(self, stack: contextlib.AsyncExitStack) -> None:
        config = self.config
        self._locks = cookies.lock_all(config, self.files, create=False)
        self._store = await stack.enter_async_context(await connect(config.metadata))
        evidence = await cookies.gather(config, self._store, self.files)
        self.instance_id = evidence.instance_id
        found = cookies.judge(evidence, str(config.path))
        if not found.ok and config.auto_fix_cookies:
            evidence = await self._fix_cookies(evidence)
            found = cookies.judge(evidence, str(config.path))
        if not found.ok:
            lines = "; ".join(map(str, found.differences))
            raise CookieMismatchError(f"cookie mismatch: {lines}. {found.advice}")
        self._bind()
        handle = await admin.start(admin_socket_path(config), self._status)
        stack.push_async_callback(handle.close)
        for number, item in enumerate(evidence.disks):
            assert item.identity is not None
            disk = Disk(number, item.path, str(item.identity.uuid), self._locks[item.path])
            disk.needs_stamp = item.state is cookies.DirState.REPLACED
            self.disks.append(disk)
        self._refuse_twins()
        self.phase = "dirty markers"
        for disk in self.disks:
            disk.before = markers.begin_run(self.files, disk.path, self._run)

    async def _fix_cookies(self, evidence: cookies.Evidence) -> cookies.Evidence:
        assert self._store is not None
        plan = cookies.plan_of(evidence)
        if plan.refusal is not None:
            return evidence
        for step in plan.steps:
            log.warning("auto_fix_cookies: %s", step)
        missing = [item.path for item in evidence.directories if item.path not in self._locks]
        await cookies.carry_out(evidence, self._store, self.files)
        for path in missing:
            self._locks[path] = DiskLock(path)
        return await cookies.gather(self.config, self._store, self.files)

    def _bind(self) -> None:
        host, port = self.config.listen_host, self.config.listen_port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._port = socket.socket(family, socket.SOCK_STREAM)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._port.bind((host, port))
        except OSError as error:
            raise BootError(
                f"cannot listen on {self.config.listen}: {error.strerror}. Is another process using the port? "
                "Change `listen` in the configuration or stop it"
            ) from error
        self.listen = f"{host}:{self._port.getsockname()[1]}"

    def _refuse_twins(self) -> None:
        seen: dict[str, Disk] = {}
        for disk in self.disks:
            twin = seen.setdefault(disk.uuid, disk)
            if twin is not disk:
                raise BootError(
                    f"{twin.path} and {disk.path} are the same disk or copies of one ({disk.uuid}): use one"
                )

    # ---- steps 2 to 5 -------------------------------------------------------------------------------

    async def _start(self) -> None:
        self.phase = "replay"
        await asyncio.gather(*(self._open_disk(disk) for disk in self.disks))
        await self._account_for_losses(self.disks)
        assert self._store is not None
        if any(disk.needs_stamp for disk in self.disks):
            await self._stamp()
        self.phase = "opening the port"
        await self._start_frontend()
        await self._register()
        await self._start_repair()
        for disk in self.disks:
            self._keep(self._keep_disk(disk))
        self._keep(self._keep_frontend())
        self._keep(self._keep_repair())
        self._keep(self._watch())
        self.phase, self.state = "up", "running"
        await self._refresh()
        self._on_ready(self.listen)

    async def _open_disk(self, disk: Disk) -> None:
        """Start the worker and let it replay; classify the disk by what it found."""
        config = self.config
        disk.host_crash = disk.before is not None and (
            config.strict_unclean_shutdown or disk.before.is_host_crash(self._run.boot_id)
        )
        disk.child = Child.start(
            "worker",
            str(disk.path),
            on_message=lambda message, _fds: self._disk_says(disk, message),
            keep_fds=(disk.lock.fileno(),),
        )
        try:
            opened = await disk.call(
                messages.OpenDisk(
                    path=str(disk.path),
                    journal=str(config.journal) if config.journal else "",
                    ack_after=config.ack_after,
                    host_crash=disk.host_crash,
                    segment_bytes_max=config.segment_bytes_max,
                    checkpoint_bytes=config.checkpoint_bytes,
                    disk_usage_max=config.disk_usage_max,
                    disk_reserve_bytes=config.disk_reserve_bytes,
                )
            )
        except ConnectionLostError as error:
            ended = await disk.child.wait()
            raise BootError(
                f"the worker of disk {disk.path} ended while it opened the disk: {ended}"
            ) from error
        assert isinstance(opened, messages.DiskOpened)
        verdict = boot.classify(
            boot.DiskEvidence(
                marker=report.marker_evidence(disk.before),
                boot_id=self._run.boot_id,
                strict=config.strict_unclean_shutdown,
                tail_trusted=opened.trusted,
                damaged=tuple(opened.damaged),
            )
        )
        disk.opened = opened
        disk.crash_class, disk.reason, disk.may_have_lost = (
            verdict.disk_class,
            verdict.reason,
            verdict.may_have_lost,
        )
        log.warning("disk %s: %s: %s", disk.path, disk.crash_class.value, disk.reason)

    async def _account_for_losses(self, disks: list[Disk]) -> None:
        """Phase one, and then the markers are settled."""
        if any(disk.may_have_lost for disk in disks):
            self.phase = "phase one"
            assert self._store is not None
            self.phase_one = await phase_one.run(self._store, self.bookie, self.disks)
            log.warning(
                "phase one: %d ledgers fenced, %d of them in limbo, of %d seen",
                self.phase_one.fenced,
                self.phase_one.limbo,
                self.phase_one.ledgers_seen,
            )
        for disk in disks:
            await disk.call(messages.Settle())
            markers.settle(self.files, disk.path, self._run, disk.before)
            disk.may_have_lost = False
            disk.settled = True

    async def _stamp(self) -> None:
        assert self._store is not None
        evidence = await cookies.gather(self.config, self._store, self.files)
        for disk in self.disks:
            if disk.needs_stamp:
                cookies.stamp(self.files, disk.path, evidence.expected)
                disk.needs_stamp = False
        await cookies.write_to_metadata(self._store, evidence)

    # ---- front-end ----------------------------------------------------------------------------------

    async def _start_frontend(self) -> None:
        assert self._port is not None
        listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def says(message: messages.Message, _fds: list[int]) -> None:
            if isinstance(message, messages.Listening) and not listening.done():
                listening.set_result(None)

        usable = [disk for disk in self.disks if disk.usable]
        self.frontend = Child.start("frontend", self.listen, on_message=says)
        self.frontend.control.send(
            messages.OpenFrontend(
                frame_bytes_max=self.config.frame_bytes_max,
                connection_inflight_bytes_max=self.config.connection_inflight_bytes_max,
                disks=[disk.uuid for disk in self.disks],
                attached=[disk.uuid for disk in usable],
            ),
            [self._port.fileno()],
        )
        for disk in usable:
            self._link(disk)
        ended = asyncio.ensure_future(self.frontend.wait())
        await asyncio.wait((listening, ended), return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            raise BootError(
                f"the front-end ended before it listened on {self.listen}: {ended.result()}"
            )
        ended.cancel()

    def _link(self, disk: Disk) -> None:
        """Connect a disk's worker with the front-end."""
        assert disk.child is not None
        if self.frontend is None or not self.frontend.running:
            return
        front, back = channel.pair()
        with front, back:
            disk.child.control.send(messages.AttachFrontend(), [back.fileno()])
            self.frontend.control.send(messages.AttachDisk(disk=disk.uuid), [front.fileno()])
        disk.in_service = True

    async def _register(self) -> None:
        assert self._store is not None
        host, _, port = self.listen.rpartition(":")
        info = rpc_service_info(self.config.advertised_host or host, int(port))
        self._registration = await self._store.register(
            self.bookie, info, read_only=await self._read_only()
        )

    async def _read_only(self) -> bool:
        await self._refresh()
        waits = self.config.readonly_while_in_limbo
        self.writable = any(disk.in_service and not disk.read_only for disk in self.disks) and not (
            waits and any(disk.stats.get("limbo_ledgers") for disk in self.disks)
        )
        return not self.writable

    # ---- repair -------------------------------------------------------------------------------------

    async def _start_repair(self) -> None:
        config = self.config

        def says(message: messages.Message, _fds: list[int]) -> None:
            if isinstance(message, messages.RepairProgress):
                self.repair_progress = dict(message.values)

        self.repair = Child.start("repair", self.config.bookie_id, on_message=says)
        self.repair.control.send(
            messages.OpenRepair(
                bookie=self.config.bookie_id,
                metadata=config.metadata,
                entries_in_flight=config.repair_entries_in_flight,
                bytes_per_second=config.repair_bytes_per_second,
                ledgers_at_once=config.repair_ledgers_at_once,
                retry_initial_s=config.repair_retry_initial_s,
                retry_max_s=config.repair_retry_max_s,
            )
        )
        for disk in self.disks:
            self._link_repair(disk)

    def _link_repair(self, disk: Disk) -> None:
        if self.repair is None or not self.repair.running or disk.child is None or not disk.usable:
            return
        ours, theirs = channel.pair()
        with ours, theirs:
            disk.child.control.send(messages.AttachRepair(), [theirs.fileno()])
            self.repair.control.send(messages.AttachDisk(disk=disk.uuid), [ours.fileno()])

    # ---- while it runs ------------------------------------------------------------------------------

    async def _serve(self) -> None:
        await self._stopping.wait()

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._keepers.add(task)
        task.add_done_callback(self._kept)

    def _kept(self, task: asyncio.Task[None]) -> None:
        """A keeper only ends by itself when the bookie cannot go on."""
        self._keepers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            log.error("the bookie cannot go on: %s", error)
            self._failure = (
                error
                if isinstance(error, BkboxError)
                else BootError(f"{type(error).__name__}: {error}")
            )
            self._stopping.set()

    async def _keep_disk(self, disk: Disk) -> None:
        tries = 0
        while True:
            assert disk.child is not None
            began = time.monotonic()
            ended = await disk.child.wait()
            disk.in_service = disk.settled = False
            log.error("the worker of disk %s ended: %s", disk.path, ended)
            tries = 0 if time.monotonic() - began > _HEALTHY_AFTER_S else tries + 1
            await self._back_off(tries)
            disk.restarts += 1
            disk.before = markers.read_marker(self.files, disk.path)
            try:
                await self._open_disk(disk)
                await self._account_for_losses([disk])
            except (BkboxError, OSError) as error:
                disk.trouble = str(error)
                log.error("disk %s stays out of service: %s", disk.path, error)
                if disk.child is not None:
                    disk.child.kill()
                continue
            disk.trouble = ""
            self._link(disk)
            self._link_repair(disk)

    async def _keep_frontend(self) -> None:
        tries = 0
        while True:
            assert self.frontend is not None
            began = time.monotonic()
            ended = await self.frontend.wait()
            log.error("the front-end ended: %s", ended)
            tries = 0 if time.monotonic() - began > _HEALTHY_AFTER_S else tries + 1
            await self._back_off(tries)
            self.frontend_restarts += 1
            with contextlib.suppress(BootError):
                await self._start_frontend()

    async def _keep_repair(self) -> None:
        tries = 0
        while True:
            assert self.repair is not None
            began = time.monotonic()
            ended = await self.repair.wait()
            log.error("the repair worker ended: %s", ended)
            tries = 0 if time.monotonic() - began > _HEALTHY_AFTER_S else tries + 1
            await self._back_off(tries)
            self.repair_restarts += 1
            await self._start_repair()

    async def _back_off(self, tries: int) -> None:
        bound = min(
            self.config.restart_backoff_max_s,
            self.config.restart_backoff_initial_s * 2.0 ** min(tries, 20),
        )
        await asyncio.sleep(bound * self._rng.uniform(0.5, 1.0))

    def _disk_says(self, disk: Disk, message: messages.Message) -> None:
        if isinstance(message, messages.DiskTrouble):
            disk.trouble = message.reason
            log.error("disk %s failed and takes no more writes: %s", disk.path, message.reason)

    async def _watch(self) -> None:
        """Keep the figures of the status document and the registration's mode up to date."""
        while True:
            await asyncio.sleep(_STATS_EVERY_S)
            try:
                read_only = await self._read_only()
                if self._registration is not None:
                    await self._registration.set_read_only(read_only)
            except MetadataError as error:
                log.warning("the registration could not be renewed: %s", error)

    async def _status(self) -> status.Status:
        await self._refresh()
        return report.status_of(self)

    async def _refresh(self) -> None:
        async def one(disk: Disk) -> None:
            if not disk.usable:
                return
            with contextlib.suppress(BkboxError, TimeoutError):
                found = await disk.call(messages.GetStats(), timeout_s=_STATS_TIMEOUT_S)
                assert isinstance(found, messages.Stats)
                disk.stats = found.values

        await asyncio.gather(*map(one, self.disks))

    # ---- step 6 -------------------------------------------------------------------------------------

    async def _stop(self) -> bool:
        """Ordered end of everything that was started; True if every disk was left clean."""
        self.phase, self.state = "stopping", "stopping"
        for task in list(self._keepers):
            task.cancel()
        if self._registration is not None:
            with contextlib.suppress(MetadataError):
                await self._registration.close()
        for child in (self.repair, self.frontend):
            if child is not None:
                child.control.send(messages.Stop())
                await child.end(5.0)
        clean = all(await asyncio.gather(*map(self._stop_disk, self.disks))) and bool(self.disks)
        if clean:
            for disk in self.disks:
                markers.clear(self.files, disk.path, self._run)
        return clean

    async def _stop_disk(self, disk: Disk) -> bool:
        if disk.child is None:
            return False
        stopped = False
        with contextlib.suppress(BkboxError, TimeoutError):
            answer = await disk.call(messages.Stop(), timeout_s=self.config.stop_timeout_s)
            assert isinstance(answer, messages.Stopped)
            stopped = answer.clean
            if not stopped:
                log.error("disk %s was not left clean: %s", disk.path, answer.reason)
        await disk.child.end(5.0)
        return stopped


async def run(config: Config, on_ready: Callable[[str], None]) -> int:
    """Run a bookie until SIGTERM or SIGINT. ``on_ready`` gets HOST:PORT once it answers requests.

    Returns 0 after a clean stop, 1 where a disk could not be left clean. Raises CookieMismatchError,
    BookieRunningError, BootError and other errors that keep a bookie from starting.
    """
    return await Supervisor(config, RealFiles(), on_ready).run()
