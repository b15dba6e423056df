"""The supervisor and the repair worker of a simulated bookie: the real ones, with objects that replace sockets and
descriptors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bkbox.base.ids import BookieId
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.errors import BkboxError
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import Stop
from bkbox.ipc.messages.repair import OpenRepair
from bkbox.repair.context import Environment
from bkbox.repair.limbo.limbo_repair import LimboRepair
from bkbox.storage.disk.dirty_marker import Incarnation
from bkbox.storage.log.records import AckAfter
from bkbox.supervisor.boot.startup_resources import StartupResources
from bkbox.supervisor.children.child_pool import ChildPool
from bkbox.supervisor.children.process import Child
from bkbox.supervisor.children.restart_policy import ChildSupervisor
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.ledger_migration import LedgerMigrator
from bkbox.supervisor.frontends import Frontends
from bkbox.supervisor.service.child_progress import Progress
from bkbox.supervisor.supervisor import Supervisor
from proof.sim.world.background_jobs import start_background_jobs
from proof.sim.world.child import SimChannel, SimChild
from proof.sim.world.files import SimFiles
from proof.sim.world.host import Host
from proof.sim.world.job_context import SimJobContext
from proof.sim.world.metadata import StaleView
from proof.sim.world.worker import Worker

if TYPE_CHECKING:
    from bkbox.ipc.async_channel import AsyncChannel


class Repair:
    """The repair worker's process."""

    def __init__(self, host: Host) -> None:
        self.process = host.process("repair")
        order = OpenRepair(
            bookie=host.name,
            metadata="sim:",
            metadata_wait_s=host.config.metadata_wait_s,
            entries_in_flight=4,
            disk_bytes_per_second=0,
            network_bytes_per_second=0,
            metadata_calls_per_second=0,
            p99_growth_max=1.0,
            ledgers_at_once=2,
            retry_initial_s=host.config.repair_retry_initial_s,
            retry_max_s=host.config.repair_retry_max_s,
            topology_script="",
            rack_map="",
            **(
                {}
                if host.cluster.background_jobs is None
                else host.cluster.background_jobs.settings()
            ),
        )
        self._order = order
        self._cluster = host.cluster
        self._store = StaleView(host.cluster.truth, self.process, is_stale=True)
        self._rng = random.Random(host.rng.getrandbits(64))  # noqa: S311 - of a seed
        self._environment: Environment | None = None
        self._runner: LimboRepair | None = None

    def receive(self, message: Message) -> Message | None:
        if isinstance(message, Stop):
            self.process.after(0.0, self.process.die, "it was told to stop")
        return None

    def serve(self, worker: Worker) -> None:
        self.process.run_task(self._serve(worker))

    async def _serve(self, worker: Worker) -> None:
        if self._environment is None or self._runner is None:
            scheduler = self._cluster.scheduler
            self._environment = Environment(
                me=BookieId(self._order.bookie),
                store=self._store,
                client=Client(self._store, ClientOptions(), self._rng),
                disks={},
                order=self._order,
                rng=self._rng,
                wall_ms=lambda: int(scheduler.now * 1000),
                monotonic_s=lambda: scheduler.now,
            )
            self._runner = LimboRepair(self._environment, SimJobContext())
            if self._cluster.background_jobs is not None:
                start_background_jobs(self.process, self._environment, self._runner)
        disk = self._environment.disks[worker.process.name] = cast(
            "AsyncChannel", SimChannel(worker)
        )
        try:
            await self._runner.serve_disk(disk)
        except BkboxError as error:
            self.process.note("cannot ask a disk for its ledgers in limbo: %s", error)


class _NoStalls(Progress):
    """Processes here run or are dead: there is no /proc to detect stalls."""

    async def run(self) -> None:
        """Nothing."""


class SimFrontends(Frontends):
    """The one front-end of a simulated bookie, which is linked by objects."""

    def __init__(self, bookie: Supervisor, host: Host, files: SimFiles) -> None:
        super().__init__(bookie, files)
        self._of = bookie
        self._host = host

    async def _start(self, base: StartupResources, number: int) -> None:
        bookie = self._of
        usable = [disk for disk in bookie.disks if disk.usable]
        handle: Any = bookie.child_pool.acquire("frontend", bookie.config.bookie_id)
        self.by_number[number] = cast(Child, SimChild(handle, bookie.listen))
        for disk in usable:
            self.link(disk)

    def link(self, disk: Disk) -> None:
        frontend = self._host.frontend
        if not self.running or disk.child is None:
            return
        if frontend is None or frontend.process.dead:
            return
        worker: Worker = cast(Any, disk.child).callee
        lane = frontend.attach(disk.uuid, worker)

        def lost() -> None:
            frontend.process.after(0.005, frontend.lost, lane)

        worker.process.on_death.append(lost)
        worker.process.after(0.0, worker.attach, frontend, lane)
        disk.in_service = disk.listed = True


class SimSupervisor(Supervisor):
    """The real supervisor; sockets and descriptors are replaced by objects."""

    def __init__(self, host: Host, files: SimFiles, child_pool: ChildPool) -> None:
        super().__init__(host.config, files, child_pool, self._ready)
        self._host = host
        self.progress = _NoStalls(self)
        rng = random.Random(host.rng.getrandbits(64))  # noqa: S311 - of a seed
        self.frontends = SimFrontends(self, host, files)
        self.migrator = LedgerMigrator(self.frontends)
        self.child_supervisor = ChildSupervisor(
            host.config.restart_backoff_initial_s,
            host.config.restart_backoff_max_s,
            rng,
            self._fail,
        )
        self._run = Incarnation(
            f"boot-{host.name}-{host.boot}",
            AckAfter(host.plan.ack_after),
            str(host.cluster.uuid()),
            marks_active=True,
        )

    def mount_identity(self, folder: Path) -> str:
        return self._host.mount_identity(folder)

    def _ready(self, _listen: str) -> None:
        host = self._host
        host.is_up = True
        stopped, host.on_up = host.on_up, None
        if stopped is not None:
            stopped()
        host.cluster.counts["boots"] += 1

    async def _account_for_losses(self, base: StartupResources, opened: list[Disk]) -> None:
        host = self._host
        for disk in opened:
            host.cluster.counts[f"disk class: {disk.crash_class.value}"] += 1
            host.cluster.scheduler.note(
                host.name, "%s: %s: %s", disk.path, disk.crash_class.value, disk.reason
            )
        if len(opened) == len(self.disks) and not any(disk.may_have_lost for disk in self.disks):
            host.cluster.observer.vouched(host.name, host.vouches, host.keeps_fence)
        if host.must_be_clean and any(disk.may_have_lost for disk in self.disks):
            reasons = "; ".join(disk.reason for disk in self.disks if disk.may_have_lost)
            host.cluster.observer.fail("no false alarm", f"{host.name} lost nothing: {reasons}")
        host.must_be_clean = False
        stopped = host.on_loss
        if stopped is not None and any(disk.may_have_lost for disk in opened):
            host.on_loss = None
            stopped()
        await super()._account_for_losses(base, opened)
        host.accounted_at = host.cluster.scheduler.now

    async def _run_jobs(self, base: StartupResources) -> None:
        """Repair is given the disks as they are opened: see ``Repair``."""

    def _start_repair(self) -> None:
        self.repair = cast(Child, SimChild(Repair(self._host), self.config.bookie_id))
        for disk in self.disks:
            self._link_repair(disk)

    def _link_repair(self, disk: Disk) -> None:
        if self.repair is None or not self.repair.running or disk.child is None or not disk.usable:
            return
        repair: Repair = cast(Any, self.repair).callee
        repair.serve(cast(Any, disk.child).callee)
