"""A bookie over a real disk store, without processes and sockets: frames in, answers out."""

from __future__ import annotations

import uuid
from pathlib import Path

from bkbox.bookie.bookie import Bookie, CommitGroup
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import DiskError
from bkbox.ipc.frame_spans import FrameSpan
from bkbox.ipc.frame_spans import segments as slots_segments
from bkbox.ipc.slots import SLOT_BYTES
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.disk.identity import DiskIdentity
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import AckAfter, LedgerRecord
from bkbox.wire.frames import bodies
from tests.harness import raw, raw3


class Clock:
    """Both clocks of a bookie; they go on when the test says so."""

    wall_ms = 1_700_000_000_000
    ticks_ms = 5_000

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.ticks_ms += ms


IDENTITY = DiskIdentity(uuid.UUID(int=7), "b:1", "i")


def new_disk(folder: Path) -> Path:
    disk = folder / "disk"
    disk.mkdir()
    format_disk(RealFiles(), disk, IDENTITY)
    return disk


def open_store(disk: Path, ack_after: AckAfter = AckAfter.SYNC) -> DiskStore:
    opened = DiskStore.open(
        RealFiles(),
        disk,
        ack_after=ack_after,
        journal_dir=None,
        segment_bytes_max=1 << 20,
        checkpoint_bytes=1 << 20,
        now_ms=lambda: 0,
    )
    opened.replay(host_crash=False)
    return opened


def bookie_of(store: DiskStore, clock: Clock | None = None) -> Bookie:
    time = clock or Clock()
    return Bookie(store, wall_ms=lambda: time.wall_ms, ticks_us=lambda: time.ticks_ms * 1_000)


def put_into_limbo(bookie: Bookie, ledger: int) -> None:
    bookie.set_states({ledger: LedgerRecord(master_key=raw.master_key(), fenced=True, limbo=True)})


def process(bookie: Bookie, *frames: bytes, connection: int = 7) -> list[bytes]:
    """The bodies of the answers to one group, in the order in which they come."""
    area = memoryview(b"".join(frames))
    return [body for _, body in carry_out(bookie, area, [(connection, len(frames), 0, len(area))])]


def carry_out(
    bookie: Bookie, area: memoryview, segments: list[FrameSpan]
) -> list[tuple[int, bytes]]:
    """(connection, body) of the answers to one group, as a worker carries it out that does one thing at a time."""
    slots: list[tuple[memoryview, int]] = []

    def more(used: int) -> memoryview:
        if slots:
            slots[-1] = slots[-1][0], used
        slots.append((memoryview(bytearray(SLOT_BYTES)), 0))
        return slots[-1][0]

    writer = ResponseWriter(more)
    work = answer_group(bookie, area, segments, writer)
    assert work is not None
    if slots:
        slots[-1] = slots[-1][0], writer.finish()
    return [
        (connection, bytes(body))
        for slot, used in slots
        for connection, _count, frames in slots_segments(slot, used)
        for body in bodies(frames, len(frames))
    ]


def answer_group(
    bookie: Bookie, area: memoryview, segments: list[FrameSpan], out: ResponseWriter
) -> CommitGroup:
    """All steps of a group, with the sync at once, and with the reads whose bytes the page cache has not."""
    work = bookie.append(area, segments)
    bookie.serve_reads(work, out)
    if work.cold_reads is not None:
        bookie.serve_cold_reads(work, out)
    failure = None
    if work.waits:
        try:
            bookie.store.sync()
        except DiskError as error:
            failure = error
    bookie.commit(work, failure)
    bookie.respond(work, out)
    return work


def ask3(bookie: Bookie, *frames: bytes) -> list[raw3.Answer]:
    return [raw3.answer_of(body) for body in process(bookie, *frames)]


def statuses(bookie: Bookie, *frames: bytes) -> list[int]:
    return [answer.status for answer in ask3(bookie, *frames)]


def polled(bookie: Bookie) -> list[tuple[int, raw3.Answer]]:
    """(connection, answer) of the long polls that are answered by now."""
    return [
        (connection, raw3.answer_of(frame[4:]))
        for connection, frames in bookie.pop_ready_polls()
        for frame in frames
    ]


def add3(ledger: int, entry: int, payload: bytes = b"x", txn: int = 1, **options: object) -> bytes:
    priority = raw3.PRIORITY if options.get("recovery") else None
    part = raw3.add_part(ledger, entry, payload, **options)  # type: ignore[arg-type]
    return raw3.request(raw3.ADD, txn, part, priority=priority)


def read3(ledger: int, entry: int = -1, txn: int = 2, **options: object) -> bytes:
    return raw3.request(raw3.READ, txn, raw3.read_part(ledger, entry, **options))  # type: ignore[arg-type]


def poll3(
    ledger: int, previous: int, timeout_ms: int | None = 1_000, txn: int = 3, entry: int = -1
) -> bytes:
    return read3(ledger, entry, txn, flag=raw3.PIGGYBACK, previous=previous, timeout_ms=timeout_ms)


def write_lac3(
    ledger: int, lac: int, txn: int = 4, key: bytes | None = None, body: bytes | None = None
) -> bytes:
    packet = raw3.lac_packet(ledger, lac) if body is None else body
    key = raw.master_key() if key is None else key
    return raw3.request(raw3.WRITE_LAC, txn, [(1, ledger), (2, lac), (3, key), (4, packet)])


def simple3(operation: int, ledger: int, txn: int = 5) -> bytes:
    """READ_LAC, FORCE or LIST."""
    return raw3.request(operation, txn, [(1, ledger)])
