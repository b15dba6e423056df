"""A host of the simulated cluster: disks, and the bookie that runs on it, started by the real supervisor.

``Host`` outlives its processes, as a machine does: it has the disks, the kernel's boot id, and an operator, who
restarts the bookie and repairs cookies where the supervisor asks for it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from bkbox.base.ids import BookieId
from bkbox.errors import BkboxError, CookieMismatchError, DiskError, MetadataError
from bkbox.storage.disk.disk import DiskStore
from bkbox.supervisor.boot import cookie_repair, cookies
from bkbox.supervisor.children.child_pool import ChildPool
from bkbox.supervisor.disks.disk_inspection import stamp
from bkbox.supervisor.supervisor import Supervisor
from proof.checks.observer import Observer
from proof.sim.world.background_jobs import BackgroundJobs
from proof.sim.world.child import SimChildPool
from proof.sim.world.disk import Disk as DiskFiles
from proof.sim.world.files import KILLED_IN_WRITE, FaultTrigger, SimFiles
from proof.sim.world.frontend import (
    ADDED,
    ADDED_BY_RECOVERY,
    DENIED,
    FENCED,
    READ_BY_RECOVERY,
    Frontend,
)
from proof.sim.world.host_plan import HostPlan, config_of
from proof.sim.world.index import SimIndex
from proof.sim.world.link import Reachability
from proof.sim.world.loop import Process, Scheduler
from proof.sim.world.metadata import StaleView, StoreState
from proof.sim.world.network import Network
from proof.sim.world.worker import Worker

ADDED_BY_REPLACEMENT = "an add of a recovery, to a bookie that metadata does not name yet"

STEPS = (ADDED, ADDED_BY_RECOVERY, ADDED_BY_REPLACEMENT, FENCED, READ_BY_RECOVERY, DENIED)
"""Steps of the protocol at which faults may be triggered."""

COPIED = "a copy of a closed ledger that metadata does not name yet"

KILLED = "it was killed"
_ORPHANS = "their supervisor is gone"


class Cluster:
    """The state that all hosts and clients share."""

    def __init__(
        self, scheduler: Scheduler, network: Network, truth: StoreState, observer: Observer
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.truth = truth
        self.observer = observer
        self.counts: Counter[str] = Counter()
        self.hosts: dict[str, Host] = {}
        self.background_jobs: BackgroundJobs | None = None
        """Parameters of audit, re-replication and collection by repair processes; None: they do none of these."""
        self.traps: dict[str, Callable[[Host], None]] = {}
        """By step of the protocol, the fault for the next bookie that takes it; used once."""
        self.copying: Counter[str] = Counter()
        """Bookies to which closed ledgers are copied, and which metadata will name next."""

    def frontend_of(self, bookie: BookieId) -> Frontend | None:
        """The front-end of a bookie, if one listens."""
        host = self.hosts.get(bookie)
        found = host.frontend if host is not None else None
        return found if found is not None and found.listens and not found.process.dead else None

    def uuid(self) -> UUID:
        return UUID(int=self.scheduler.rng.getrandbits(128), version=4)


class Host:
    """One machine."""

    def __init__(
        self,
        cluster: Cluster,
        plan: HostPlan,
        machine: Process,
        make_supervisor: Callable[[Host, SimFiles, ChildPool], Supervisor],
    ) -> None:
        self.cluster = cluster
        self.plan = plan
        self.name = plan.name
        root = Path("/", plan.name.partition(":")[0])
        self.config = config_of(plan, root)
        paths = [*self.config.disks, *([self.config.journal] if self.config.journal else [])]
        self.disks = [DiskFiles(path) for path in paths]
        self.memory = DiskFiles(root / "run")
        """The run directory, in memory: gone with the host."""
        self.indexes: dict[Path, SimIndex] = {}
        self.boot = 1
        self.wall_offset_ms = 0
        self.supervisor: Supervisor | None = None
        self.frontend: Frontend | None = None
        self.workers: dict[Path, Worker] = {}
        self.is_up = False
        self.should_run = True
        """True if its operator wants it to run."""
        self.accounted_at = 0.0
        """When the supervisor last accounted for possible losses of disks."""
        self.crash_next_start = 0
        """The change of files at which the next supervisor dies."""
        self.ambush = FaultTrigger()
        self.on_start: Callable[[], None] | None = None
        """Called at the next start, once; ``on_loss``: when it finds that something may be lost; ``on_up``: when it has
        succeeded."""
        self.on_loss: Callable[[], None] | None = None
        self.on_up: Callable[[], None] | None = None
        self.on_down: Callable[[], None] | None = None
        """Called once the bookie is down, once."""
        self.stopped_cleanly = False
        """True if the last supervisor stopped in order, and left all disks clean."""
        self.must_be_clean = False
        """True if the next start must not find a loss."""
        self.processes: list[Process] = []
        self._machine = machine
        self._make_supervisor = make_supervisor
        self._starting: Any = None

    @property
    def data_disks(self) -> list[DiskFiles]:
        """Its disks without the journal."""
        return self.disks[: len(self.config.disks)]

    @property
    def rng(self) -> random.Random:
        return self.cluster.scheduler.rng

    def process(self, role: str) -> Process:
        made = Process(self.cluster.scheduler, f"{self.name} {role}")
        made.reach = Reachability(self.name, self.cluster.network, self.cluster.frontend_of)  # type: ignore[attr-defined]
        made.sim_host = self  # type: ignore[attr-defined]
        self.processes = [each for each in self.processes if not each.dead]
        self.processes.append(made)
        made.on_death.append(lambda: self._count_death(made))
        return made

    def files(self, process: Process) -> SimFiles:
        return SimFiles([*self.disks, self.memory], process, self.rng, self.ambush)

    def mount_identity(self, folder: Path) -> str:
        """The identity of the file system on which a disk is mounted."""
        disk = next(each for each in self.disks if each.root == folder)
        return f"mount-{disk.mounts}"

    def open_index(self, disk: Path, host_crash: bool, process: Process) -> SimIndex:
        index = self.indexes[disk]
        if host_crash:  # as discard_unsynced does
            index = self.indexes[disk] = index.lose_host(self.rng)
        index.process = process
        return index

    # ---- processes ------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the bookie, unless it runs."""
        self._starting = None
        if self.supervisor is not None or not self.should_run:
            return
        callback, self.on_start = self.on_start, None
        if callback is not None:
            callback()
        self.stopped_cleanly = False
        process = self.process("supervisor")
        process.on_death.append(self._supervisor_died)
        process.run_task(self._live(process))

    async def _live(self, process: Process) -> None:
        """Runs one supervisor; afterwards the operator does what its exit requires."""
        files = self.files(process)
        files.crash_at(self.crash_next_start)
        self.crash_next_start = 0
        child_pool = SimChildPool({"worker": self._make_worker, "frontend": self._make_frontend})
        self.supervisor = supervisor = self._make_supervisor(
            self, files, cast(ChildPool, child_pool)
        )
        mismatch = False
        try:
            self.stopped_cleanly = await supervisor.run() == 0
            process.note("has stopped")
        except CookieMismatchError as error:
            process.note("does not start: %s", error)
            mismatch = True
        except BkboxError as error:
            process.note("does not start: %s: %s", type(error).__name__, error)
        if mismatch:
            await self._repair_cookies(process, files)
        process.die("it has ended")

    async def _repair_cookies(self, process: Process, files: SimFiles) -> None:
        """Does what `bkbox cookie repair` does."""
        store = StaleView(self.cluster.truth, process)
        try:
            evidence = await cookies.gather(self.config, store, files)
            plan = cookies.plan_of(evidence)
            if plan.refusal is None:
                for step in plan.steps:
                    process.note("cookie repair: %s", step)
                await cookie_repair.execute(evidence, store, files)
        except (MetadataError, DiskError) as error:
            process.note("cookie repair: %s", error)

    def _count_death(self, process: Process) -> None:
        """Counts a crash: the death of one process, or of all of them at once."""
        self.cluster.counts["processes that died"] += 1
        if process.why_dead in (KILLED, KILLED_IN_WRITE):
            self.cluster.counts["crashes"] += 1

    def _supervisor_died(self) -> None:
        """Its children die with it; the operator restarts it after a while."""
        self.supervisor = None
        self.is_up = False
        self.kill(_ORPHANS)
        callback, self.on_down = self.on_down, None
        if callback is not None:
            callback()
        self.start_in(self.plan.again_s * self.rng.uniform(0.2, 1.0))

    def start_in(self, delay: float) -> None:
        if self._starting is None:
            self._starting = self._machine.after(delay, self.start)

    def kill(self, why: str) -> None:
        """Sends SIGKILL to all processes."""
        if why != _ORPHANS:
            self.must_be_clean = False
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
        bare = self.plan.bare > 0.0 and self.rng.random() < self.plan.bare
        for disk in self.disks:
            disk.lose_host(self.rng, bare=bare)
        self.memory.empty()
        for path in self.indexes:
            self.indexes[path] = self.indexes[path].lose_host(self.rng, bare=bare)

    def remount(self, disk: DiskFiles) -> None:
        """The device of a disk was away and is back, with its content; no process runs."""
        bare = self.plan.bare > 0.0 and self.rng.random() < self.plan.bare
        disk.remount(self.rng, bare=bare)
        if disk.root in self.indexes:
            self.indexes[disk.root] = self.indexes[disk.root].lose_host(self.rng, bare=bare)

    def when_down(self, call: Callable[[], None]) -> None:
        """Calls as soon as no supervisor runs."""
        if self.supervisor is None:
            call()
        else:
            self.on_down = call

    def stop(self) -> None:
        """Sends SIGTERM to the supervisor."""
        if self.supervisor is not None:
            self.supervisor._stopping.set()

    async def initialise(self, process: Process) -> None:
        """Does what `bkbox init` does."""
        store = StaleView(self.cluster.truth, process)
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
            self.indexes.__setitem__,
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

    # ---- inspection -------------------------------------------------------------------------------

    def vouches(self, ledger: int) -> set[int] | None:
        """The entries of a ledger on any running worker; None if one has the ledger in limbo."""
        entries: set[int] = set()
        for worker in self.workers.values():
            if worker.store is None:
                continue
            state = worker.store.ledger_state(ledger)
            if state is not None and state.limbo:
                return None
            for first, last in worker.store.entries(ledger):
                entries.update(range(first, last + 1))
        return entries

    def keeps_fence(self, ledger: int) -> bool:
        """True if any running worker has the ledger fenced."""
        states = (
            None if worker.store is None else worker.store.ledger_state(ledger)
            for worker in self.workers.values()
        )
        return any(state is not None and state.fenced for state in states)

    def limbo(self) -> list[int]:
        """Ledgers in limbo on the disks of running workers, except copies that wait to be named or collected."""
        return [
            ledger
            for worker in self.workers.values()
            if worker.store is not None and not worker.process.dead
            for ledger, record in worker.store.ledgers()
            if record.limbo and not self._is_unnamed_copy(worker.store, ledger)
        ]

    def _is_unnamed_copy(self, store: DiskStore, ledger: int) -> bool:
        """True if the metadata do not name this bookie, which has a copy: in limbo until they do, or until the copy
        is collected."""
        found = self.cluster.truth.newest(ledger)
        if found is None or self.name in found.value.bookies():
            return False
        return any(True for _run in store.entries(ledger))
