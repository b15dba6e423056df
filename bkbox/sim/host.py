"""A host of the simulated cluster: disks, and the bookie that runs on it, started by the real supervisor.

``Host`` outlives its processes, as a machine does: it has the disks, the kernel's boot id, and an operator, who starts
the bookie again and repairs cookies where the supervisor asks for it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from bkbox.checks.observer import Observer
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.config import Config
from bkbox.configschema import SCHEMA
from bkbox.errors import BkboxError, CookieMismatchError, DiskError, MetadataError
from bkbox.ids import BookieId
from bkbox.ipc import messages
from bkbox.ipc.messages import Message
from bkbox.repair.environment import Environment
from bkbox.repair.runner import Runner
from bkbox.sim.child import SimChannel, SimChild, SimNursery
from bkbox.sim.files import KILLED_IN_WRITE, Ambush, SimFiles
from bkbox.sim.files import Disk as DiskFiles
from bkbox.sim.frontend import (
    ADDED,
    ADDED_BY_RECOVERY,
    DENIED,
    FENCED,
    READ_BY_RECOVERY,
    Frontend,
)
from bkbox.sim.index import SimIndex
from bkbox.sim.link import Reach
from bkbox.sim.loop import Process, Scheduler
from bkbox.sim.metadata import Truth, View
from bkbox.sim.network import Network
from bkbox.sim.work import SimWork
from bkbox.sim.worker import Worker
from bkbox.storage.marker import Run
from bkbox.storage.records import AckAfter
from bkbox.supervisor import cookie_repair, cookies
from bkbox.supervisor.directories import stamp
from bkbox.supervisor.disks import Disk
from bkbox.supervisor.ground import Ground
from bkbox.supervisor.keeper import Keeper
from bkbox.supervisor.nursery import Nursery
from bkbox.supervisor.process import Child
from bkbox.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from bkbox.ipc.asyncchannel import AsyncChannel

ADDED_BY_REPLACEMENT = "an add of a recovery, to a bookie that metadata does not name yet"

STEPS = (ADDED, ADDED_BY_RECOVERY, ADDED_BY_REPLACEMENT, FENCED, READ_BY_RECOVERY, DENIED)
"""Steps of the protocol that faults may wait for."""

KILLED = "it was killed"
_ORPHANS = "their supervisor is gone"


@dataclass(frozen=True, slots=True)
class HostPlan:
    """How a bookie of the cluster is set up. ``again_s``: within which time its operator starts it again; ``list_s``:
    how long it takes a disk to list its ledgers to the front-end, on average."""

    name: str
    disks: int
    ack_after: str
    auto_fix_cookies: bool
    strict: bool
    readonly_in_limbo: bool
    segment_bytes: int
    checkpoint_bytes: int
    sync_ms: tuple[float, float]
    again_s: float
    list_s: float


class Cluster:
    """What all hosts and clients share."""

    def __init__(
        self, scheduler: Scheduler, network: Network, truth: Truth, observer: Observer
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.truth = truth
        self.observer = observer
        self.counts: Counter[str] = Counter()
        self.hosts: dict[str, Host] = {}
        self.traps: dict[str, Callable[[Host], None]] = {}
        """What befalls the next bookie that takes a step of the protocol, once; by the step."""

    def frontend_of(self, bookie: BookieId) -> Frontend | None:
        """The front-end of a bookie, if one listens."""
        host = self.hosts.get(bookie)
        found = host.frontend if host is not None else None
        return found if found is not None and found.listens and not found.process.dead else None

    def uuid(self) -> UUID:
        return UUID(int=self.scheduler.rng.getrandbits(128), version=4)


def _config(plan: HostPlan, root: Path) -> Config:
    """The schema's defaults, but for what the plan says and what would only take time."""
    values: dict[str, Any] = {name: item.metadata["default"] for name, item in SCHEMA.items()}
    values |= {
        "listen": plan.name,
        "advertised_host": plan.name.partition(":")[0],
        "bookie_id": BookieId(plan.name),
        "metadata": "sim:",
        "disks": tuple(root / f"disk{number}" for number in range(plan.disks)),
        "journal": root / "journal" if plan.ack_after == "journal" else None,
        "ack_after": plan.ack_after,
        "auto_fix_cookies": plan.auto_fix_cookies,
        "strict_unclean_shutdown": plan.strict,
        "readonly_while_in_limbo": plan.readonly_in_limbo,
        "segment_bytes_max": plan.segment_bytes,
        "checkpoint_bytes": plan.checkpoint_bytes,
        "restart_backoff_initial_s": 0.5,
        "restart_backoff_max_s": 4.0,
        "repair_retry_initial_s": 1.0,
        "repair_retry_max_s": 8.0,
        "topology_script": None,
        "rack_map": "",
        "run_dir": None,
        "log_level": "warning",
    }
    return Config(**values, path=root / "bookie.toml", provenance={})


class Host:
    """One machine."""

    def __init__(self, cluster: Cluster, plan: HostPlan, machine: Process) -> None:
        self.cluster = cluster
        self.plan = plan
        self.name = plan.name
        root = Path("/", plan.name.partition(":")[0])
        self.config = _config(plan, root)
        paths = [*self.config.disks, *([self.config.journal] if self.config.journal else [])]
        self.disks = [DiskFiles(path) for path in paths]
        self.indexes: dict[Path, SimIndex] = {}
        self.boot = 1
        self.wall_offset_ms = 0
        self.supervisor: SimSupervisor | None = None
        self.frontend: Frontend | None = None
        self.workers: dict[Path, Worker] = {}
        self.is_up = False
        self.wanted = True
        """Whether its operator wants it to run."""
        self.accounted_at = 0.0
        """When the supervisor last accounted for what disks may have lost."""
        self.crash_next_start = 0
        """At which change of its the next supervisor dies."""
        self.ambush = Ambush()
        self.on_start: Callable[[], None] | None = None
        """What comes with the next start, once; ``on_up``: when it has ended well."""
        self.on_up: Callable[[], None] | None = None
        self.processes: list[Process] = []
        self._machine = machine
        self._starting: Any = None

    @property
    def rng(self) -> random.Random:
        return self.cluster.scheduler.rng

    def process(self, role: str) -> Process:
        made = Process(self.cluster.scheduler, f"{self.name} {role}")
        made.reach = Reach(self.name, self.cluster.network, self.cluster.frontend_of)  # type: ignore[attr-defined]
        made.sim_host = self  # type: ignore[attr-defined]
        self.processes = [each for each in self.processes if not each.dead]
        self.processes.append(made)
        made.on_death.append(lambda: self._count_death(made))
        return made

    def files(self, process: Process) -> SimFiles:
        return SimFiles(self.disks, process, self.rng, self.ambush)

    def open_index(self, disk: Path, host_crash: bool, process: Process) -> SimIndex:
        index = self.indexes[disk]
        if host_crash:  # what discard_unsynced does
            index = self.indexes[disk] = index.lose_host(self.rng)
        index.process = process
        return index

    # ---- processes ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the bookie, unless it runs."""
        self._starting = None
        if self.supervisor is not None or not self.wanted:
            return
        told, self.on_start = self.on_start, None
        if told is not None:
            told()
        process = self.process("supervisor")
        process.on_death.append(self._supervisor_died)
        process.run_task(self._live(process))

    async def _live(self, process: Process) -> None:
        """The life of one supervisor; the operator does what its end asks for."""
        files = self.files(process)
        files.crash_at(self.crash_next_start)
        self.crash_next_start = 0
        nursery = SimNursery({"worker": self._make_worker, "frontend": self._make_frontend})
        self.supervisor = supervisor = SimSupervisor(self, files, cast(Nursery, nursery))
        mismatch = False
        try:
            await supervisor.run()
            process.say("has stopped")
        except CookieMismatchError as error:
            process.say("does not start: %s", error)
            mismatch = True
        except BkboxError as error:
            process.say("does not start: %s: %s", type(error).__name__, error)
        if mismatch:
            await self._repair_cookies(process, files)
        process.die("it has ended")

    async def _repair_cookies(self, process: Process, files: SimFiles) -> None:
        """`bkbox cookie repair`."""
        store = View(self.cluster.truth, process)
        try:
            evidence = await cookies.gather(self.config, store, files)
            plan = cookies.plan_of(evidence)
            if plan.refusal is None:
                for step in plan.steps:
                    process.say("cookie repair: %s", step)
                await cookie_repair.carry_out(evidence, store, files)
        except (MetadataError, DiskError) as error:
            process.say("cookie repair: %s", error)

    def _count_death(self, process: Process) -> None:
        """A crash is the death of one process, or of all of them at once."""
        self.cluster.counts["processes that died"] += 1
        if process.why_dead in (KILLED, KILLED_IN_WRITE):
            self.cluster.counts["crashes"] += 1

    def _supervisor_died(self) -> None:
        """Its children die with it; the operator starts it again after a while."""
        self.supervisor = None
        self.is_up = False
        self.kill(_ORPHANS)
        self.start_in(self.plan.again_s * self.rng.uniform(0.2, 1.0))

    def start_in(self, delay: float) -> None:
        if self._starting is None:
            self._starting = self._machine.after(delay, self.start)

    def kill(self, why: str) -> None:
        """SIGKILL to all processes."""
        processes, self.processes = self.processes, []
        if any(not process.dead for process in processes) and why != _ORPHANS:
            self.cluster.counts["crashes"] += 1
        for process in processes:
            process.die(why)
        self.frontend = None
        self.workers = {}

    def lose(self) -> None:
        """The power fails."""
        self.kill("the host is lost")
        self.boot += 1
        for disk in self.disks:
            disk.lose_host(self.rng)
        for path in self.indexes:
            self.indexes[path] = self.indexes[path].lose_host(self.rng)

    def stop(self) -> None:
        """SIGTERM to the supervisor."""
        if self.supervisor is not None:
            self.supervisor._stopping.set()

    async def initialise(self, process: Process) -> None:
        """`bkbox init`."""
        store = View(self.cluster.truth, process)
        files = self.files(process)
        evidence = await cookies.gather(self.config, store, files)
        for item in evidence.directories:
            cookie_repair.prepare(files, evidence, item, self.cluster.uuid())
            stamp(files, item.path, evidence.expected)
        await cookie_repair.write_to_metadata(store, evidence)

    def _make_worker(self, name: str) -> Worker:
        path = Path(name)
        process = self.process(f"worker {path.name}")
        worker = Worker(
            process,
            self.name,
            self.files(process),
            self.open_index,
            self.cluster.observer,
            self.plan.sync_ms,
            self.plan.list_s,
        )
        worker.wall_offset_ms = self.wall_offset_ms

        def release() -> None:  # once the call in which it died has ended
            self._machine.call_soon(worker.release)

        process.on_death.append(release)
        self.workers[path] = worker
        return worker

    def _make_frontend(self, name: str) -> Frontend:
        supervisor = self.supervisor
        assert supervisor is not None
        disks = [disk.uuid for disk in supervisor.disks]
        cluster = self.cluster
        self.frontend = Frontend(
            self.process("front-end"),
            self.name,
            disks,
            cluster.network,
            cluster.observer,
            self._took_step,
        )
        return self.frontend

    def _took_step(self, step: str, ledger: int) -> None:
        traps = self.cluster.traps
        if not traps:
            return
        if step == ADDED_BY_RECOVERY:
            found = self.cluster.truth.newest(ledger)
            if found is not None and self.name not in found.value.bookies():
                step = ADDED_BY_REPLACEMENT
        trap = traps.pop(step, None)
        if trap is not None:
            trap(self)

    # ---- what is known of it ---------------------------------------------------------------------

    def vouches(self, ledger: int, entry: int) -> bool:
        """Whether any worker that runs has an entry, or has its ledger in limbo."""
        for worker in self.workers.values():
            if worker.store is not None and worker.store.has_entry(ledger, entry):
                return True
        for worker in self.workers.values():
            state = None if worker.store is None else worker.store.ledger_state(ledger)
            if state is not None and state.limbo:
                return True
        return False

    def keeps_fence(self, ledger: int) -> bool:
        """Whether any worker that runs has a ledger fenced."""
        states = (
            None if worker.store is None else worker.store.ledger_state(ledger)
            for worker in self.workers.values()
        )
        return any(state is not None and state.fenced for state in states)

    def limbo(self) -> list[int]:
        """Ledgers in limbo on the disks whose workers run."""
        return [
            ledger
            for worker in self.workers.values()
            if worker.store is not None and not worker.process.dead
            for ledger, record in worker.store.ledgers()
            if record.limbo
        ]


class Repair:
    """The repair worker's process."""

    def __init__(self, host: Host) -> None:
        self.process = host.process("repair")
        order = messages.OpenRepair(
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
        )
        self._order = order
        self._cluster = host.cluster
        self._store = View(host.cluster.truth, self.process, is_late=True)
        self._rng = random.Random(host.rng.getrandbits(64))  # noqa: S311 - of a seed
        self._runner: Runner | None = None

    def receive(self, message: Message) -> Message | None:
        if isinstance(message, messages.Stop):
            self.process.after(0.0, self.process.die, "it was told to stop")
        return None

    def serve(self, worker: Worker) -> None:
        self.process.run_task(self._serve(worker))

    async def _serve(self, worker: Worker) -> None:
        if self._runner is None:
            scheduler = self._cluster.scheduler
            environment = Environment(
                me=BookieId(self._order.bookie),
                store=self._store,
                client=Client(self._store, ClientOptions(), self._rng),
                disks={},
                order=self._order,
                rng=self._rng,
                wall_ms=lambda: int(scheduler.now * 1000),
                monotonic_s=lambda: scheduler.now,
            )
            self._runner = Runner(environment, SimWork())
        try:
            await self._runner.serve_disk(cast("AsyncChannel", SimChannel(worker)))
        except BkboxError as error:
            self.process.say("cannot ask a disk for its ledgers in limbo: %s", error)


class SimSupervisor(Supervisor):
    """The real supervisor; what it does with sockets and descriptors is done with objects here."""

    def __init__(self, host: Host, files: SimFiles, nursery: Nursery) -> None:
        super().__init__(host.config, files, nursery, self._ready)
        self._host = host
        rng = random.Random(host.rng.getrandbits(64))  # noqa: S311 - of a seed
        self._keeper = Keeper(
            host.config.restart_backoff_initial_s,
            host.config.restart_backoff_max_s,
            rng,
            self._fail,
        )
        self._run = Run(
            f"boot-{host.name}-{host.boot}", AckAfter(host.plan.ack_after), str(host.cluster.uuid())
        )

    def _ready(self, _listen: str) -> None:
        host = self._host
        host.is_up = True
        told, host.on_up = host.on_up, None
        if told is not None:
            told()
        host.cluster.counts["boots"] += 1

    async def _account_for_losses(self, base: Ground, opened: list[Disk]) -> None:
        host = self._host
        for disk in opened:
            host.cluster.counts[f"disk class: {disk.crash_class.value}"] += 1
            host.cluster.scheduler.say(
                host.name, "%s: %s: %s", disk.path, disk.crash_class.value, disk.reason
            )
        if len(opened) == len(self.disks) and not any(disk.may_have_lost for disk in self.disks):
            host.cluster.observer.vouched(host.name, host.vouches, host.keeps_fence)
        await super()._account_for_losses(base, opened)
        host.accounted_at = host.cluster.scheduler.now

    async def _start_frontend(self, base: Ground) -> None:
        usable = [disk for disk in self.disks if disk.usable]
        begun: Any = self._nursery.take("frontend", self.config.bookie_id)
        self.frontend = cast(Child, SimChild(begun, self.listen))
        for disk in usable:
            self._link(disk)

    def _link(self, disk: Disk) -> None:
        frontend = self._host.frontend
        if self.frontend is None or not self.frontend.running or disk.child is None:
            return
        if frontend is None or frontend.process.dead:
            return
        worker: Worker = cast(Any, disk.child).callee
        lane = frontend.attach(disk.uuid, worker)

        def lost() -> None:
            frontend.process.after(0.005, frontend.lost, lane)

        worker.process.on_death.append(lost)
        worker.process.after(0.0, worker.attach, frontend, lane)
        disk.in_service = True

    async def _run_jobs(self, base: Ground) -> None:
        """Repair is given the disks as they come: see ``Repair``."""

    def _start_repair(self) -> None:
        self.repair = cast(Child, SimChild(Repair(self._host), self.config.bookie_id))
        for disk in self.disks:
            self._link_repair(disk)

    def _link_repair(self, disk: Disk) -> None:
        if self.repair is None or not self.repair.running or disk.child is None or not disk.usable:
            return
        repair: Repair = cast(Any, self.repair).callee
        repair.serve(cast(Any, disk.child).callee)
