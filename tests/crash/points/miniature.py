"""A bookie in one process, for crashes at every call: the real disks, the real bookie, the real steps of a start and a
stop (supervisor.py, opening.py, worker/loop.py), without sockets and children.

All it says about what it does goes to ``note`` (promises.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.bookie.bookie import Bookie, CommitGroup
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.ipc.channel import raise_refusal
from bkbox.ipc.frame_spans import segments as parts_of
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.disk import ClearLimbo, MarkLedgers, OpenDisk
from bkbox.ipc.messages.items import FENCED, LIMBO, MARK_ITEM
from bkbox.ipc.messages.message import Message, Refused
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned
from bkbox.protocol import boot
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.dirty_marker import Incarnation
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.disk.identity import DiskIdentity, read_identity
from bkbox.storage.disk.lock import DiskLock
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import AckAfter, LedgerRecord
from bkbox.supervisor.boot import open_disk, phase_one
from bkbox.supervisor.boot.witnessing import (
    DiskWitnesses,
    checkpoint_number,
    read_record,
    read_witness,
)
from bkbox.supervisor.disks import witness
from bkbox.supervisor.disks.disks import Disk
from bkbox.wire.frames import bodies
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.control_handlers import ControlHandlers
from bkbox.worker.disk_startup import Opening
from bkbox.worker.stages import Stages
from tests.bookie.bench import add3, simple3, write_lac3
from tests.crash.points.promises import Note, payload
from tests.harness import raw, raw3
from tests.storage.maintenance.compacting import compact, sealed

BOOKIE = BookieId("127.0.0.1:3181")
LEDGERS = range(1, 10)
"""Those that the metadata store knows at first: open, with this bookie in the ensemble."""

BOOT = "the boot before the crash"

KEY = raw.master_key()
_FILES = RealFiles()
_SLOT_BYTES = 1 << 16


class _NoGroups:
    """Requests are carried out one after the other here: none is ever in flight."""

    def receive(self) -> None:
        """Nothing."""

    def drain(self) -> None:
        """Nothing."""


_NO_GROUPS = cast(CommitGroups, _NoGroups())


class KnownMetadata:
    """The part of a metadata store that phase one and the witnesses look at; it is on another host."""

    def __init__(self, note: Note) -> None:
        self.ledgers: Sequence[int] = ()
        self._note = note
        self._record: Versioned[bytes] | None = None

    def recall(self, record: str) -> None:
        """The record of the disks, as an earlier one has noted it; empty: there is none."""
        self._record = Versioned(record.encode(), 0) if record else None

    async def read_disk_record(self, _bookie: BookieId) -> Versioned[bytes] | None:
        return self._record

    async def write_disk_record(
        self, _bookie: BookieId, record: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        assert expected_version == (None if self._record is None else self._record.version)
        self._record = Versioned(record, (expected_version or 0) + 1)
        self._note("ack", "record", record.decode())
        return self._record

    async def underreplicated(self) -> frozenset[LedgerId]:
        return frozenset()

    async def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        yield [LedgerId(ledger) for ledger in self.ledgers]

    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        fragments = (Fragment(EntryId(0), (BOOKIE,)),)
        state = LedgerState.OPEN
        return Versioned(LedgerMetadata(ledger, 1, 1, 1, state, fragments, password=b""), 0)


@dataclass(slots=True)
class LocalDisk(Disk):
    """A disk whose worker is in this process."""

    store: DiskStore | None = None
    bookie: Bookie | None = None
    handlers: Handlers | None = None
    rebuilt: str = ""

    async def call(
        self, message: Message, timeout_s: float | None = None, fds: Sequence[int] = ()
    ) -> Message:
        return self.handle(message)

    def handle(self, message: Message) -> Message:
        """What the worker does with a call; raises what it refuses."""
        assert self.handlers is not None
        message.call = 1
        reply = self.handlers.handle(message)
        assert reply is not None
        if isinstance(reply, Refused):
            raise_refusal(reply)
        return reply


@dataclass(slots=True)
class Miniature:
    """See above. ``disks`` and ``journal`` lie in the watched folder."""

    disks: list[Path]
    journal: Path | None
    mode: AckAfter
    note: Note
    segment_bytes_max: int = 1 << 16
    checkpoint_bytes: int = 1 << 20
    ledgers: Sequence[int] = LEDGERS
    boot_id: str = BOOT
    witnessed: bool = True
    """Whether the disks, and the metadata store, witness what became of them."""
    fault: str = ""
    """One that the checks have to notice: ``ack``: what it is asked for is acknowledged before it is done; ``clean``: a
    stop clears the markers first."""
    opened: list[LocalDisk] = field(default_factory=list)
    classes: list[boot.Verdict] = field(default_factory=list)
    metadata: KnownMetadata = field(init=False)
    _run: Incarnation = field(default_factory=lambda: Incarnation("", AckAfter.SYNC, ""))
    _witnessing: DiskWitnesses = field(init=False)
    _ticks: int = 0

    def __post_init__(self) -> None:
        self.metadata = KnownMetadata(self.note)
        self._witnessing = DiskWitnesses(_FILES, BOOKIE, None)

    # ---- start and stop --------------------------------------------------------------------------

    def init(self) -> None:
        """Prepare what is not prepared."""
        self.note("try", "init")
        for number, disk in enumerate(self.disks):
            _FILES.mkdir(disk)
            if read_identity(_FILES, disk) is None:
                format_disk(
                    _FILES, disk, DiskIdentity(UUID(int=number + 1), str(BOOKIE), "cluster")
                )
        if self.journal is not None:
            _FILES.mkdir(self.journal)
            _FILES.fsync_dir(self.journal.parent)
        self.note("ack", "init")

    def start(self, run_id: str, boot_id: str = "") -> None:
        """Boot. Raises what a boot raises."""
        boot_id = boot_id or self.boot_id
        self._run = Incarnation(
            boot_id, self.mode, run_id, f"mounted in {boot_id}", marks_active=True
        )
        self.note("try", "begin")
        self.opened, self.classes = [], []
        for number, path in enumerate(self.disks):
            identity = read_identity(_FILES, path)
            disk = LocalDisk(number, path, str(identity and identity.uuid), DiskLock(path))
            self.opened.append(disk)
        self._witnessing = DiskWitnesses(_FILES, BOOKIE, None)
        if self.witnessed:
            self._compare_witnesses()
            asyncio.run(self._witnessing.begin(self._store, self.opened))
        for disk in self.opened:
            disk.before = markers.begin_run(_FILES, disk.path, self._run)
            disk.run = self._run
            if self.witnessed:
                self._witnessing.join(disk)
        self.note("ack", "begin")
        for disk in self.opened:
            self._open(disk)
        if self.may_have_lost:
            self._mark_losses()
        for disk in self.opened:
            assert disk.store is not None
            disk.store.resolve_losses()
            markers.commit(_FILES, disk.path, self._run, disk.before)
            disk.recovered = True
        if self.witnessed:
            self._look_at_disks()
            asyncio.run(self._witnessing.commit(self._store, self.opened))
        if self.may_have_lost:
            self._acknowledge(
                [("limbo", ledger) for ledger in self.ledgers if self.record(ledger).limbo]
            )

    def _open(self, disk: LocalDisk) -> None:
        run = self._run
        host_crash = disk.before is not None and disk.before.is_host_crash(run.boot_id, run.mount)
        order = OpenDisk(
            path=str(disk.path),
            journal=str(self.journal or ""),
            ack_after=self.mode.value,
            host_crash=host_crash,
            is_clean=disk.before is None,
            generation=self._witnessing.generation,
            seen=self._witnessing.seen(disk),
            segment_bytes_max=self.segment_bytes_max,
            checkpoint_bytes=self.checkpoint_bytes,
            slow_operation_ms=1_000,
            disk_usage_max=1.0,
            disk_reserve_bytes=0,
        )
        found = Opening(_FILES, order, self._wall_ms, self._ticks_us).run(lambda _done, _all: None)
        store = disk.store = found.store
        report = found.report
        disk.rebuilt = found.rebuilt
        evidence = boot.DiskEvidence(
            marker=open_disk._marker_evidence(disk.before),
            boot_id=run.boot_id,
            strict=False,
            tail_trusted=report.trusted,
            damaged=report.damaged,
            mount=run.mount,
            intact=report.intact,
        )
        verdict = boot.classify(evidence)
        self.classes.append(verdict)
        disk.may_have_lost, disk.only_active = verdict.may_have_lost, verdict.only_active
        disk.bookie = found.bookie
        disk.handlers = Handlers()
        stages = Stages(1 << 40, self._ticks_us)
        ControlHandlers(
            store, disk.bookie, _NO_GROUPS, stages, lambda: None, store.ledgers
        ).register(disk.handlers)

    def _mark_losses(self) -> None:
        for ledger in self.ledgers:
            self.note("try", "limbo", ledger)
        asyncio.run(phase_one.run(self._store, BOOKIE, self.opened))

    @property
    def _store(self) -> MetadataStore:
        self.metadata.ledgers = self.ledgers
        return cast(MetadataStore, self.metadata)

    def _compare_witnesses(self) -> None:
        """As a start does, before it changes anything: nothing here is ever put back in time."""
        record, _version = asyncio.run(read_record(self._store, BOOKIE))
        found = {disk.uuid: read_witness(_FILES, disk.path) for disk in self.opened}
        behind = [witness.store_rollback(record, found)]
        for disk in self.opened:
            number = checkpoint_number(_FILES, disk.path)
            behind.append(witness.disk_rollback(record, disk.uuid, found[disk.uuid], number))
        assert not any(behind), f"taken for something from the past: {behind}"

    def _look_at_disks(self) -> None:
        for disk in self.opened:
            assert disk.store is not None
            disk.stats = {"durable": disk.store.durable}

    def _note_disks(self) -> None:
        """As the supervisor does every few seconds."""
        if self.witnessed:
            self._look_at_disks()
            asyncio.run(self._witnessing.note(self._store, self.opened))

    @property
    def may_have_lost(self) -> bool:
        return any(disk.may_have_lost for disk in self.opened)

    def stop(self) -> None:
        """In order."""
        self.note("try", "stop")
        for step in (
            (self._clear, self._close) if self.fault == "clean" else (self._close, self._clear)
        ):
            for disk in self.opened:
                step(disk)
            if self.witnessed and step == self._close:
                asyncio.run(self._witnessing.note(self._store, self.opened))
        self.abandon()
        self.note("ack", "stop")

    def _close(self, disk: LocalDisk) -> None:
        assert disk.store is not None
        assert disk.bookie is not None
        if disk.bookie.has_active and not disk.store.blocks_checkpoints:
            self._unmark(disk.bookie)
        disk.store.close()
        disk.stats = {"durable": disk.store.durable}

    def _clear(self, disk: LocalDisk) -> None:
        assert markers.clear(_FILES, disk.path, self._run), f"{disk.path} was not left clean"

    def abandon(self) -> None:
        """As a killed process leaves it."""
        for disk in self.opened:
            if disk.store is not None:
                disk.store.abandon()
            disk.lock.release()
        self.opened = []

    # ---- requests --------------------------------------------------------------------------------

    def add(self, ledger: int, *entries: int) -> None:
        """One group."""
        self.do(
            [("add", ledger, entry) for entry in entries],
            *[raw.add_frame(ledger, entry, payload(ledger, entry)) for entry in entries],
        )

    def defer(self, ledger: int, *entries: int) -> None:
        frames = [add3(ledger, e, payload(ledger, e), deferred=True) for e in entries]
        self.do([("defer", ledger, entry) for entry in entries], *frames)

    def force(self, ledger: int) -> None:
        self.do([("force",)], simple3(raw3.FORCE, ledger))

    def fence(self, ledger: int) -> None:
        self.do([("fence", ledger)], raw.read_frame(ledger, -1, raw.FENCE))

    def write_lac(self, ledger: int, lac: int) -> None:
        self.do([("lac", ledger, lac)], write_lac3(ledger, lac))

    def do(self, what: list[tuple[Any, ...]], *frames: bytes) -> None:
        """One group of requests about the ledgers of one disk, which must all succeed."""
        disk = self.disk_of(what[0][1] if len(what[0]) > 1 else 1)
        for words in what:
            self.note("try", *words)
        if self.fault == "ack":
            self._acknowledge(what)
        work = self._begin(disk, frames)
        if work.waits:
            assert disk.store is not None
            disk.store.sync()
        codes = [code_of(body) for body in self._end(disk, work)]
        assert set(codes) <= {raw.EOK, raw.ENOENTRY}, codes
        self._acknowledge(what)
        self._look_after(disk)

    def add_overlapping(self, ledger: int, first: int, second: int, third: int) -> None:
        """Three groups: two are written while the sync of the first is under way, and the next sync, which is begun for
        the second, is extended to the third."""
        disk = self.disk_of(ledger)
        store = disk.store
        assert store is not None
        for entry in (first, second, third):
            self.note("try", "add", ledger, entry)

        def written(entry: int) -> CommitGroup:
            return self._begin(disk, [raw.add_frame(ledger, entry, payload(ledger, entry))])

        def ended(entry: int, work: CommitGroup) -> None:
            self._end(disk, work)
            self._acknowledge([("add", ledger, entry)])

        one = written(first)
        sync = store.begin_sync()
        two = written(second)
        following = store.begin_sync()
        three = written(third)
        store.extend_sync(following)
        sync.run()
        store.end_sync(sync)
        ended(first, one)
        following.run()
        store.end_sync(following)
        ended(second, two)
        ended(third, three)

    def rest(self) -> None:
        """As a worker does that is not asked for anything for a while (worker/commit_groups.py)."""
        self.note("try", "rest")
        for disk in self.opened:
            store, bookie = disk.store, disk.bookie
            assert store is not None
            assert bookie is not None
            if bookie.has_active:
                self._unmark(bookie)
            if not store.is_durable:
                store.sync()
            if not store.is_proven:
                store.prove()
                store.sync()
            mark = store.tail_marks.due
            if mark is not None:
                store.tail_marks.end(store.tail_marks.write(mark))
        self.note("ack", "rest")
        self._note_disks()

    def _unmark(self, bookie: Bookie) -> None:
        bookie.begin_unmark(everything=True)
        bookie.store.sync()
        bookie.unmark()

    def checkpoint(self, during: Callable[[], None] = lambda: None) -> None:
        """A checkpoint of all disks, as the worker takes them, with something going on behind its sync."""
        for disk in self.opened:
            store = disk.store
            assert store is not None
            checkpointing = store.begin_checkpoint()
            if checkpointing.sync is not None:
                checkpointing.sync.run()
                store.end_sync(checkpointing.sync)
            during()
            checkpointing.run()
            store.end_checkpoint(checkpointing)
        self._note_disks()

    def compact(self) -> None:
        """Leave the segments of all disks, and move what counts out of every one that nobody writes to any more."""
        for disk in self.opened:
            assert disk.store is not None
            disk.store.log.seal()
            for segment in sealed(disk.store):
                kept = compact(disk.store, segment)
                assert not kept, kept

    def set_limbo(self, *ledgers: int) -> None:
        """As phase one."""
        for ledger in ledgers:
            self.note("try", "limbo", ledger)
            mark = MARK_ITEM.pack(ledger, FENCED | LIMBO, 1, KEY)
            self.disk_of(ledger).handle(MarkLedgers(payload=mark))
            self.note("ack", "limbo", ledger)

    def clear_limbo(self, *ledgers: int) -> None:
        """As phase two, when nothing is missing any more."""
        for ledger in ledgers:
            self.note("try", "clear", ledger)
            self.disk_of(ledger).handle(ClearLimbo(ledger=ledger))
            self.note("ack", "clear", ledger)

    def _acknowledge(self, what: Iterable[tuple[Any, ...]]) -> None:
        for words in what:
            self.note("ack", *words)

    def _look_after(self, disk: LocalDisk) -> None:
        assert disk.store is not None
        if disk.store.checkpoint_due:
            disk.store.checkpoint()

    # ---- questions -------------------------------------------------------------------------------

    def ask(self, ledger: int, *frames: bytes) -> list[tuple[int, bytes]]:
        """(code, body) of the answers to one group."""
        disk = self.disk_of(ledger)
        assert disk.store is not None
        work = self._begin(disk, frames)
        answers = self._answers(disk, lambda bookie, out: bookie.serve_reads(work, out))
        if work.waits:
            disk.store.sync()
        return [(code_of(body), body[24:]) for body in answers + self._end(disk, work)]

    def record(self, ledger: int) -> LedgerRecord:
        """What is known about a ledger."""
        bookie = self.disk_of(ledger).bookie
        assert bookie is not None
        return bookie.ledgers.record(ledger) or LedgerRecord()

    def disk_of(self, ledger: int) -> LocalDisk:
        """Where a ledger is, or would be."""
        for disk in self.opened:
            assert disk.bookie is not None
            if disk.bookie.ledgers.record(ledger) is not None:
                return disk
        return self.opened[ledger % len(self.opened)]

    def _begin(self, disk: LocalDisk, frames: Sequence[bytes]) -> CommitGroup:
        assert disk.bookie is not None
        data = b"".join(frames)
        return disk.bookie.append(memoryview(data), [(7, len(frames), 0, len(data))])

    def _end(self, disk: LocalDisk, work: CommitGroup) -> list[bytes]:
        def end(bookie: Bookie, out: ResponseWriter) -> None:
            bookie.commit(work)
            bookie.respond(work, out)

        return self._answers(disk, end)

    def _answers(
        self, disk: LocalDisk, step: Callable[[Bookie, ResponseWriter], None]
    ) -> list[bytes]:
        slots: list[tuple[memoryview, int]] = []

        def more(used: int) -> memoryview:
            if slots:
                slots[-1] = slots[-1][0], used
            slots.append((memoryview(bytearray(_SLOT_BYTES)), 0))
            return slots[-1][0]

        assert disk.bookie is not None
        writer = ResponseWriter(more)
        step(disk.bookie, writer)
        if slots:
            slots[-1] = slots[-1][0], writer.finish()
        return [
            bytes(body)
            for slot, used in slots
            for _connection, _count, frames in parts_of(slot, used)
            for body in bodies(frames, len(frames))
        ]

    def _wall_ms(self) -> int:
        return 1_700_000_000_000

    def _ticks_us(self) -> int:
        self._ticks += 1
        return self._ticks


def code_of(body: bytes) -> int:
    """Of an answer of either version."""
    if body[0] == 2:
        return int.from_bytes(body[4:8], "big", signed=True)
    return raw3.answer_of(body).status
