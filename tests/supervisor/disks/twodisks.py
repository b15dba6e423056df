"""Two disks of one bookie with real stores on file systems that crash, and everything of a move between them but the
processes: who dies when is up to the test.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from bkbox.bookie.bookie import Bookie
from bkbox.errors import ConnectionLostError
from bkbox.ipc.channel import raise_refusal
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.message import Message, Refused
from bkbox.ipc.messages.migration import (
    EVERYTHING,
    EntriesRead,
    GetLedger,
    ImportEntries,
    LedgerInfo,
    PauseLedger,
    PlaceLedger,
    ReadLedger,
    StartImport,
)
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.log.records import AckAfter
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.ledger_migration import LedgerMigrator
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.ledger_migration import LedgerMigrations
from tests.bookie.bench import IDENTITY, Clock, add3, ask3, bookie_of, read3, write_lac3
from tests.harness import raw3
from tests.harness.faultyfiles import Crash, CrashableFiles, CrashableStore

LEDGER = 7


class HostLostError(BaseException):
    """Both processes, and whatever was not synced."""


class Life:
    """Stands for a child process: whether it runs."""

    def __init__(self) -> None:
        self.running = True


class Side(Disk):
    """A disk and its worker."""

    def __init__(self, number: int, folder: Path, ack_after: AckAfter = AckAfter.SYNC) -> None:
        super().__init__(number, folder / "disk", f"disk {number}", lock=None)  # type: ignore[arg-type]
        self.ack_after = ack_after
        folder.mkdir()
        self.files = CrashableFiles(folder, random.Random(number))
        self.index = CrashableStore()
        format_disk(self.files, self.path, IDENTITY, create_index=lambda *_: None)
        self.dies_with_host = False
        self.open()

    def open(self, *, host_crash: bool = False) -> None:
        """What a worker does when it is started."""
        clock = Clock()
        self.store = DiskStore.open(
            self.files,
            self.path,
            ack_after=self.ack_after,
            journal_dir=None,
            segment_bytes_max=1 << 20,
            checkpoint_bytes=1 << 20,
            now_ms=lambda: 0,
            open_index=lambda *_: self.index,
        )
        report = self.store.replay(host_crash)
        self.may_have_lost = not report.trusted
        self.bookie: Bookie = bookie_of(self.store, clock)
        ticks_us = lambda: clock.ticks_ms * 1_000  # noqa: E731
        stages: object = None
        self.groups = CommitGroups(self.store, self.bookie, stages, ticks_us, lambda _front: None)  # type: ignore[arg-type]
        self.moves = LedgerMigrations(
            self.files, self.path, self.store, self.bookie, self.groups, ticks_us
        )
        self.handlers = Handlers()
        self.moves.register(self.handlers)
        self.child = Life()  # type: ignore[assignment]
        self.in_service = True

    def end(self) -> None:
        """The process is gone."""
        self.groups.close()
        assert self.child is not None
        self.child.running = False  # type: ignore[misc]
        self.in_service = False
        self.files.stop()

    def revive(self) -> None:
        self.files = self.files.next_process()
        self.open()

    def revive_after_host(self) -> None:
        self.files = self.files.lose_host()
        self.index = self.index.lose_host(random.Random(self.number))
        self.open(host_crash=True)

    async def call(
        self, message: Message, timeout_s: float | None = None, fds: tuple[int, ...] = ()
    ) -> Message:
        assert self.child is not None
        if not self.child.running:
            raise ConnectionLostError("the worker is gone")
        try:
            message.call = 1
            reply = self.handlers.handle(message, [os.dup(fd) for fd in fds])
        except Crash:
            self.died()
            raise ConnectionLostError("the worker is gone") from None
        assert reply is not None
        if isinstance(reply, Refused):
            raise_refusal(reply)
        return reply

    def died(self) -> None:
        if self.dies_with_host:
            raise HostLostError
        self.end()

    def ask(self, *frames: bytes) -> list[int]:
        """Status of each request of a group; none where the worker dies of it."""
        assert self.child is not None
        if not self.child.running:
            return []
        try:
            return [answer.status for answer in ask3(self.bookie, *frames)]
        except Crash:
            self.died()
            return []

    def assigned(self) -> set[int]:
        return {ledger for ledger, _ in self.moves.assigned_ledgers()}


class Front:
    """The front-end as the moves see it: where a ledger is, and whether it is held."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.held = False

    async def call(self, message: Message, timeout_s: float | None = None) -> None:
        if isinstance(message, PauseLedger):
            self.held = True
        elif isinstance(message, PlaceLedger):
            self.held, self.home = False, message.disk


@dataclass
class Promised:
    """What clients were told of the ledger."""

    entries: dict[int, bytes] = field(default_factory=dict)
    fenced: bool = False
    lac: int = -1


class Pair:
    """Source and target, and a ledger on the source."""

    def __init__(self, folder: Path, ack_after: AckAfter = AckAfter.SYNC) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.source = Side(1, folder / "1", ack_after)
        self.target = Side(2, folder / "2", ack_after)
        self.sides = [self.source, self.target]
        self.front = Front(self.source.uuid)
        self.migrator = LedgerMigrator(self.front)
        self.promised = Promised()
        self.may_be_fenced = False
        """A fence was requested: without a response it may be durable all the same."""
        self.since = EVERYTHING

    @property
    def home(self) -> Side:
        """Where the front-end sends what clients ask."""
        return next(side for side in self.sides if side.uuid == self.front.home)

    def ask(self, frame: bytes) -> list[int]:
        """Who asks while the ledger is held waits, and in the end is told EIO."""
        return [] if self.front.held else self.home.ask(frame)

    def add(self, *entries: int) -> None:
        """Adds of the writer, or, once it may be fenced, of a recovery."""
        recovery = self.may_be_fenced or self.promised.fenced
        for entry in entries:
            payload = b"%d" % entry * 50
            frame = add3(LEDGER, entry, payload, recovery=recovery)
            if self.ask(frame) == [raw3.EOK]:
                self.promised.entries[entry] = payload

    def fence(self) -> None:
        self.may_be_fenced = True
        frame = read3(LEDGER, -1, flag=raw3.FENCE, key=raw3.master_key())
        if self.ask(frame) == [raw3.EOK]:
            self.promised.fenced = True

    def put_lac(self, lac: int) -> None:
        if self.ask(write_lac3(LEDGER, lac)) == [raw3.EOK]:
            self.promised.lac = max(self.promised.lac, lac)

    async def copy(self, *, whole: bool) -> None:
        """One pass of the drain job."""
        fd = os.memfd_create("pair")
        try:
            since = EVERYTHING if whole else self.since
            read = ReadLedger(ledger=LEDGER, since=since)
            more = True
            while more:
                found = await self.source.call(read, fds=(fd,))
                assert isinstance(found, EntriesRead)
                assert found.bad == []
                take = ImportEntries(ledger=LEDGER, size=found.size)
                await self.target.call(take, fds=(fd,))
                more, began = found.more, found.began
                read = ReadLedger(ledger=LEDGER)
            self.since = began
        finally:
            os.close(fd)

    async def begin(self) -> None:
        known = await self.source.call(GetLedger(ledger=LEDGER))
        assert isinstance(known, LedgerInfo)
        await self.target.call(StartImport(ledger=LEDGER, state=known.state, payload=known.payload))
        self.since = (
            EVERYTHING  # the target has forgotten what arrived before, as the drain job knows
        )

    async def move(self) -> bool:
        moved = await self.migrator.move(LEDGER, self.source, self.target, self.since)
        return moved.moved

    async def resolve(self) -> None:
        async with self.migrator.lock:
            await self.migrator.resolve(self.sides)

    def check(self) -> None:
        """One home, and everything that was promised is there."""
        homes = [side for side in self.sides if LEDGER in side.assigned()]
        assert homes == [self.home], [side.uuid for side in homes]
        assert not self.front.held
        [home] = homes
        for entry, payload in self.promised.entries.items():
            found = home.store.read_entry(LEDGER, entry)
            assert found is not None, f"entry {entry} is gone"
            assert found.endswith(payload)
        state = home.store.ledger_state(LEDGER)
        assert state is not None
        assert state.master_key == raw3.master_key()
        assert state.fenced or not self.promised.fenced
        packet = home.store.explicit_lac(LEDGER)
        lac = -1 if packet is None else int.from_bytes(packet[8:16], "big", signed=True)
        assert lac >= self.promised.lac

    def check_nothing_left(self) -> None:
        """No copy is anywhere but at home."""
        for side in self.sides:
            assert not side.moves._arriving
            assert not side.moves._leaving
            if side is not self.home:
                assert side.store.ledger_state(LEDGER) is None
                assert side.store.entries(LEDGER) == []

    def close(self) -> None:
        for side in self.sides:
            if side.child is not None and side.child.running:
                side.end()
