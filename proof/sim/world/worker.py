"""The worker process of a simulated disk: the real store, bookie, commit groups and calls, under virtual time.

What commit groups do in the background on threads is, here, a call that is made a little later, and whose end is seen a
little later again: a crash may come between any two of these.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bkbox.base.values import replaced
from bkbox.bookie.bookie import Bookie
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import DiskError, IndexDamagedError
from bkbox.ipc.frame_spans import segments
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.disk import ClearLimbo, DiskFailed, MarkLedgers, OpenDisk
from bkbox.ipc.messages.items import LEDGER_ID_ITEM, LIMBO, MARK_ITEM
from bkbox.ipc.messages.message import Message, Refused
from bkbox.ipc.messages.process import Stop
from bkbox.ipc.messages.space import ChangeLedgers
from bkbox.storage.disk import rebuild
from bkbox.storage.disk.checkpoint import write_checkpoint
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.files import Files
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.ordered_store import OrderedStore
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.control_handlers import opened, stopped
from bkbox.worker.disk_service import DiskService
from bkbox.worker.disk_startup import OpenedDisk, open_once
from bkbox.worker.frontend_link import FrontLink
from bkbox.worker.response_sender import RequestGroup
from bkbox.worker.stages import Stages
from proof.checks.observer import Observer
from proof.sim.world.files import SimFiles
from proof.sim.world.frontend import Frontend, SimLane
from proof.sim.world.index import SimIndex
from proof.sim.world.loop import Process

_SLOT_BYTES = 128 << 10
_TURN_S = 0.0001
_WALL_MS = 1_700_000_000_000
IDLE_S = 3.0
"""Seconds without an append after which a disk counts as idle."""

OpenIndex = Callable[[Path, bool, Process], SimIndex]


class DeferredCall:
    """A background call, as a future that is run when its time has come, or when it is waited for."""

    __slots__ = ("_call", "_done")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._done = False

    def run(self) -> None:
        if not self._done:
            self._call()
            self._done = True

    def done(self) -> bool:
        return self._done

    def result(self) -> None:
        """Errors are raised where the call runs."""


class SimGroups(CommitGroups):
    """The real commit groups, with ``DeferredCall`` instead of threads."""

    def __init__(self, worker: Worker, *of_groups: Any) -> None:
        super().__init__(*of_groups)
        self._worker = worker
        os.close(self._event)

    def _start(self, task: Any, call: Callable[[], None], on_done: Callable[[], None]) -> None:
        if task is self._syncing:
            call = self._started_sync()
        deferred = DeferredCall(call)
        task.on_done = on_done
        task.future = deferred
        self._worker.process.after(self._worker.sync_s(), self._run_deferred, deferred)

    def _started_sync(self) -> Callable[[], None]:
        """Runs one sync, and starts the next one: what happens meanwhile is part of the simulation."""
        sync = self._syncs.start_next()

        def run() -> None:
            if sync is not None:
                self._syncs.run_started(sync)
                self._start(self._syncing, self._syncs.run, lambda: None)

        return run

    def _notify(self) -> None:
        """Nothing: ``_run_deferred`` has the end seen."""

    def _run_deferred(self, deferred: DeferredCall) -> None:
        deferred.run()
        self._worker.process.after(self._worker.sync_s() / 8, self._collect_deferred)

    def _collect_deferred(self) -> None:
        self._collect_done()
        self._go_on()
        self._worker.flush()


class NoStages(Stages):
    """Records no stages: they are not read here."""

    def record(self, group: object, work: object, durable_us: int) -> None:
        """Nothing."""

    def record_reads(self, group: object, reads: int) -> None:
        """Nothing."""

    def operations(self) -> dict[str, dict[str, int]]:
        return {}

    def values(self) -> dict[str, dict[str, int]]:
        return {}


_ALL = range(1 << 32)
"""Every connection: a simulated bookie has one front-end."""

_NO_STAGES = NoStages(0, lambda: 0)


class SimFrontLink:
    """The worker's end of the link to one front-end."""

    def __init__(self, frontend: Frontend, lane: SimLane) -> None:
        self.frontend = frontend
        self.lane = lane
        self.inbox: list[tuple[int, bytes]] = []
        self._number = 0
        self.has_batches = False
        self._slot = memoryview(bytearray(_SLOT_BYTES))
        self._full: list[bytes] = []
        self._writer = ResponseWriter(self._more)

    def _more(self, used: int) -> memoryview:
        if used:
            self._full.append(bytes(self._slot[:used]))
        return self._slot

    def pop_group(self) -> RequestGroup | None:
        if self.frontend.process.dead:
            raise EOFError
        if not self.inbox:
            return None
        inbox, self.inbox = self.inbox, []
        self._number += 1
        area = memoryview(b"".join([frame for _, frame in inbox]))
        group = RequestGroup(self._number, 0, area)
        start = 0
        located = group.segments
        for number, frame in inbox:
            end = start + len(frame)
            located.append((number, 1, start, end))
            start = end
        return group

    def responses(self, group: RequestGroup) -> ResponseWriter:
        return self._writer

    def done(self, group: RequestGroup, *, read_only: bool) -> None:
        self.lane.writable = not read_only
        self.flush()

    def poll_responses(self) -> ResponseWriter:
        return self._writer

    def flush(self) -> None:
        """Hands over the responses that are ready."""
        used = self._writer.finish()
        if used:
            self._full.append(bytes(self._slot[:used]))
        if self._full:
            full, self._full = self._full, []
            for slot in full:
                for number, _count, frames in segments(memoryview(slot), len(slot)):
                    self.frontend.on_response(self.lane, number, bytes(frames))


class Worker:
    """One disk's process. ``sync_ms``: minimum duration of a sync, and the mean of the addition;
    ``list_s``: mean time in which it lists its ledgers."""

    def __init__(
        self,
        process: Process,
        bookie: str,
        files: SimFiles,
        open_index: OpenIndex,
        observer: Observer,
        sync_ms: tuple[float, float],
        list_s: float,
        put_index: Callable[[Path, SimIndex], None],
    ) -> None:
        self.process = process
        self.bookie_id = bookie
        self.files = files
        self.sync_ms = sync_ms
        self.list_s = list_s
        self.slowness = 1
        self.store: DiskStore | None = None
        self.front: SimFrontLink | None = None
        self.wall_offset_ms = 0
        self._rng: random.Random = process.scheduler.rng
        self._open_index = open_index
        self._put_index = put_index
        self._observer = observer
        self._service: DiskService | None = None
        self._handlers = Handlers()
        self._handlers.on(OpenDisk, self._open)
        self._handlers.on(Stop, self._stop)
        self._observed: dict[type[Message], Callable[[Any, Bookie], Callable[[], None]]] = {
            MarkLedgers: self._observe_marks,
            ClearLimbo: self._observe_clear,
            ChangeLedgers: self._observe_change,
        }
        """Called before a message of these types is handled; the result, which tells the observer, once it was."""
        self._awake = False
        self._poll_timer: Any = None
        self._idle_timer: Any = None
        self.opened_at = 0.0
        """When it had replayed its log."""
        self._reported_failure = False

    def release(self) -> None:
        """Frees the memory of a dead process."""
        self.store = self.front = self._service = None
        self._handlers = Handlers()

    def sync_s(self) -> float:
        least, mean = self.sync_ms
        return (least + self._rng.expovariate(1.0) * mean) * self.slowness / 1000

    def _ticks_us(self) -> int:
        return int(self.process.scheduler.now * 1e6)

    def _wall(self) -> int:
        return _WALL_MS + self.wall_offset_ms + int(self.process.scheduler.now * 1e3)

    # ---- the supervisor and repair --------------------------------------------------------------

    def receive(self, message: Message) -> Message | None:
        observe = self._observed.get(type(message))
        report: Callable[[], None] | None = None
        if observe is not None and self._service is not None:
            report = observe(message, self._service.bookie)
        try:
            reply = self._handlers.handle(message)
            if report is not None and not isinstance(reply, Refused):
                report()
            return reply
        finally:
            self.flush()

    def _observe_marks(self, call: MarkLedgers, _bookie: Bookie) -> Callable[[], None]:
        def done() -> None:
            for ledger, flags, _has_key, _key in MARK_ITEM.iter_unpack(call.payload):
                if flags & LIMBO:
                    self._observer.entered_limbo(self.bookie_id, ledger)

        return done

    def _observe_clear(self, call: ClearLimbo, bookie: Bookie) -> Callable[[], None]:
        ledger = call.ledger
        before = bookie.ledgers.record(ledger)

        def done() -> None:
            if before is None or not before.limbo:
                return
            self.process.note("ledger %d leaves limbo", ledger)
            with self.files.reads_succeed():
                self._observer.left_limbo(
                    self.bookie_id, ledger, lambda entry: self._is_readable(ledger, entry)
                )

        return done

    def _observe_change(self, call: ChangeLedgers, bookie: Bookie) -> Callable[[], None]:
        before = self._emptied(call, bookie)

        def done() -> None:
            for ledger in sorted(self._emptied(call, bookie) - before):
                self.process.note("ledger %d is emptied", ledger)
                self._observer.emptied(self.bookie_id, ledger)

        return done

    def _emptied(self, call: ChangeLedgers, bookie: Bookie) -> set[int]:
        """The ledgers of the call of which nothing is left."""
        ledgers = [ledger for (ledger,) in LEDGER_ID_ITEM.iter_unpack(call.payload)]
        records = ((ledger, bookie.ledgers.record(ledger)) for ledger in ledgers)
        return {ledger for ledger, record in records if record is not None and record.emptied}

    def _is_readable(self, ledger: int, entry: int) -> bool:
        assert self.store is not None
        try:
            return self.store.read_entry(ledger, entry) is not None
        except DiskError:
            return False

    @property
    def has_reported_failure(self) -> bool:
        """True if its supervisor knows that the disk failed."""
        return self._reported_failure

    def is_idle(self, now: float) -> bool:
        """True if nothing has kept it for a while from bringing its disk into a state that proves itself."""
        store = self.store
        return (
            store is not None
            and not self.process.dead
            and store.health.failed_reason is None
            and not store.blocks_checkpoints
            and self.slowness == 1
            and now - self.opened_at > IDLE_S
        )

    def _open(self, order: OpenDisk) -> Message:
        rebuilt = ""
        try:
            disk = self._open_once(order)
        except IndexDamagedError as error:
            rebuilt = str(error)
            self.process.note("the index of %s is made anew: %s", order.path, error)
            self._rebuild(Path(order.path))
            disk = self._open_once(order)
        store, bookie, report = disk.store, disk.bookie, disk.report
        self.process.note("replayed %s: %s", order.path, report)
        self.opened_at = self.process.scheduler.now
        self.store = store
        self._service = DiskService(
            self.files,
            Path(order.path),
            store,
            bookie,
            SimGroups(self, store, bookie, _NO_STAGES, self._ticks_us, self._detach),
            _NO_STAGES,
            self._ticks_us,
            lambda: bookie.watch_space(1.0, 0),
        )
        self._service.register(self._handlers)
        bookie.watch_space(1.0, 0)
        return opened(store, report, rebuilt)

    def _rebuild(self, disk: Path) -> None:
        """Does what rebuild_index does, into an index in memory."""
        checkpoint = rebuild._checkpoint_of(self.files, disk)
        fresh = SimIndex()
        fresh.process = self.process
        made = rebuild._Rebuild(
            self.files, disk, LedgerIndex(fresh), checkpoint, lambda _done, _total: None
        ).run()
        if made.unreadable and checkpoint is not None:
            write_checkpoint(self.files, disk, replaced(checkpoint, held=True))
        self._put_index(disk, fresh)

    def _open_once(self, order: OpenDisk) -> OpenedDisk:
        def open_index(_files: Files, disk: Path, host_crash: bool) -> OrderedStore:
            return self._open_index(disk, host_crash, self.process)

        return open_once(self.files, order, self._wall, self._ticks_us, open_index)

    def _stop(self, _order: Stop) -> Message:
        self.process.after(0.0, self.process.die, "it was told to stop")
        return stopped(self.store, None if self._service is None else self._service.groups)

    # ---- the front-end --------------------------------------------------------------------------

    def attach(self, frontend: Frontend, lane: SimLane) -> None:
        """Serves a front-end; sends the list of ledgers first."""
        service = self._service
        assert service is not None
        self._detach(None)
        service.groups.drain()
        self.front = SimFrontLink(frontend, lane)
        ledgers = [ledger for ledger, _record in service.migrations.assigned_ledgers()]
        listed_s = _TURN_S + self.list_s * self._rng.expovariate(1.0)
        frontend.process.after(listed_s, frontend.listed, lane, ledgers)
        service.groups.attach(cast(FrontLink, self.front))

    def _detach(self, _front: object) -> None:
        front, self.front = self.front, None
        if self._service is not None and front is not None:
            self._service.groups.detach(cast(FrontLink, front))
            self._service.bookie.forget_connections(_ALL)

    def enqueue(self, number: int, frame: bytes) -> None:
        """Takes a request from the front-end; ``wake`` follows."""
        if self.front is not None and not self.process.dead:
            self.front.inbox.append((number, frame))

    def wake(self) -> None:
        if not self._awake:
            self._awake = True
            self.process.after(_TURN_S, self._turn)

    def _plan_idle_step(self) -> None:
        service = self._service
        if service is None or self._idle_timer is not None or self.process.dead:
            return
        wait_us = service.groups.idle_wait_us
        if wait_us is not None:
            self._idle_timer = self.process.after(wait_us / 1e6 + 0.001, self._run_idle_step)

    def _run_idle_step(self) -> None:
        self._idle_timer = None
        if self._service is not None:
            if self._service.groups.idle_wait_us == 0:
                self._service.groups.on_idle()
            self.flush()

    def _turn(self) -> None:
        self._awake = False
        if self._service is not None:
            self._service.groups.receive()
            self.flush()

    def flush(self) -> None:
        """Sends all responses that are ready; reports trouble once."""
        self._plan_idle_step()
        self._tell_trouble()
        front, service = self.front, self._service
        if front is None or service is None or self.process.dead:
            return
        bookie = service.bookie
        if bookie.has_polls:
            for connection, frames in bookie.pop_ready_polls():
                for frame in frames:
                    front.poll_responses().put(connection, frame, 1)
            if self._poll_timer is not None:
                self._poll_timer.cancel()
            wait_ms = bookie.polls_wait_ms
            if wait_ms is not None:
                self._poll_timer = self.process.after(wait_ms / 1000 + 0.001, self.flush)
        front.flush()

    def _tell_trouble(self) -> None:
        store = self.store
        if (
            store is None
            or store.health.failed_reason is None
            or self._reported_failure
            or self.process.dead
        ):
            return
        self._reported_failure = True
        self.process.note("the disk failed: %s", store.health.failed_reason)
        tell = getattr(self.process, "tell", None)
        if tell is not None:
            tell(DiskFailed(reason=store.health.failed_reason))
