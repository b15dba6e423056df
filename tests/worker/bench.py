"""A worker's groups over a real disk, and a front-end's end of the link made by hand."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bkbox.bookie.bookie import Bookie
from bkbox.errors import DiskFailedError
from bkbox.ipc import link
from bkbox.ipc.frame_spans import segments
from bkbox.ipc.slots import SLOT_BYTES, SLOT_COUNT
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.files import AppendFile, ReadFile, RealFiles
from bkbox.storage.log.records import AckAfter
from bkbox.wire.frames import bodies
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.response_sender import ResponseSender
from bkbox.worker.stages import Stages
from tests.bookie.bench import IDENTITY

MESSAGE = struct.Struct(">BBHIIIq")
SEGMENT = struct.Struct(">III")
SMALL_SEGMENT_BYTES = 1 << 22


class WatchedFiles(RealFiles):
    """Counts what is written and synced; a sync of a log waits while ``gate`` is closed, one of the entry log while
    ``log_gate`` is, a removal while ``removal_gate`` is. A sync fails when told to (``fail``), as does what fills a log
    ahead (``fail_fill``); ``cold``: see _Cold. ``before_sync`` is called with the number of each sync of a log, on its
    thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.appends = self.syncs = self.bytes = 0
        self.gate = threading.Event()
        self.gate.set()
        self.log_gate = threading.Event()
        self.log_gate.set()
        self.removal_gate = threading.Event()
        self.removal_gate.set()
        self.fail = self.fail_fill = False
        self.before_sync: Callable[[int], object] = lambda _number: None
        self.cold = False
        self.read_gate = threading.Event()
        self.read_gate.set()
        self.read: set[tuple[Path, int]] = set()

    def open_read(self, path: Path) -> ReadFile:
        return _Cold(self, path, super().open_read(path))

    def detach(self, path: Path) -> Callable[[], None]:
        assert self.removal_gate.wait(30)
        return super().detach(path)

    def open_append(self, path: Path) -> AppendFile:
        is_log, is_entry_log = path.suffix == ".log", path.parent.name == "entrylog"
        return _Watched(self, super().open_append(path), is_log, is_entry_log)


class _Cold:
    """While files are ``cold`` nothing is in memory but what was waited for, at ``read_gate``."""

    def __init__(self, files: WatchedFiles, path: Path, real: ReadFile) -> None:
        self._files = files
        self._path = path
        self._real = real
        self.pread, self.want, self.release = real.pread, real.want, real.release
        self.size, self.close = real.size, real.close

    def read_into(self, offset: int, buffer: memoryview) -> int:
        if self._files.cold:
            assert self._files.read_gate.wait(30)
            self._files.read.add((self._path, offset))
        return self._real.read_into(offset, buffer)

    def read_cached(self, offset: int, buffer: memoryview) -> int:
        if self._files.cold and (self._path, offset) not in self._files.read:
            return 0
        return self._real.read_into(offset, buffer)


class _Watched:
    def __init__(
        self, files: WatchedFiles, real: AppendFile, is_log: bool, is_entry_log: bool
    ) -> None:
        self._is_entry_log = is_entry_log
        self._files = files
        self._real = real
        self._is_log = is_log
        self.size, self.truncate = real.size, real.truncate
        self.writeback, self.close, self.seek = real.writeback, real.close, real.seek

    def append(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_log:
            self._files.appends += 1
            self._files.bytes += len(data)
        self._real.append(data)

    def fill(self, offset: int, data: bytes) -> None:
        if self._files.fail_fill:
            raise DiskFailedError("write: ordered")
        self._real.fill(offset, data)

    def fdatasync(self) -> None:
        if self._is_log:
            self._files.syncs += 1
            self._files.before_sync(self._files.syncs)
            assert self._files.gate.wait(30)
            if self._is_entry_log:
                assert self._files.log_gate.wait(30)
            if self._files.fail:
                raise DiskFailedError("sync: ordered")
        self._real.fdatasync()


def ticks_us() -> int:
    return time.monotonic_ns() // 1_000


class FrontEndOfLink:
    """A link: the front-end's end, and ``worker``, the worker's."""

    def __init__(self) -> None:
        self.sent = 0
        self.done = 0
        """Batches of which everything was answered."""
        self._requests = memoryview(bytearray(SLOT_COUNT * SLOT_BYTES))
        self._answers = memoryview(bytearray(SLOT_COUNT * SLOT_BYTES))
        self._slot = 0
        self.front, self.back = link.pair()
        slots = [self._answers[i * SLOT_BYTES : (i + 1) * SLOT_BYTES] for i in range(SLOT_COUNT)]
        self.worker = ResponseSender(self.back, self._requests, slots)

    def put(self, *frames: bytes, connection: int = 7) -> None:
        """One batch."""
        joined = b"".join(frames)
        base = self._slot * SLOT_BYTES
        SEGMENT.pack_into(self._requests, base, connection, len(joined), len(frames))
        self._requests[base + SEGMENT.size : base + SEGMENT.size + len(joined)] = joined
        size = SEGMENT.size + len(joined)
        self.front.send(MESSAGE.pack(link.BATCH, 0, self._slot, size, 0, 0, ticks_us()))
        self._slot = (self._slot + 1) % SLOT_COUNT

    def answers(self) -> list[bytes]:
        """The bodies of the answers that have come."""
        found: list[bytes] = []
        released = 0
        while True:
            try:
                data = self.front.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            for kind, _flag, slot, used, mask, _group, _us in MESSAGE.iter_unpack(data):
                self.sent += 1
                self.done += mask.bit_count()
                assert kind == link.RESPONSES
                if slot == link.NO_SLOT:
                    continue
                released |= 1 << slot
                view = self._answers[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
                for _connection, _count, frames in segments(view, used):
                    found += [bytes(body) for body in bodies(frames, len(frames))]
        if released:
            self.front.send(MESSAGE.pack(link.RELEASE, 0, link.NO_SLOT, 0, released, 0, 0))
        return found

    def codes(self) -> list[int]:
        """The codes of the answers that have come, all of version 2."""
        return [int.from_bytes(body[4:8], "big", signed=True) for body in self.answers()]

    def close(self) -> None:
        self.front.close()
        self.back.close()


class Bench:
    """One disk, its groups, and the link."""

    def __init__(
        self,
        folder: Path,
        ack_after: AckAfter = AckAfter.SYNC,
        *,
        checkpoint_bytes: int = 1 << 30,
        segment_bytes_max: int = 1 << 30,
        slow_us: int = 0,
        ticks: Callable[[], int] = ticks_us,
    ) -> None:
        self.disk = folder / "disk"
        self.files = WatchedFiles()
        if not self.disk.exists():
            self.disk.mkdir(parents=True)
            format_disk(self.files, self.disk, IDENTITY)
        journal = folder / "journal"
        journal.mkdir(exist_ok=True)
        self.store = DiskStore.open(
            self.files,
            self.disk,
            ack_after=ack_after,
            journal_dir=journal if ack_after is AckAfter.JOURNAL else None,
            segment_bytes_max=segment_bytes_max,
            checkpoint_bytes=checkpoint_bytes,
            now_ms=lambda: 0,
        )
        self.report = self.store.replay(host_crash=False)
        self.bookie = Bookie(self.store, wall_ms=lambda: 0, ticks_us=ticks)
        self.stages = Stages(slow_us, ticks)
        self.lost = False
        self.groups = CommitGroups(self.store, self.bookie, self.stages, ticks, self._lose)
        self.closed = False
        self.end = FrontEndOfLink()
        self.link = self.end.worker
        self.front, self.back = self.end.front, self.end.back
        self.groups.attach(self.link)

    def _lose(self, link_: ResponseSender) -> None:
        self.lost = True
        self.groups.detach(link_)
        self.bookie.forget_connections(link.connections_of(0))

    def send(self, *frames: bytes, connection: int = 7) -> None:
        """One batch, which the worker takes as a group of its own."""
        self.end.put(*frames, connection=connection)
        self.groups.receive()

    def answers(self) -> list[bytes]:
        """The bodies of the answers that have come."""
        return self.end.answers()

    @property
    def sent(self) -> int:
        return self.end.sent

    @property
    def done(self) -> int:
        """Batches of which everything was answered."""
        return self.end.done

    def codes(self) -> list[int]:
        """The codes of the answers that have come, all of version 2."""
        return self.end.codes()

    def until(self, done: Callable[[], bool]) -> None:
        """Go on with what ends behind the groups until something holds."""
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline
            self.groups.on_background_done()
            time.sleep(0.001)

    def close(self, *, clean: bool = True) -> None:
        if self.closed:
            return
        self.closed = True
        self.files.gate.set()
        self.files.log_gate.set()
        self.files.removal_gate.set()
        self.groups.drain()
        self.groups.close()
        if clean:
            self.store.close()
        else:
            self.store.abandon()
        self.front.close()
        self.back.close()
